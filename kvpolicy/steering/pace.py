"""The time that planning one request may take; what takes longer is given up, and the request goes out unplanned.

Where requests wait for the answer (an engine in service) a bound is set; a replay has nobody who waits, and none: the
same timeline gives the same answers however slow the machine is.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from math import inf

PLAN_WITHIN_S = 0.020  # of an engine in service


class TimeSpent(Exception):
    """Planning took longer than it may."""


class Pace:
    """within: seconds of `timer` for one plan, None for no bound. timer: by default the processor time of the calling
    thread, so that a busy machine costs no plan. It may be slow to ask, and cannot run ahead of the clock on the wall:
    where that says there is time, it is not asked."""

    __slots__ = ("_at_least", "_ends", "_timer", "within")

    def __init__(self, within: float | None = None, timer: Callable[[], float] = time.thread_time) -> None:
        self.within = within
        self._timer = timer
        self._ends = inf
        self._at_least = -inf

    def start(self) -> Callable[[], None] | None:
        """A plan begins. Returns what to call on the way, None where nothing is bounded."""
        if self.within is None:
            return None
        self._ends = self._timer() + self.within
        if self._timer is time.thread_time:
            self._at_least = time.perf_counter() + self.within
        return self._look

    def _look(self) -> None:
        if time.perf_counter() > self._at_least and self._timer() > self._ends:
            raise TimeSpent
