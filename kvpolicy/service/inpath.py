"""Where a client is, said in its base URL: `/kvp/session=s1;node=writer/v1/chat/completions`.

For clients that can be told nothing but an address (`kvpolicy.base_url` writes such). The part is taken out of the path
before anything looks at it, and stands in for `x-kvp-context` where that header is not sent; what cannot be read is
answered as a malformed header is.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote_to_bytes

from starlette.types import ASGIApp, Receive, Scope, Send

from kvpolicy.client.scope import Scope as Place
from kvpolicy.client.wire import CONTEXT, PREFIX, headers

NAMES = frozenset({"session", "run", "workflow", "node", "agent", "branch", "parent"})
COUNTS = frozenset({"turn", "depth"})
FLAGS = frozenset({"last_step", "final"})
LONGEST = 4096  # bytes of the part
MALFORMED = b"="  # what no reader of the header takes
_START = PREFIX.encode()


class InPath:
    """An ASGI application around another."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and (scope.get("raw_path") or b"").startswith(_START):
            scope = moved(scope)
        await self.app(scope, receive, send)


def moved(scope: Scope) -> Scope:
    """The scope without the part, with the header instead."""
    part, slash, rest = scope["raw_path"][len(_START) :].partition(b"/")
    raw = slash + rest or b"/"
    told = scope["headers"]
    if not any(name == CONTEXT.encode() for name, _ in told):
        told = [*told, (CONTEXT.encode(), context(part))]
    return {**scope, "raw_path": raw, "path": unquote_to_bytes(raw).decode("utf-8", "replace"), "headers": told}


def context(part: bytes) -> bytes:
    """The header's value that says the same as the part of a path."""
    said: dict[str, Any] = {}
    if len(part) > LONGEST:
        return MALFORMED
    for pair in part.split(b";"):
        name, _, value = pair.partition(b"=")
        try:
            key, text = name.decode("ascii"), unquote_to_bytes(value).decode("utf-8")
        except UnicodeDecodeError:
            return MALFORMED
        if key in NAMES and text.isprintable() and text:
            said[key] = text
        elif key in COUNTS and text.isascii() and text.isdigit() and len(text) <= 15:
            said[key] = int(text)
        elif key in FLAGS and text in ("0", "1", ""):
            said[key] = text != "0"
        else:
            return MALFORMED
    written = dict(headers(Place(**said))).get(CONTEXT)
    return MALFORMED if written is None else written.encode("latin-1")
