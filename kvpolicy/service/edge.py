"""The gateway's edge: what may come in, what of it goes on, and refusals in the client's own dialect.

Called by `proxy`. Fields by which a client could steer an engine's cache itself are taken out here, whatever the rest
of the service does with the request.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

import orjson
from starlette.types import Receive, Send

from kvpolicy.service.exchange import MESSAGES

HOP_BY_HOP = frozenset(
    [
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "te",
        "trailer",
        "trailers",
        "transfer-encoding",
        "upgrade",
    ]
)
# Never passed on: ours, the gateway's own, and those that only routers among themselves may send.
_STRIPPED = frozenset(
    [
        "host",
        "content-length",
        "expect",
        "x-kv-hints",
        "x-vllm-priority",
        "x-continuation-id",
        "x-prefiller-host-port",
        "x-encoder-hosts-ports",
        "x-kv-cache-source-host-port",
        "x-data-parallel-host-port",
        "epp-profile",
    ]
)
_STRIPPED_PREFIXES = ("x-kvp-", "x-data-parallel-", "x-gateway-destination-endpoint", "x-dynamo-", "x-llm-d-")
# Body fields by which a client would steer the engine's cache past us.
RAW_FIELDS = frozenset(
    [
        "kvp",
        "kv_hints",
        "kv_transfer_params",
        "ec_transfer_params",
        "priority",
        "retention_directives",
        "retention_scope",
        "agent_hint",
        "cache_salt",
        "session_params",
        "extra_key",
        "nvext",
    ]
)
_ONCE = frozenset({"authorization", "x-api-key", "host", "content-length", "content-type", "idempotency-key"})
CLOSE = {"connection": "close"}  # what is left of the request is not read
_OUR_ARGUMENTS = ("kvpolicy", "kv_", "session_id")
MOST_HEADERS = 200
# Whether a body may have one of them at all: by name, or with its letters escaped.
_MAY_HAVE_RAW = re.compile(rb'\\u00|"(?:vllm_xargs|' + "|".join(sorted(RAW_FIELDS)).encode() + rb')"')


class Refusal(Exception):
    """A request that the gateway answers itself. status: HTTP; kind: in the words of the dialect's error types."""

    def __init__(self, status: int, kind: str, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.kind, self.message, self.headers = status, kind, message, dict(headers or {})


def joined(raw: Iterable[tuple[bytes, bytes]], most: int) -> dict[str, str]:
    """Headers by lower-case name, several lines of one joined as RFC 9110 says. Raises Refusal where there are too
    many or too long ones."""
    found: dict[str, str] = {}
    size = 0
    for count, (name, value) in enumerate(raw, 1):
        size += len(name) + len(value)
        if size > most or count > MOST_HEADERS:
            raise Refusal(431, "invalid_request_error", f"the headers are longer than {most} bytes", CLOSE)
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        if key in found and key in _ONCE:
            raise Refusal(400, "invalid_request_error", f"there is more than one header {key}", CLOSE)
        found[key] = f"{found[key]}, {text}" if key in found else text
    return found


def has_body(headers: Mapping[str, str]) -> bool:
    """Whether a body comes behind a request's head, joined as `joined` does."""
    return headers.get("content-length", "0") != "0" or "transfer-encoding" in headers


def passed_on(raw: Iterable[tuple[bytes, bytes]], *, secret: bool) -> list[tuple[str, str]]:
    """The headers that an upstream gets, in their order, several lines of one kept apart. secret: the client's key is
    ours and stays here. A value that is not UTF-8 is left out: no two servers read it alike."""
    lines = [(name.decode("latin-1").lower(), value) for name, value in raw]
    named = {
        word.strip().lower()
        for name, value in lines
        if name == "connection"
        for word in value.decode("latin-1").split(",")
    }
    out = []
    for name, value in lines:
        if name in HOP_BY_HOP or name in named or name in _STRIPPED or name.startswith(_STRIPPED_PREFIXES):
            continue
        if secret and name in ("authorization", "x-api-key"):
            continue
        try:
            out.append((name, value.decode()))
        except UnicodeDecodeError:
            continue
    return out


def stripped(body: Mapping[str, Any]) -> dict[str, Any]:
    """A model request's body without what only we may say to an engine."""
    out = {key: value for key, value in body.items() if key not in RAW_FIELDS}
    arguments = out.get("vllm_xargs")
    if arguments is None:
        out.pop("vllm_xargs", None)
    elif isinstance(arguments, Mapping):
        kept = {k: v for k, v in arguments.items() if not str(k).startswith(_OUR_ARGUMENTS)}
        out["vllm_xargs"] = kept
        if not kept:
            del out["vllm_xargs"]
    return out


def without_raw_fields(data: bytes) -> bytes:
    """The body of a request that is passed on, without fields that only we may send; untouched where it has none."""
    data = _as_utf8(data)
    if data.lstrip()[:1] != b"{" or not _MAY_HAVE_RAW.search(data):
        return data
    try:
        body = orjson.loads(data)
        kept = stripped(body)
        return data if kept == body else orjson.dumps(kept)
    except orjson.JSONDecodeError:
        return data  # no engine reads it either
    except (orjson.JSONEncodeError, RecursionError):
        raise Refusal(400, "invalid_request_error", "the body is nested too deeply") from None


def _as_utf8(data: bytes) -> bytes:
    """The body in UTF-8, where it is a JSON object in UTF-16, in UTF-32, or behind a byte order mark: Python's reader,
    and so engines, take those too. # INVARIANT: what an engine reads as an object is looked through here."""
    encoding = json.detect_encoding(data[:4])
    if encoding == "utf-8":
        return data
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError:
        return data
    return text.encode("utf-8", "surrogatepass") if text.lstrip()[:1] == "{" else data


async def read_body(
    receive: Receive, most: int, idle_s: float, stated: str | None, within_s: float | None = None
) -> bytes:
    """The whole body. Raises Refusal for one that is too large (as soon as that is known), stops coming, or takes
    longer than `within_s`, and ConnectionResetError where the client went away."""
    try:
        async with asyncio.timeout(within_s):
            return await _read_body(receive, most, idle_s, stated)
    except TimeoutError:
        raise Refusal(408, "invalid_request_error", f"the body did not come within {within_s:g} s", CLOSE) from None


async def _read_body(receive: Receive, most: int, idle_s: float, stated: str | None) -> bytes:
    if stated is not None and stated.isdecimal() and int(stated) > most:
        raise Refusal(413, "request_too_large", f"the body is larger than {most} bytes", CLOSE)
    parts, size, more = [], 0, True
    while more:
        part, more = await received(receive, idle_s)
        size += len(part)
        if size > most:
            raise Refusal(413, "request_too_large", f"the body is larger than {most} bytes", CLOSE)
        if part:
            parts.append(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


async def received(receive: Receive, idle_s: float) -> tuple[bytes, bool]:
    """The next part of a body, and whether more comes. Raises Refusal where nothing came for `idle_s` seconds, and
    ConnectionResetError where the client went away."""
    try:
        message = await asyncio.wait_for(receive(), idle_s)
    except TimeoutError:
        raise Refusal(408, "invalid_request_error", f"nothing of the body came for {idle_s:g} s", CLOSE) from None
    if message["type"] == "http.disconnect":
        raise ConnectionResetError("the client went away")
    return message.get("body", b""), message.get("more_body", False)


async def refuse(send: Send, refusal: Refusal, dialect: str | None) -> None:
    """Send a refusal as the dialect's clients expect errors."""
    error: dict[str, Any] = {"type": refusal.kind, "message": refusal.message}
    if dialect != MESSAGES:
        error |= {"param": None, "code": None}
    document = {"type": "error", "error": error} if dialect == MESSAGES else {"error": error}
    data = orjson.dumps(document)
    headers = {"content-type": "application/json", "content-length": str(len(data)), **refusal.headers}
    raw = [(name.encode("latin-1"), value.encode("latin-1", "replace")) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": refusal.status, "headers": raw})
    await send({"type": "http.response.body", "body": data})
