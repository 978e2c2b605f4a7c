"""Messages over the standard streams: a thread reads whole ones, the event loop acts on them.

One hop from thread to thread a message, since an author waits for it. What is no message is dropped, and one that says
it is huge is read and dropped, so that no editor can fill the memory.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from threading import Thread
from typing import Any, BinaryIO

LARGEST = 64 << 20  # bytes of one message; a text has 4 MiB at most
_LINE = 1 << 16  # bytes of one line of a header
_LENGTH = b"content-length:"


class Output:
    """Where answers go; it stays open when the session ends, for it is not ours."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def write(self, data: bytes) -> None:
        """A whole message. An editor that went away is noticed where messages are read."""
        try:
            self._stream.write(data)
            self._stream.flush()
        except (OSError, ValueError):
            return

    def close(self) -> None:
        """Nothing."""


def message(stream: BinaryIO) -> bytes | None:
    """The body of the next message, empty for one that cannot be used; None where the stream is at its end."""
    length = 0
    while True:
        line = stream.readline(_LINE)
        if not line:
            return None
        if line in (b"\r\n", b"\n"):
            break
        name, value = line[: len(_LENGTH)].lower(), line[len(_LENGTH) :].strip()
        if name == _LENGTH and value.isdigit() and len(value) < 16:
            length = int(value)
    left = length
    while left > LARGEST:
        piece = stream.read(min(left, 1 << 20))
        if not piece:
            return None
        left -= len(piece)
    body = stream.read(left)
    if len(body) < left:
        return None
    return body if length <= LARGEST else b""


async def converse(stream: BinaryIO, structure: Callable[[dict[str, Any]], Any], act: Callable[[Any], None]) -> None:
    """Read messages until the stream ends, and act on each in this loop. structure: makes a message of JSON objects."""
    loop, over = asyncio.get_running_loop(), asyncio.Event()

    def take(body: bytes) -> None:
        try:
            found = json.loads(body, object_hook=structure)
        except (ValueError, RecursionError):
            return
        act(found)

    def read() -> None:
        try:
            while (body := message(stream)) is not None:
                if body:
                    loop.call_soon_threadsafe(take, body)
            loop.call_soon_threadsafe(over.set)
        except (OSError, ValueError, RuntimeError):  # closed meanwhile: the stream, or the loop
            if not loop.is_closed():
                loop.call_soon_threadsafe(over.set)

    Thread(target=read, name="reading", daemon=True).start()
    await over.wait()
