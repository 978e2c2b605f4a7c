"""When the server is asked, and when nobody tries: a circuit breaker.

One failed round opens it; while it is open every call is answered in-process without waiting. It tries again by itself,
at first soon, then at most every two seconds. It opens for a caller too, before any time-out, when one call was late.
"""

from __future__ import annotations

import random
import time

FIRST_S, LONGEST_S = 0.05, 2.0


class Breaker:
    """closed: the server answers. reason: why it is not closed."""

    def __init__(self) -> None:
        self.closed = False
        self.reason = "not connected yet"
        self.late = False  # a call was not answered in time, and no round has ended since
        self._wait = FIRST_S
        self._next = 0.0

    @property
    def asks(self) -> bool:
        """Whether a caller should wait for the server."""
        return self.closed and not self.late

    def pause(self) -> float:
        """Seconds until the next try."""
        return 0.0 if self.closed else max(0.0, self._next - time.monotonic())

    def well(self) -> bool:
        """A round ended. True: the breaker closes by it."""
        healed = not self.closed
        self.closed, self.late, self.reason, self._wait = True, False, "", FIRST_S
        return healed

    def failed(self, reason: str) -> bool:
        """A round failed. True: the breaker opens by it."""
        opened = self.closed
        self.closed, self.reason = False, reason
        # Replicas that lost one server together should not come back together.
        self._next = time.monotonic() + self._wait * random.uniform(0.7, 1.3)
        self._wait = min(LONGEST_S, self._wait * 2)
        return opened
