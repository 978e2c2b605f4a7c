"""The scope on every LLM call: a transport for httpx and httpx2, and `annotate` for clients that exist already.

The SDKs of OpenAI and Anthropic stand on httpx or on httpx2, by their version; both have the same transports and
hooks, and neither is imported here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Self, TypeVar

from kvpolicy.client.once import warn_once
from kvpolicy.client.scope import current
from kvpolicy.client.wire import headers
from kvpolicy.faults import InputFault

Client = TypeVar("Client")
Note = Callable[[Any], None]
_Origin = tuple[Any, ...]
_DEEPEST = 4  # clients within clients
# Where known objects keep the client that they call with: SDKs, then frameworks' models.
_WITHIN = ("_client", "client", "root_client", "root_async_client", "_async_client", "async_client", "_aclient")
_ORIGIN = ("scheme", "host", "port")
_FIRST = "kvpolicy_origin"  # an extension of a request, which its redirects inherit


def stamp(request: Any) -> None:
    """Put the current scope on a request (anything with `method` and `headers`). Headers that it has already stay.
    Never raises."""
    try:
        if request.method != "POST":
            return
        for name, value in headers(current()):
            if name not in request.headers:
                request.headers[name] = value
    except Exception as fault:  # the call goes on without
        warn_once("stamp", f"a call was not annotated: {fault!r}")


def unstamp(request: Any) -> None:
    """Take off what `stamp` put on here. Never raises."""
    try:
        for name, value in headers(current()):
            if request.headers.get(name) == value:
                del request.headers[name]
    except Exception as fault:
        warn_once("unstamp", f"a call elsewhere keeps its annotation: {fault!r}")


class Transport:
    """A transport around another: `httpx.Client(transport=Transport(httpx.HTTPTransport()))`."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def handle_request(self, request: Any) -> Any:
        """Stamp it, and pass it on."""
        _annotated(request, None, stamp, unstamp)
        return self.inner.handle_request(request)

    def __enter__(self) -> Self:
        self.inner.__enter__()
        return self

    def __exit__(self, *raised: Any) -> None:
        self.inner.__exit__(*raised)

    def close(self) -> None:
        """Close the one inside."""
        self.inner.close()


class AsyncTransport:
    """The same for asynchronous clients: `httpx.AsyncClient(transport=AsyncTransport(httpx.AsyncHTTPTransport()))`."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    async def handle_async_request(self, request: Any) -> Any:
        """Stamp it, and pass it on."""
        _annotated(request, None, stamp, unstamp)
        return await self.inner.handle_async_request(request)

    async def __aenter__(self) -> Self:
        await self.inner.__aenter__()
        return self

    async def __aexit__(self, *raised: Any) -> None:
        await self.inner.__aexit__(*raised)

    async def aclose(self) -> None:
        """Close the one inside."""
        await self.inner.aclose()


def annotate(client: Client) -> Client:
    """The client itself, whose LLM calls now say where they come from.

    client: of `openai` or `anthropic` (sync or async), one of httpx or httpx2, or a framework's model that has one
    inside. Calls to another address than the client's own (a redirect) are left alone; a client annotated twice is
    annotated once. Raises InputFault where no such client is found in it.
    """
    return hooked(client, stamp, unstamp)


def hooked(client: Client, note: Note, elsewhere: Note | None = None) -> Client:
    """The client itself, which gives each request to `note` before it is sent; one to another address than its own to
    `elsewhere`. Neither may raise. Raises InputFault as `annotate` does."""
    found = list(_http_clients(client, _DEEPEST, set(), None))
    if not found:
        raise InputFault(
            f"no httpx client is found in this {type(client).__name__}: give it the SDK's client, build that with "
            "kvpolicy.client.transport.Transport, or use kvpolicy.base_url"
        )
    for one, own in found:
        _hook(one, own, note, elsewhere)
    return client


def _http_clients(holder: Any, depth: int, seen: set[int], own: _Origin | None) -> Iterator[tuple[Any, _Origin | None]]:
    """The clients in it, each with the address it calls: its own, else that of the SDK's client around it."""
    if id(holder) in seen or depth < 0 or holder is None or isinstance(holder, str | bytes):
        return
    seen.add(id(holder))
    own = _origin(_read(holder, "base_url")) or own
    if hasattr(holder, "event_hooks") and hasattr(holder, "build_request"):
        yield holder, own
        return
    for name in _WITHIN:
        yield from _http_clients(_read(holder, name), depth - 1, seen, own)


def _read(holder: Any, name: str) -> Any:
    try:
        return getattr(holder, name, None)
    except Exception:  # a property that needs what is not there yet
        return None


def _hook(client: Any, own: _Origin | None, note: Note, elsewhere: Note | None) -> None:
    hooks = client.event_hooks
    told = list(hooks.get("request", ()))
    if any(getattr(hook, "of_kvpolicy", None) == note for hook in told):
        return
    awaited = hasattr(client, "aclose")

    def sync_hook(request: Any) -> None:
        _annotated(request, own, note, elsewhere)

    async def async_hook(request: Any) -> None:
        sync_hook(request)

    hook: Any = async_hook if awaited else sync_hook
    hook.of_kvpolicy = note
    client.event_hooks = {**hooks, "request": [*told, hook]}


def _annotated(request: Any, own: _Origin | None, note: Note, elsewhere: Note | None) -> None:
    """Give it to the one that it is for. own: None where the client calls any address: then a redirect from the first
    one on is elsewhere."""
    try:
        here = _origin(request.url)
        at_home = here == (own or request.extensions.setdefault(_FIRST, here))
    except Exception as fault:  # the call goes on without
        warn_once("origin", f"a call was not annotated: {fault!r}")
        return
    if at_home:
        note(request)
    elif elsewhere is not None:  # a redirect carries the first request's headers along
        elsewhere(request)


def _origin(url: Any) -> _Origin | None:
    """Scheme, host and port; None for what names no host."""
    return tuple(getattr(url, name) for name in _ORIGIN) if getattr(url, "host", "") else None
