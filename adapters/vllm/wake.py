"""Waking an idle vLLM engine so that it looks at the control channel.

Without requests the engine's loop sleeps on its input queue. It takes a WAKEUP from there, as its own shutdown sends
one, and then asks the scheduler `has_requests`: that is where a scheduler of ours drains the channel, in the engine's
own thread. Nothing depends on it: a message that wakes nobody is applied before the next allocation.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType


def find_wake() -> Callable[[], None] | None:
    """A function that wakes the engine whose `__init__` is running further up in this thread (the scheduler is built
    there); None where there is none, or none of the form known."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        engine = frame.f_locals.get("self")
        queue = getattr(engine, "input_queue", None)
        if queue is not None and hasattr(engine, "_process_input_queue") and hasattr(queue, "put_nowait"):
            return _wake_of(queue)
        frame = frame.f_back
    return None


def _wake_of(queue: object) -> Callable[[], None] | None:
    try:
        from vllm.v1.engine import EngineCoreRequestType  # type: ignore[import-not-found, unused-ignore]

        wake = (EngineCoreRequestType.WAKEUP, None)
    except (ImportError, AttributeError):
        return None

    def put() -> None:
        queue.put_nowait(wake)  # type: ignore[attr-defined]

    return put
