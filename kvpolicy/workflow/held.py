"""The runs that are kept, the longest unheard-of first, and what each tenant's share of the room is.

`runs` keeps its runs here. What a run takes grows with its graph, so room is counted in marks (nodes and edges); where
there is none left, the tenant that holds most gives up the run of its own that was unheard-of for longest. A large
graph so costs its own tenant runs, and nobody else.
"""

from __future__ import annotations

from collections.abc import Iterator

from kvpolicy.workflow.run import Run
from kvpolicy.workflow.run_keys import RunKey

MOST_MARKS = 20_000_000
LEAST = 200  # marks that a run counts for at least, so that there are 100,000 runs at most


class HeldRuns:
    """Runs by key. active: those that something was heard of lately; silent: the others."""

    __slots__ = ("_shares", "active", "marks", "silent")

    def __init__(self) -> None:
        self.active: dict[RunKey, Run] = {}
        self.silent: dict[RunKey, Run] = {}
        self.marks = 0
        self._shares: dict[str | None, _Share] = {}

    def __contains__(self, key: object) -> bool:
        return key in self.active or key in self.silent

    def get(self, key: RunKey) -> Run | None:
        """The run of a key, silent or not."""
        return self.active.get(key) or self.silent.get(key)

    @property
    def is_crowded(self) -> bool:
        """Whether more is held than there is room for."""
        return self.marks > MOST_MARKS

    def hear(self, key: RunKey) -> Run | None:
        """The run of a key, which from now on is active, and the one that was heard of last."""
        run = self.active.pop(key, None) or self.silent.pop(key, None)
        if run is not None:
            self.active[key] = run
            keys = self._shares[key[0]].keys
            del keys[key]
            keys[key] = None
        return run

    def hold(self, key: RunKey, run: Run) -> None:
        """From now on this is the run of its key, and the one that was heard of last."""
        self.drop(key)
        self.active[key] = run
        share = self._shares.setdefault(key[0], _Share())
        share.keys[key] = None
        share.marks += _marks(run)
        self.marks += _marks(run)

    def silence(self, key: RunKey) -> None:
        """Nothing has been heard of an active run for long."""
        self.silent[key] = self.active.pop(key)

    def drop(self, key: RunKey) -> Run | None:
        """Keep it no longer. Returns what was kept."""
        run = self.active.pop(key, None) or self.silent.pop(key, None)
        if run is not None:
            share = self._shares[key[0]]
            del share.keys[key]
            share.marks -= _marks(run)
            self.marks -= _marks(run)
            if not share.keys:
                del self._shares[key[0]]
        return run

    def crowded_out(self, latest: RunKey) -> Iterator[tuple[RunKey, Run]]:
        """Drop what there is no room for, all but the `latest`."""
        # INVARIANT: a tenant that holds less than another gives up nothing.
        while self.is_crowded:
            most, first = 0, latest
            for share in self._shares.values():
                longest = next(iter(share.keys))
                if share.marks > most and longest != latest:
                    most, first = share.marks, longest
            run = None if first == latest else self.drop(first)
            if run is None:
                return
            yield first, run


class _Share:
    """What one tenant holds: its runs, the longest unheard-of first, and their marks."""

    __slots__ = ("keys", "marks")

    def __init__(self) -> None:
        self.keys: dict[RunKey, None] = {}
        self.marks = 0


def _marks(run: Run) -> int:
    graph = run.graph
    return LEAST if graph is None else max(LEAST, len(graph.names) + len(graph.edges))
