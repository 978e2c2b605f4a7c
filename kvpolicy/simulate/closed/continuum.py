"""`continuum-released` on the modelled engine: the scheduler of Continuum's released vLLM fork (Li et al., 2025).

A finished request that called a tool whose running mean is at most 2 s (a tool not seen yet counts as 0) keeps its
blocks for 2 s, and for as long as its session's next call waits after that. Sessions that are pinned go first, then
those that began first. Short of memory, the running request of the youngest session is preempted, a session's last
call never; with one request running, the pin that ends last is broken instead. Tool time is a session's next arrival
less its previous end. Unlike a hold of ours, such a pin keeps others from being admitted. Which call is the last of its
session the client says there, so it is known here too.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

from kvpolicy.simulate.closed.order import Fcfs, age
from kvpolicy.simulate.closed.task import Task

PIN_S = 2.0


@dataclass(frozen=True, slots=True)
class _Pin:
    until: float
    release: Callable[[], None]


class ContinuumReleased(Fcfs):
    """pins: by session."""

    def __init__(self) -> None:
        self.pins: dict[int, _Pin] = {}
        self._means: dict[Hashable, tuple[float, int]] = {}
        self._left: dict[int, tuple[float, tuple[Hashable, ...]]] = {}

    def first(self, waiting: Sequence[Task]) -> int:
        """Pinned sessions first, then by when the session began."""
        return min(range(len(waiting)), key=lambda i: (waiting[i].demand.session not in self.pins, *age(waiting[i])))

    def victim(self, running: Sequence[Task], now: float) -> int | None:
        """The youngest session's request; with one running, a pin goes first."""
        if len(running) == 1 and self.relieve():
            return None
        choice = [i for i, task in enumerate(running) if not task.demand.last] or list(range(len(running)))
        return max(choice, key=lambda i: age(running[i]))

    def arrived(self, task: Task, now: float) -> None:
        """The pause before it was its tools' time."""
        left = self._left.pop(task.demand.session, None)
        if left is None:
            return
        for tool in left[1]:
            mean, count = self._means.get(tool, (0.0, 0))
            self._means[tool] = (mean + (now - left[0] - mean) / (count + 1), count + 1)

    def keeps(self, task: Task, now: float, release: Callable[[], None]) -> bool:
        """2 s for a tool that is quick on average."""
        session, tools = task.demand.session, task.demand.call.answer.tool_calls
        self._unpin(session)
        if not tools or task.demand.last:
            return False
        self._left[session] = (now, tools)
        if max(self._means.get(tool, (0.0, 0))[0] for tool in tools) > PIN_S:
            return False
        self.pins[session] = _Pin(now + PIN_S, release)
        return True

    def tidy(self, waiting: Sequence[Task], now: float) -> float | None:
        """Pins whose time is over end, unless their session is back in the queue."""
        if not self.pins:
            return None
        back = {task.demand.session for task in waiting}
        for session in [s for s, pin in self.pins.items() if pin.until <= now and s not in back]:
            self._unpin(session)
        return min((pin.until for pin in self.pins.values() if pin.until > now), default=None)

    def relieve(self) -> bool:
        """The pin that ends last is broken."""
        if not self.pins:
            return False
        self._unpin(max(self.pins, key=lambda session: self.pins[session].until))
        return True

    def _unpin(self, session: int) -> None:
        pin = self.pins.pop(session, None)
        if pin is not None:
            pin.release()
