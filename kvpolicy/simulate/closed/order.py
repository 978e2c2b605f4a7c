"""Who is admitted first, and who has to go when memory is short. Asked by `engine`, which acts.

`Fcfs` is vLLM v1's default: first come, first served; the request admitted last is preempted and waits at the front.
`Sessions` is its `--scheduling-policy priority` where whoever sends requests states as their priority when their
session began: nothing of a policy is in it, and any policy may run under either.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kvpolicy.simulate.closed.task import Task


class Fcfs:
    """Nothing is kept beyond a request's end."""

    def first(self, waiting: Sequence[Task]) -> int:
        """Which of the waiting (not empty, in order of arrival) is next."""
        return 0

    def victim(self, running: Sequence[Task], now: float) -> int | None:
        """Which of the running (not empty, in order of admission) is preempted for room. None: none of them has to be,
        memory was freed in another way."""
        return len(running) - 1

    def arrived(self, task: Task, now: float) -> None:
        """A request came."""

    def keeps(self, task: Task, now: float, release: Callable[[], None]) -> bool:
        """A request is done. True: its blocks stay held until `release` is called."""
        return False

    def tidy(self, waiting: Sequence[Task], now: float) -> float | None:
        """A step begins. Returns when something will be let go, for which nobody else wakes the engine."""
        return None

    def relieve(self) -> bool:
        """Nothing runs and nobody can be admitted. Whether memory was freed."""
        return False


class Sessions(Fcfs):
    """The session that began first goes first; the youngest one's request is preempted."""

    def first(self, waiting: Sequence[Task]) -> int:
        """By when the session began, then by arrival."""
        return min(range(len(waiting)), key=lambda i: age(waiting[i]))

    def victim(self, running: Sequence[Task], now: float) -> int | None:
        """The youngest session's."""
        return max(range(len(running)), key=lambda i: age(running[i]))


def age(task: Task) -> tuple[float, float]:
    """When its session began, and when it came: the smaller goes first."""
    return task.program_at, task.arrived


QUEUES: dict[str, Callable[[], Fcfs]] = {"fcfs": Fcfs, "session": Sessions}
