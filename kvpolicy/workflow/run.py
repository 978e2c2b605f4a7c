"""One run of a workflow: what was told of its steps, in the order of their times.

A step that is told late takes its place among the latest ones, and the run stands where it would had all come in
order; one told twice counts once. What is older than all that is remembered comes too late and changes nothing.
"""

from __future__ import annotations

from bisect import bisect_right
from math import inf

from kvpolicy.request import Owner
from kvpolicy.workflow.followed import Followed
from kvpolicy.workflow.graph import Graph
from kvpolicy.workflow.standing import Standing, Told

REMEMBERED = 16  # a step told late is put right if at least so few came between

Ended = tuple[str | None, float]  # a step that ended: its node, seconds


class Run:
    """`explicit`: events tell of its steps, requests are not taken for them. heard: when something was last told.
    owner: one of its owners, where known. over: when it ended; what is older comes too late. workflow: by which name
    its graph was found, where somebody stated one.
    """

    __slots__ = (
        "_before",
        "_counted",
        "_log",
        "_middle",
        "_oldest",
        "explicit",
        "followed",
        "heard",
        "over",
        "owner",
        "standing",
        "workflow",
    )

    def __init__(self, followed: Followed | None, heard: float, workflow: str | None = None) -> None:
        self.followed = followed
        self.heard = heard
        self.owner: Owner | None = None
        self.explicit = False
        self.over: float | None = None
        self.workflow = workflow
        self._restart([])

    def _restart(self, log: list[Told]) -> None:
        """Stand at the beginning, and take these again."""
        self.standing = Standing(self.graph)
        self._counted: list[int] = []  # no edge has been taken yet
        self._before: Standing | None = None  # where it stood before the first step remembered; None: at the beginning
        self._middle: Standing | None = None  # … and before the one at REMEMBERED
        self._oldest = -inf  # what is older was forgotten
        self._log: list[Told] = []
        for told in log:
            self._append(told)

    @property
    def graph(self) -> Graph | None:
        """The graph that it follows."""
        return None if self.followed is None else self.followed.graph

    @property
    def untold(self) -> bool:
        """Whether it stands at the beginning: nothing of its steps was told."""
        return not self._log and self.over is None and self._before is None

    def tell(self, told: Told) -> list[Ended]:
        """Take a step told. Returns the steps that ended by it, those that are known for the first time."""
        if self.over is not None:
            if told.at <= self.over or told.name not in ("step_start", "step_end"):
                return []
            self.over, self.explicit = None, False
            self._restart([])
        if not told.guessed and not self.explicit and told.name in ("step_start", "step_end"):
            # From now on the run is told, not guessed; what was guessed so far gives way.
            self.explicit = True
            self._restart([t for t in self._log if not t.guessed])
        if told.at < self._oldest or self._is_repeat(told):
            return []
        if not self._log or told.at >= self._log[-1].at:
            seconds = self._append(told)
            return [] if seconds is None else [(told.node, seconds)]
        self._log.insert(bisect_right(self._log, told.at, key=lambda other: other.at), told)
        return self._again()

    def finish(self, at: float) -> None:
        """The workflow is over: no step of it is needed any more."""
        if self.over is not None and self.over >= at:
            return
        self.over = at
        self._log, self._before, self._middle = [], None, None
        self.standing.started = {}
        self.standing.chances = None
        if self.standing.position is not None:
            self.standing.position.finish()

    def rest(self) -> None:
        """Nothing was heard for long: what is remembered to put late steps right is let go."""
        if self._log:
            self._oldest = self._log[-1].at
            self._log, self._before, self._middle = [], None, None

    def newly_taken(self) -> list[int]:
        """How often it has taken each edge since this was last asked."""
        taken = [] if self.standing.position is None else self.standing.position.taken
        before, self._counted = self._counted or [0] * len(taken), taken.copy()
        return [now - then for now, then in zip(taken, before, strict=True)]

    def _append(self, told: Told) -> float | None:
        if not self._log and self._oldest != -inf:
            self._before = self.standing.copy()
        elif len(self._log) == REMEMBERED:
            self._middle = self.standing.copy()
        elif len(self._log) >= 2 * REMEMBERED:
            self._forget(self._middle, self.standing.copy())
        self._log.append(told)
        return self._take(told)

    def _take(self, told: Told) -> float | None:
        seconds = self.standing.tell(told)
        if seconds is None or told.learned:
            return None
        told.learned = True
        return seconds

    def _again(self) -> list[Ended]:
        """Walk through all that is remembered, from where the run stood before it."""
        self.standing = Standing(self.graph) if self._before is None else self._before.copy()
        ended = []
        stood: dict[int, Standing] = {}
        for index, told in enumerate(self._log):
            if index in (REMEMBERED, 2 * REMEMBERED):
                stood[index] = self.standing.copy()
            seconds = self._take(told)
            if seconds is not None:
                ended.append((told.node, seconds))
        self._middle = stood.get(REMEMBERED)
        if 2 * REMEMBERED in stood:
            self._forget(stood[REMEMBERED], stood[2 * REMEMBERED])
        return ended

    def _forget(self, before: Standing | None, middle: Standing) -> None:
        del self._log[:REMEMBERED]
        self._before, self._middle, self._oldest = before, middle, self._log[0].at if self._log else self._oldest

    def _is_repeat(self, told: Told) -> bool:
        """Whether the same was told before; instances of a fan-out without names may begin and end together."""
        position = self.standing.position
        fans = position is None or told.node is None or position.fans(told.node)
        if told.branch is None and fans and told.name in ("step_start", "step_end"):
            return False
        for other in reversed(self._log):
            if other.at < told.at:
                return False
            if told.repeats(other):
                return True
        return False
