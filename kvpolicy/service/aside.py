"""What takes long enough for other requests to notice runs in a thread, so that they go on meanwhile.

Used for long bodies, and by the gateway's own routes, for work on what a caller sent alone: nothing that requests share
is touched there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

T = TypeVar("T")
LONG_SPANS, LONG_BLOCKS = 200, 2000  # a request of more takes more than some milliseconds to read and to write
MANY_MESSAGES = 5000  # of a conversation, likewise; fewer are read at once, within the time that a request may take


async def run(aside: bool, do: Callable[..., T], *args: Any) -> T:
    """In a thread, or here. Raises what `do` raises."""
    return await asyncio.to_thread(do, *args) if aside else do(*args)


def is_long(document: Mapping[str, Any]) -> bool:
    """Whether a plan's document, with a request and perhaps a state of its own, is long. Never raises."""
    request = document["request"]
    if not isinstance(request, Mapping):
        return False
    spans, tokens, size = request.get("spans"), request.get("tokens"), request.get("block_size")
    if "state" in document or (isinstance(spans, list) and len(spans) > LONG_SPANS):
        return True
    return isinstance(tokens, int) and isinstance(size, int) and tokens > LONG_BLOCKS * max(size, 1)


def has_many_messages(body: Mapping[str, Any]) -> bool:
    """Whether a model request's body, however few its bytes, has so many messages that it takes long to go through
    them. Never raises."""
    rows = (body.get(name) for name in ("messages", "input", "tools"))
    return any(isinstance(each, list) and len(each) > MANY_MESSAGES for each in rows)
