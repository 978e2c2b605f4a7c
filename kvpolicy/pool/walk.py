"""The hot loop: a request takes hold of the leading blocks of its prompt that are resident.

Alone in its file, with `tests/bench/pool.py` beside it. Work is per run; the blocks themselves are compared,
verified and counted by slices.
"""

from __future__ import annotations

from kvpolicy.claims.strength import DEFAULT
from kvpolicy.pool.payload import verify
from kvpolicy.pool.ranks import use
from kvpolicy.pool.run import BlockHash, Run
from kvpolicy.pool.tree import common, split


def touch(run: Run, hashes: list[BlockHash], at: int, now: float, cold: list[Run]) -> tuple[Run, int]:
    """Holds what of `hashes[at:]` is resident behind `run`. Returns the last run held and the length reached.

    A run that the prompt leaves is split there. Runs found below the GPU are held where they are and added to
    `cold`, top first.
    """
    total = len(hashes)
    while at < total:
        child = run.children.get(hashes[at])
        if child is None:
            break
        part = child.hashes
        size = len(part)
        if hashes[at : at + size] != part:
            size = common(child, hashes, at)
            if size < len(part):
                child = split(child, size)
                part = child.hashes
        tier = child.tier
        verify(tier.holds, child.ids, part)
        if child.refs:
            child.refs += 1
        else:
            child.refs = 1
            tier.held += size
            if child.standing is not None:
                tier.order.drop(child)
        if child.own == DEFAULT:
            child.before = DEFAULT
            child.before_at = now
        else:
            use(child, now)
        if tier.level:
            cold.append(child)
        at += size
        run = child
    return run, at
