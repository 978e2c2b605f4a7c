"""How far one run has come, as a fold over what was told of its steps: the same steps, in order, the same standing.

`run` keeps the latest steps told, so that one that comes late takes its place among them. A standing holds the running
steps with their times, with a graph the `Position` in it, and which branches stand for which instances of a fan-out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kvpolicy.workflow.chance import Chances
from kvpolicy.workflow.graph import Graph
from kvpolicy.workflow.position import Position

MOST_NAMES = 4096  # names of nodes and branches are what callers say
_RUNS, _ENDED, _LOST_RUNNING, _LOST_BEFORE = range(4)


@dataclass(slots=True, eq=False)
class Told:
    """One thing told of a run's steps. counts: of fan-outs, by the name after `*`; count: of those behind `node`.
    guessed: from a request, not from an event. learned: how long the step took has been passed on."""

    at: float
    name: str
    node: str | None
    branch: str | None = None
    counts: Mapping[str, int] | None = None
    count: int | None = None
    guessed: bool = False
    learned: bool = False

    def repeats(self, other: Told) -> bool:
        """Whether the other says just the same."""
        mine, theirs = (self.at, self.name, self.node, self.branch), (other.at, other.name, other.node, other.branch)
        return mine == theirs


class Standing:
    """`started`: when the steps began that run, by node. chances: of nodes, where `runs` was asked for one since the
    latest step told."""

    __slots__ = ("_branches", "_since", "chances", "position", "started")

    def __init__(self, graph: Graph | None) -> None:
        self.position = None if graph is None else Position(graph)
        self.started: dict[str | None, list[float]] = {}
        self.chances: Chances | None = None
        self._branches: dict[str, tuple[str, int]] = {}  # node and fate of the instance a branch stands for
        self._since: dict[str, float] = {}  # when it began, by branch

    def copy(self) -> Standing:
        """The same, for itself."""
        other = Standing(None)
        other.position = None if self.position is None else self.position.copy()
        other.started = {node: starts.copy() for node, starts in self.started.items()}
        other._branches, other._since = self._branches.copy(), self._since.copy()
        return other

    def tell(self, told: Told) -> float | None:
        """Take the next step told. Seconds of the step that ended by it, where its begin is known."""
        position, node = self.position, told.node
        self.chances = None
        if position is not None:
            for name, count in (told.counts or {}).items():
                position.fan_out(name, count)
            if told.count is not None and node is not None:
                position.fan_out_behind(node, told.count)
        if told.name == "step_start":
            self._begin(node, told)
        elif told.name == "step_end":
            return self._end(node, told)
        elif told.name == "barrier":
            if position is not None and node is not None:
                position.barrier(node)
        elif told.name == "branch_pruned":
            self._prune(node, told.branch)
        elif told.branch is not None:
            self._return(told.branch)
        return None

    def latest_start(self) -> float | None:
        """When the step began that began last, among those that run."""
        return max((at for starts in self.started.values() for at in starts), default=None)

    def _begin(self, node: str | None, told: Told) -> None:
        if self.position is not None and node is not None:
            if self.position.runs(node) and not self.position.fans(node):
                return  # a repeat
            self.position.start(node)
        self.started.setdefault(node, []).append(told.at)
        if len(self.started) > MOST_NAMES:
            del self.started[next(iter(self.started))]
        if told.branch is not None and node is not None:
            self._branch(told.branch, node, _RUNS)
            self._since[told.branch] = told.at

    def _end(self, node: str | None, told: Told) -> float | None:
        if told.branch is not None and node is not None:
            fate = self._branches.get(told.branch)
            if fate == (node, _LOST_RUNNING):
                return None  # its end is not waited for
            self._branch(told.branch, node, _ENDED)
        began = self._leave(node, told.branch)
        seconds = None if began is None else max(0.0, told.at - began)
        if self.position is not None and node is not None:
            self.position.end(node)
        return seconds

    def _prune(self, node: str | None, branch: str | None) -> None:
        """A branch is given up; the instance that it stands for will not arrive, unless it has."""
        known = None if branch is None else self._branches.get(branch)
        if known is not None:
            node, fate = known
            if fate != _RUNS:
                return  # it has arrived, or is lost already
        if node is None:
            return
        ran = known is not None or node in self.started
        if ran:
            self._leave(node, branch)
        if self.position is not None:
            self.position.lost(node, ran)
        if branch is not None:
            self._branch(branch, node, _LOST_RUNNING if ran else _LOST_BEFORE)

    def _leave(self, node: str | None, branch: str | None) -> float | None:
        """A running step of the node is over; when it began: that of the branch, else the oldest."""
        starts = self.started.get(node)
        since = None if branch is None else self._since.pop(branch, None)
        if not starts:
            return None
        began = since if since in starts else starts[0]
        starts.remove(began)
        if not starts:
            del self.started[node]
        return began

    def _return(self, branch: str) -> None:
        """A branch that was given up goes on."""
        node, fate = self._branches.get(branch, ("", _RUNS))
        if fate in (_LOST_RUNNING, _LOST_BEFORE):
            if self.position is not None:
                self.position.found(node, fate == _LOST_RUNNING)
            if fate == _LOST_RUNNING:
                self._branch(branch, node, _RUNS)
            else:
                del self._branches[branch]

    def _branch(self, branch: str, node: str, fate: int) -> None:
        self._branches.pop(branch, None)
        self._branches[branch] = node, fate
        if len(self._branches) > MOST_NAMES:
            gone = next(iter(self._branches))
            del self._branches[gone]
            self._since.pop(gone, None)
