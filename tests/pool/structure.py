"""Is the tree what it says it is? Recounts everything the pool keeps by increments."""

from __future__ import annotations

from kvpolicy.pool import Pool
from kvpolicy.pool.run import Run


def check_structure(pool: Pool) -> None:
    """Asserts that counters, counts per strength, ranks and standings agree with the tree."""
    runs: list[Run] = []
    pending = list(pool._root.children.values())
    while pending:
        run = pending.pop()
        runs.append(run)
        pending += run.children.values()
    for tier in pool.tiers:
        here = [run for run in runs if run.tier is tier]
        assert tier.cached == sum(len(run.hashes) for run in here)
        assert tier.held == sum(len(run.hashes) for run in here if run.refs)
        assert tier.protected == sum(len(run.hashes) for run in here if run.rank >= 200)
        assert tier.order.live == sum(run.standing is not None for run in here)
        assert len(tier.order.heap) <= 64 + 2 * tier.order.live + 1
        ids = [block for run in here for block in run.ids]
        assert len(ids) + tier.spare + tier.private == tier.capacity
        assert len({*ids, *tier.empty_ids()}) == len(ids) + tier.spare
    for run in runs:
        check_run(run)


def check_run(run: Run) -> None:
    assert len(run.hashes) == len(run.ids) > 0
    assert run.parent is not None and run.parent.end == run.start
    assert run.parent.children[run.hashes[0]] is run
    assert run.parent.parent is None or run.parent.refs >= run.refs >= 0
    assert run.parent.tier.level <= run.tier.level
    assert run.below == sum(child.tier is run.tier for child in run.children.values())
    strengths = [mark.strength for mark in run.marks or () if mark.strength is not None]
    strengths += [child.claimed for child in run.children.values() if child.claimed is not None]
    assert run.claimed == max(strengths, default=None)
    assert sum((run.counts or {}).values()) == len(strengths)
    assert all(strengths.count(strength) == count for strength, count in (run.counts or {}).items())
    assert run.rank == (min(run.own, run.parent.rank) if run.claimed is None else run.claimed)
    assert all(mark.run is run for mark in run.marks or ())
    assert run.listened is None or (run.listened and run.listened.keys() <= (run.marks or {}).keys())
    if run.standing is not None:
        assert not run.refs and not run.below
        assert run.standing[:2] == (run.rank, run.release)
    else:
        assert run.refs or run.below
