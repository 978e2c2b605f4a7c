"""The engines behind the gateway: which are there, which takes a request, and how one is reached.

`forwarding` asks for candidates, best first; a stage's wish (residency, a pinned session) comes before the least
loaded. One that refuses connections rests for a while and is tried last. Where requests go is the configuration's
word alone: never a header's, a target's, a redirect's or the environment's.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import aiohttp
from aiohttp.abc import AbstractStreamWriter
from aiohttp.payload import Payload
from multidict import CIMultiDict
from yarl import URL

from kvpolicy.faults import InputFault
from kvpolicy.service.config import Limits, Upstream
from kvpolicy.service.edge import Refusal

REST_S = (1.0, 30.0)  # after a failed connection: first, and longest
LONGEST_HEADER = 64 << 10  # of an answer, bytes
_AT_ONCE = 64 << 10  # a longer body goes out in pieces, so that it is never copied whole
_TURN = 256 << 10
_NOT_ADDED = ("User-Agent", "Accept", "Accept-Encoding", "Content-Type")  # a request goes on with its own headers alone


class Body:
    """What a request sends. A long one goes out in pieces and is let go of once it has: engines take their time with a
    long prompt. data: None by then, and where there is none."""

    __slots__ = ("data",)

    def __init__(self, data: bytes | None = None) -> None:
        self.data = data

    @property
    def size(self) -> int:
        """Bytes."""
        return len(self.data or b"")

    def pieces(self) -> Iterator[bytes]:
        """All of it, once. Raises aiohttp.ClientOSError the second time."""
        for start in range(0, self.size, _AT_ONCE):
            if self.data is None:
                raise aiohttp.ClientOSError("a body goes out once")
            yield self.data[start : start + _AT_ONCE]
        self.data = None


class Made(Body):
    """A body that is made while it goes out, so that it is never there as a whole. make: yields its pieces, the same
    ones each time it is asked; size: bytes of all of them."""

    __slots__ = ("_make", "_size")

    def __init__(self, make: Callable[[], Iterator[bytes]], size: int) -> None:
        super().__init__()
        self._make, self._size = make, size

    @classmethod
    async def of(cls, make: Callable[[], Iterator[bytes]]) -> Made:
        """Its pieces are made once to know its size. Raises what they raise."""
        size = 0
        async for piece in _in_turns(make()):
            size += len(piece)
        return cls(make, size)

    @property
    def size(self) -> int:
        """Bytes."""
        return self._size

    def pieces(self) -> Iterator[bytes]:
        """All of it."""
        return self._make()


class _Long(Payload):
    """A long body as the client library writes it."""

    def __init__(self, body: Body) -> None:
        super().__init__(body)
        self._size: int = body.size

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """Its text; nobody asks for it."""
        return (self._value.data or b"").decode(encoding, errors)

    async def write(self, writer: AbstractStreamWriter) -> None:
        """All of it, once."""
        async for piece in _in_turns(self._value.pieces()):
            await writer.write(piece)


async def _in_turns(pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
    """Pieces of a long body; other requests have their turn on the way, also where an engine takes all at once."""
    since = 0
    for piece in pieces:
        yield piece
        since += len(piece)
        if since >= _TURN:
            since = 0
            await asyncio.sleep(0)


@dataclass(slots=True)
class Engine:
    """One upstream. running: requests that it has from us. resting_until: seconds on the service's clock. answers:
    whether it did when last heard of; None: it never was."""

    settings: Upstream
    limits: Limits
    tls: ssl.SSLContext | bool
    running: int = 0
    failures: int = 0
    resting_until: float = 0.0
    answers: bool | None = None
    _session: aiohttp.ClientSession | None = None

    @property
    def url(self) -> str:
        """Its base address, also its name among upstreams."""
        return self.settings.url

    def failed(self, now: float) -> None:
        """It did not take a connection: leave it alone for a while, longer each time."""
        self.failures += 1
        self.answers = False
        self.resting_until = now + min(REST_S[0] * 2 ** min(self.failures - 1, 5), REST_S[1])

    def worked(self) -> None:
        """It took one."""
        self.failures = 0
        self.answers = True
        self.resting_until = 0.0

    async def ask(
        self, method: str, target: str, headers: Sequence[tuple[str, str]] | Mapping[str, str], body: Body
    ) -> aiohttp.ClientResponse:
        """The beginning of its answer, whose body is to be read or closed. target: path and query, sent as they are.
        Raises aiohttp.ClientError; a body goes out once at most."""
        data: Any = body.data if body.size <= _AT_ONCE and not isinstance(body, Made) else _Long(body)
        return await self._opened().request(
            method,
            URL(self.url + target, encoded=True),
            headers=CIMultiDict(headers),
            data=data,
            skip_auto_headers=_NOT_ADDED,
            allow_redirects=False,
        )

    async def close(self) -> None:
        """Close every connection."""
        if self._session is not None:
            await self._session.close()

    def _opened(self) -> aiohttp.ClientSession:
        """Made with the first request: it belongs to the loop that runs."""
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    ssl=self.tls, limit=self.limits.connections, keepalive_timeout=self.limits.keepalive_s
                ),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=self.limits.connect_s),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                trust_env=False,
                max_line_size=LONGEST_HEADER,
                max_field_size=LONGEST_HEADER,
            )
        return self._session


class Upstreams:
    """All of them, in the order of the configuration. Raises InputFault for a certificate that cannot be read."""

    def __init__(self, settings: Sequence[Upstream], limits: Limits) -> None:
        self.engines = [Engine(each, limits, _tls(each)) for each in settings]
        self._by_url = {engine.url: engine for engine in self.engines}

    def of(self, url: str) -> Engine | None:
        """The upstream at an address."""
        return self._by_url.get(url)

    def candidates(self, model: str | None, prefer: Sequence[str], now: float) -> list[Engine]:
        """Those that may take a request for `model`, best first: as wished, then the least loaded; resting ones last.

        Raises Refusal where no upstream serves the model."""
        able = [e for e in self.engines if not e.settings.models or model is None or model in e.settings.models]
        if not able:
            raise Refusal(404, "not_found_error", "no upstream serves this model")
        wish = {url: place for place, url in enumerate(prefer)}
        last = len(wish)
        return sorted(able, key=lambda e: (e.resting_until > now, wish.get(e.url, last), e.running))

    def unready(self) -> str | None:
        """Why no request should come: no engine answers, as far as is known. None: one does."""
        if any(engine.answers for engine in self.engines):
            return None
        silent = all(engine.answers is None for engine in self.engines)
        return "no upstream has answered yet" if silent else "no upstream takes connections"

    async def close(self) -> None:
        """Close every connection."""
        for engine in self.engines:
            await engine.close()


def _tls(settings: Upstream) -> ssl.SSLContext | bool:
    if not settings.url.startswith("https://"):
        return True
    try:
        context = ssl.create_default_context(cafile=settings.ca_file)
        if settings.cert_file is not None:
            context.load_cert_chain(settings.cert_file, settings.key_file)
    except (OSError, ssl.SSLError) as fault:
        files = ", ".join(f for f in (settings.ca_file, settings.cert_file, settings.key_file) if f)
        raise InputFault(f"upstream {settings.url}: certificates cannot be read from {files}: {fault}") from None
    return context
