"""The radix tree over ids of cached blocks, and the order of free ones kept in step with it.

Splits, merges and cuts are the embedded pool's (`kvpolicy.pool`); here each is told to `ranked`, and cuts know what
goes with a block. A run's hashes are block ids in the group that decides hits. Its `ids` are, a prompt block each,
those of other groups that ride on it (an empty list where one group decides alone).

INVARIANT: the blocks of a run in the tree belong to that run in `ranked`, and all others to nobody.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kvpolicy.adapters.vllm.ranked import Ranked
from kvpolicy.claims.strength import PROTECTED
from kvpolicy.pool.eviction import Eviction
from kvpolicy.pool.mark import Mark
from kvpolicy.pool.order import Order
from kvpolicy.pool.ranks import use
from kvpolicy.pool.run import Run, root
from kvpolicy.pool.tier import Tier
from kvpolicy.pool.tree import attach, common, extendable, merge, split

Sides = list[tuple[int, ...]]


class _Standing(Order):
    """Where a run stands is said by where its blocks stand."""

    __slots__ = ("_ranked",)

    def __init__(self, ranked: Ranked) -> None:
        super().__init__()
        self._ranked = ranked

    def put(self, run: Run) -> None:
        self._ranked.put(run)

    def drop(self, run: Run) -> None:
        pass


class Tree:
    """capacity: prompt blocks that the pool holds at most. root: the empty prefix. tier: what counts protected ones."""

    def __init__(self, ranked: Ranked, capacity: int) -> None:
        self._ranked = ranked
        self.tier = Tier("gpu", 0, capacity)
        self.tier.order = _Standing(ranked)
        self.root = root(self.tier)
        self._eviction = Eviction(1)

    # --- growing ----------------------------------------------------------------------------------------------------

    def hold(self, run: Run, keys: list[int], now: float) -> tuple[Run, int]:
        """A request holds what of `keys` stands behind `run`: the last run held, and how many blocks. A run that the
        prompt leaves is split there."""
        at, total = 0, len(keys)
        while at < total:
            child = run.children.get(keys[at])
            if child is None:
                break
            size = len(child.hashes)
            if keys[at : at + size] != child.hashes:
                size = common(child, keys, at)
                if size < len(child.hashes):
                    child = self.split(child, size)
            child.refs += 1
            use(child, now)
            at += size
            run = child
        return run, at

    def store(self, run: Run, keys: list[int], sides: Sides, now: float) -> Run:
        """Blocks behind the run where the request ends that holds them: in place where nothing else ends there, else
        as runs of their own. Returns the run where they end."""
        if not extendable(run, len(keys), now):
            return self.attach(run, keys, sides, now)
        beside: list[Any] = run.ids
        run.hashes += keys
        beside += sides
        self._ranked.assign(_flat(keys, sides), run)
        return run

    def attach(self, run: Run, keys: list[int], sides: Sides, now: float) -> Run:
        """Blocks behind any run, as runs of their own. Returns the last."""
        beside: Any = sides
        end = each = attach(run, keys, beside, now)
        while each is not run:
            self._ranked.assign(_blocks(each), each)
            assert each.parent is not None
            each = each.parent
        return end

    def split(self, run: Run, at: int) -> Run:
        """Cut a run in two behind its first `at` blocks; the head is returned."""
        head = split(run, at)
        self._ranked.assign(_blocks(head), head)
        return head

    def join(self, head: Run, run: Run) -> None:
        """`run` follows `head` alone: they are one run, with the end of `run`."""
        self._ranked.assign(_blocks(head), run)
        merge(head, run)

    # --- losing -----------------------------------------------------------------------------------------------------

    def cut(self, run: Run, at: int) -> list[tuple[Run, Run]]:
        """Block `at` of a run is gone: what stands behind it can be hit no more. INVARIANT: eviction changes no rank
        of what is left; claims that ended behind end here from now on.

        Returns what requests held of that, the deepest first, each with what it ends in now."""
        behind: list[Run] = []
        pending = list(run.children.values())
        while pending:
            each = pending.pop()
            behind.append(each)
            pending += each.children.values()
        if at == 0:
            behind.insert(0, run)
        shortened = [(each, self._remove(each)) for each in reversed(behind)]
        if at:
            keys, sides = run.hashes[at:], run.ids[at:]
            self._gone(run, keys, sides)
            del run.hashes[at:]
            del run.ids[at:]
            shortened.append((run, run))
        return [(gone, left) for gone, left in shortened if gone.refs]

    def emptied(self) -> list[Mark]:
        """Claims whose whole prefix is gone, since this was asked last."""
        emptied, self._eviction.emptied = self._eviction.emptied, []
        return emptied

    def _remove(self, run: Run) -> Run:
        parent = run.parent
        assert parent is not None
        self._gone(run, run.hashes, run.ids)
        self._eviction.remove(run)
        return parent

    def _gone(self, run: Run, keys: Sequence[Any], sides: Sequence[Any]) -> None:
        if run.rank >= PROTECTED:
            self.tier.protected -= len(keys)
        self._ranked.assign(_flat(keys, sides), None)


def _blocks(run: Run) -> Sequence[int]:
    return _flat(run.hashes, run.ids)


def _flat(keys: Sequence[Any], sides: Sequence[Any]) -> Sequence[int]:
    """Ids of a stretch of prompt in all groups, to be read at once."""
    if not sides:
        return keys
    ids = list(keys)
    for beside in sides:
        ids += beside
    return ids
