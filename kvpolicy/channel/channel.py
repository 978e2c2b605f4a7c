"""The control channel, engine side: directives that come without a request.

A thread of ours (`channel_listener`) reads a socket into a bounded queue; the scheduler drains it, a few messages a
step, before it allocates, and answers each. Nothing here waits for the engine and the engine waits for nothing here:
the hand-over is one deque each way. Eviction is allocation, so what is applied before the next allocation is in time,
also when the engine idled since the message came. `wake` lets an idle engine take it up at once; where there is none,
the sender is told `deferred`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from kvpolicy.channel.listener import Handover, Listener
from kvpolicy.channel.sockets import listen
from kvpolicy.channel.wire import Address, ChannelFault, read_address

CAPACITY = 1024


class Channel:
    """One channel. capacity: messages that may wait. status: answers a `ping`, called in the channel's thread, so it
    may only read. rank: the data-parallel rank, added to the address. fault: why it does not run, or None.

    counts: received answered malformed refused full lost.
    """

    def __init__(
        self,
        address: str,
        *,
        token: str | None = None,
        rank: int = 0,
        capacity: int = CAPACITY,
        status: Callable[[], dict[str, Any]] | None = None,
    ) -> None:
        self.address: Address | None = None
        self._token = token
        self._handover = Handover(capacity, status)
        self._listener: Listener | None = None
        self._thread: threading.Thread | None = None
        self._fault: str | None = None
        try:
            self.address = read_address(address).of_rank(rank)
        except ChannelFault as fault:
            self._fault = str(fault)

    @property
    def counts(self) -> dict[str, int]:
        """What came and what became of it."""
        return dict(self._handover.counts)

    @property
    def fault(self) -> str | None:
        """Why no message can come, or None."""
        return self._fault or self._handover.fault

    @property
    def wake(self) -> Callable[[], None] | None:
        """Called in the channel's thread whenever messages came, once for those that came together."""
        return self._handover.wake

    @wake.setter
    def wake(self, function: Callable[[], None] | None) -> None:
        self._handover.wake = function

    def start(self) -> bool:
        """Listen, in a thread. False where that cannot be: `fault` says why, and there is never a message. Does not
        raise."""
        if self._fault is not None or self.address is None:
            return False
        try:
            opened = listen(self.address, self._token)
            if self.address.path is None:
                self.address = Address(None, self.address.host, opened.getsockname()[1])
            self._listener = Listener(opened, self.address, self._token, self._handover)
            self._thread = threading.Thread(target=self._listener.run, name="kvpolicy-channel", daemon=True)
            self._thread.start()
        except (ChannelFault, OSError, RuntimeError) as fault:
            self._fault = f"{self.address}: {fault}"
            return False
        return True

    @property
    def pending(self) -> bool:
        """Whether a message waits."""
        return bool(self._handover.waiting)

    def drain(self, limit: int = 64) -> list[dict[str, Any]]:
        """At most `limit` messages, the oldest first. Never waits."""
        taken: list[dict[str, Any]] = []
        while len(taken) < limit:
            try:
                taken.append(self._handover.waiting.popleft())
            except IndexError:
                break
        return taken

    def answer(self, message: dict[str, Any], row: dict[str, Any]) -> None:
        """What became of a drained message: `{"status", "requested", "granted", "reason", …}`. Never waits."""
        self._handover.counts["answered"] += 1
        if self._listener is not None:
            self._listener.answer(message, row)

    def close(self) -> None:
        """Stop listening. What was not drained is lost; calling it again does nothing."""
        if self._listener is not None:
            self._listener.stop()
        thread, self._thread = self._thread, None
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout=2.0)
        self._handover.waiting.clear()
