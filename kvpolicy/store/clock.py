"""The server's clock, as a replica knows it: its own monotonic clock and how far the server's is from that.

Fed by `link` with what the server said and when it was asked; read by everybody. Source of the method: the round trip
with the least delay tells the offset best (NTP, RFC 5905 section 10, its clock filter in the simplest form).
"""

from __future__ import annotations

import time
from collections.abc import Callable

_KEPT_S = 60.0  # a round trip that was quicker than all since counts for so long


class ServerClock:
    """`now()` never goes back, whatever server is asked. wall: used until a server was heard."""

    def __init__(self, wall: Callable[[], float] = time.time, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._offset = wall() - monotonic()
        self._delay = float("inf")
        self._measured = 0.0
        self._latest = 0.0

    def now(self) -> float:
        """Seconds since 1970 on the server's clock."""
        # Two threads may both raise it; either value is one that the clock had.
        self._latest = max(self._latest, self._monotonic() + self._offset)
        return self._latest

    def heard(self, server: float, asked: float, answered: float) -> None:
        """The server said `server` somewhere between `asked` and `answered` on the monotonic clock."""
        delay = answered - asked
        if delay <= self._delay or answered - self._measured > _KEPT_S:
            self._offset = server - (asked + answered) / 2
            self._delay, self._measured = delay, answered

    def forget(self) -> None:
        """Another server may answer next: what it says counts whatever the delay."""
        self._delay = float("inf")
