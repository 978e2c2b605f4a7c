"""The runs that are kept, the longest unheard-of first, and which of them leave where there is no room.

`runs` keeps its runs here. What a run takes grows with its graph, so room is counted in marks (nodes and edges); where
there is none left, the tenant that holds most gives up the run of its own that was unheard-of for longest (`shares`). A
large graph so costs its own tenant runs, and nobody else.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

from kvpolicy.workflow.run import Run
from kvpolicy.workflow.run_keys import RunKey
from kvpolicy.workflow.shares import Shares

MOST_MARKS = 20_000_000
LEAST = 200  # marks that a run counts for at least, so that there are 100,000 runs at most


class HeldRuns:
    """Runs by key. active: those that something was heard of lately; silent: the others. shares: what tenants hold."""

    __slots__ = ("active", "shares", "silent")

    def __init__(self) -> None:
        self.active: OrderedDict[RunKey, Run] = OrderedDict()  # a dict finds its first key past all that have gone
        self.silent: OrderedDict[RunKey, Run] = OrderedDict()
        self.shares: Shares[RunKey] = Shares()

    def __contains__(self, key: object) -> bool:
        return key in self.active or key in self.silent

    def get(self, key: RunKey) -> Run | None:
        """The run of a key, silent or not."""
        return self.active.get(key) or self.silent.get(key)

    @property
    def is_crowded(self) -> bool:
        """Whether more is held than there is room for."""
        return self.shares.marks > MOST_MARKS

    def hear(self, key: RunKey) -> Run | None:
        """The run of a key, which from now on is active, and the one that was heard of last."""
        run = self.active.pop(key, None) or self.silent.pop(key, None)
        if run is not None:
            self.active[key] = run
            self.shares.hear(key[0], key)
        return run

    def hold(self, key: RunKey, run: Run) -> None:
        """From now on this is the run of its key, and the one that was heard of last."""
        self.drop(key)
        self.active[key] = run
        self.shares.add(key[0], key, _marks(run))

    def silence(self, key: RunKey) -> None:
        """Nothing has been heard of an active run for long."""
        self.silent[key] = self.active.pop(key)

    def drop(self, key: RunKey) -> Run | None:
        """Keep it no longer. Returns what was kept."""
        run = self.active.pop(key, None) or self.silent.pop(key, None)
        if run is not None:
            self.shares.drop(key[0], key)
        return run

    def crowded_out(self, latest: RunKey) -> Iterator[tuple[RunKey, Run]]:
        """Drop what there is no room for: the `latest` too, where its tenant holds nothing else and still the most.
        Where nobody else holds anything it stays."""
        while self.is_crowded:
            first = self.shares.first()
            if first is None or (first[1] == latest and len(self.shares) == 1):
                return
            run = self.drop(first[1])
            if run is not None:
                yield first[1], run


def _marks(run: Run) -> int:
    graph = run.graph
    return LEAST if graph is None else max(LEAST, len(graph.names) + len(graph.edges))
