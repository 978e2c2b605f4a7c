"""Strengths become ranks: a run counts as its strongest claim at or behind it, and without one as what it had left.

Source: the radix tree with counts per strength of the design, "When a plan is read again". A change climbs only
while it changes the strongest, so re-ranking costs runs on the way up, never blocks.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heapify, heappop, heappush

from kvpolicy.claims.strength import DEFAULT, PROTECTED
from kvpolicy.pool.run import Run


def recount(run: Run, old: int | None, new: int | None, now: float) -> None:
    """At `run` one claim of strength `old` leaves and one of `new` comes (None: none)."""
    changed: list[Run] = []
    while run.parent is not None:
        was = run.claimed
        top = _count(run, old, new)
        if top == was:
            break
        _claim(run, top, now)
        changed.append(run)
        old, new = was, top
        run = run.parent
    _settle(changed, now)


def recount_all(changes: Iterable[tuple[Run, int | None, int | None]], now: float) -> None:
    """Many such changes at once: every run on the way is looked at once, deepest first, whatever the order given."""
    was: dict[Run, int | None] = {}
    for run, old, new in changes:
        was.setdefault(run, run.claimed)
        _replace(run, old, new)
    pending = [(-run.start, id(run), run) for run in was]
    heapify(pending)
    changed: list[Run] = []
    while pending:
        run = heappop(pending)[2]
        before, top = run.claimed, max(run.counts) if run.counts else None
        if top == before or run.parent is None:
            continue
        _claim(run, top, now)
        changed.append(run)
        parent = run.parent
        if parent.parent is not None:
            if parent not in was:
                was[parent] = parent.claimed
                heappush(pending, (-parent.start, id(parent), parent))
            _replace(parent, before, top)
    _settle(changed, now)


def protectors(run: Run | None) -> tuple[Run | None, int]:
    """The run that a mark's prefix ends with, and how many protect its last block: marks there, and children with any
    at or behind them. O(ranks met there)."""
    counts = None if run is None else run.counts
    return run, sum(n for strength, n in (counts or {}).items() if strength >= PROTECTED)


def use(run: Run, now: float) -> None:
    """A request uses the run: what its blocks lost before is forgotten, also for a claim that ends in this instant."""
    parent = run.parent
    assert parent is not None
    run.own = DEFAULT
    if run.claimed is None:
        rank = min(DEFAULT, parent.rank)
        if rank != run.rank:
            set_rank(run, rank, now)
    run.before = DEFAULT
    run.before_at = now


def set_rank(run: Run, rank: int, now: float) -> None:
    """Gives `run` a rank, and hands it on to the unclaimed runs behind it as far as it caps them.

    Only a rank below the default can cap, so the runs behind are looked at in that case alone.
    """
    pending = [(run, rank)]
    while pending:
        run, rank = pending.pop()
        old = run.rank
        if run.before_at != now:
            run.before = old
            run.before_at = now
        run.rank = rank
        if (old >= PROTECTED) != (rank >= PROTECTED):
            run.tier.protected += len(run.hashes) if rank >= PROTECTED else -len(run.hashes)
        if run.standing is not None:
            run.tier.order.put(run)
        if (rank < DEFAULT or old < DEFAULT) and run.children:
            for child in run.children.values():
                if child.claimed is None:
                    capped = min(child.own, rank)
                    if capped != child.rank:
                        pending.append((child, capped))


def _replace(run: Run, old: int | None, new: int | None) -> None:
    counts = run.counts
    if counts is None:
        counts = run.counts = {}
    if new is not None:
        counts[new] = counts.get(new, 0) + 1
    if old is not None:
        if counts[old] == 1:
            del counts[old]
        else:
            counts[old] -= 1


def _count(run: Run, old: int | None, new: int | None) -> int | None:
    """Replaces one strength and returns the strongest left."""
    _replace(run, old, new)
    was, counts = run.claimed, run.counts
    assert counts is not None
    if new is not None and (was is None or new >= was):
        return new
    if was in counts:
        return was
    return max(counts) if counts else None


def _claim(run: Run, strength: int | None, now: float) -> None:
    # INVARIANT: lapsing never raises. What a block falls back to is what it had when this instant began.
    if strength is None:
        run.own = min(DEFAULT, run.began(now))
    run.claimed = strength


def _settle(changed: list[Run], now: float) -> None:
    """Ranks of runs whose claims changed, those nearest the root first: an unclaimed run needs its parent's rank."""
    for run in reversed(changed):
        parent = run.parent
        assert parent is not None
        rank = min(run.own, parent.rank) if run.claimed is None else run.claimed
        if rank != run.rank:
            set_rank(run, rank, now)
