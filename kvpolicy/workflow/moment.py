"""What is known at one moment of all owners and runs: what `signals` reads, and `state` moves.

Nothing here changes anything; the functions of the language are in `signals`, what happens is in `state`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kvpolicy.policy.model import IntervalPattern
from kvpolicy.request import Owner
from kvpolicy.workflow.branches import Branches
from kvpolicy.workflow.gauges import Gauges
from kvpolicy.workflow.graph import Graph
from kvpolicy.workflow.learned import Learned
from kvpolicy.workflow.life import Life
from kvpolicy.workflow.phases import ENDED, IDLE
from kvpolicy.workflow.runs import SILENT_S, Runs
from kvpolicy.workflow.transitions import Transitions

LONGEST_REQUEST_S = 86400.0


class Moment:
    """`learned`, `runs` and `gauges` stand open to whoever feeds or keeps them."""

    def __init__(self, intervals: Iterable[IntervalPattern] = (), graph: Graph | None = None) -> None:
        self._now = 0.0
        self._branches = Branches()
        self.learned = Learned()
        self._moves = Transitions(intervals, self.learned)
        self._owners = self._moves.owners
        self.runs = Runs(graph)
        self.gauges: Gauges = Gauges()

    @property
    def now(self) -> float:
        """Seconds on the caller's clock."""
        return self._now

    @property
    def hits_stamp(self) -> object:
        """The same object for as long as `hits` answers the same for every agent."""
        return self.learned.found_stamp

    def attributes(self, owner: Owner, branch: str | None = None) -> dict[str, object]:
        """State attributes (branch, rank, score, status) of the owner's branch, or of the span's own `branch` label."""
        label = branch if branch is not None else owner.branch
        return {} if label is None else self._branches.attributes(owner, label)

    def standing_of_score(self, owner: Owner, branch: str) -> float:
        """A branch's score as a share of the best of its run that is not pruned; 1 where nothing can be compared."""
        return self._branches.share_of_best(owner, branch)

    def phase(self, owner: Owner) -> str:
        """idle, running, tool_pause, human_pause or ended; an unknown owner is idle."""
        life = self._owners.get(owner)
        return IDLE if life is None else life.phases.phase

    def waits_of(self, owner: Owner) -> tuple[str | None, ...]:
        """The requests, by id, whose answers made the owner's open tool calls, oldest first; None: an event told."""
        life = self._owners.get(owner)
        return () if life is None else tuple(dict.fromkeys(call.request for call in life.phases.calls))

    def idle_since(self, owner: Owner) -> float | None:
        """When the owner's last answer ended; None while a request of it runs, or before its first."""
        life = self._owners.get(owner)
        return None if life is None or life.running else life.idle_since

    def silent_since(self, owner: Owner) -> float | None:
        """When the owner was last known to do something; None while a request of it runs, or where nobody knows it. No
        request runs for a day: the end of such a one was lost with whoever served it."""
        life = self._owners.get(owner)
        if life is None or (life.running and self._now - life.heard() < LONGEST_REQUEST_S):
            return None
        return life.heard()

    def owners(self) -> tuple[Owner, ...]:
        """Every owner known, oldest first."""
        return tuple(self._owners.lives)

    def live_branches(self, life: Life) -> int:
        """How many owners forked from this one have not ended, and were heard of within the hour."""
        return sum(
            child.phases.phase != ENDED and (bool(child.running) or self._now - child.heard() < SILENT_S)
            for child in self._owners.children(life)
        )

    def at_node(self, owner: Owner, node: str) -> Iterator[Life]:
        """Owners of this one's run that stand at a workflow node."""
        return (life for life in self._owners.of_run(owner) if life.place() == node)

    def run_mates(self, owner: Owner) -> tuple[Owner, ...]:
        """All owners of the same run (of the same session, where there is none), this one included."""
        return tuple(life.owner for life in self._owners.of_run(owner))
