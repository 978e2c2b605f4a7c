"""Looking without touching: one block, the order of eviction, a request's physical blocks."""

from __future__ import annotations

from heapq import heapify, heappop, heappush

from kvpolicy.claims.strength import DROPPED, PROTECTED
from kvpolicy.pool.lease import BlockView
from kvpolicy.pool.mark import Mark
from kvpolicy.pool.run import BlockHash, Run
from kvpolicy.pool.tier import Tier
from kvpolicy.pool.tree import common


def block(root: Run, hashes: list[BlockHash], index: int, now: float) -> BlockView | None:
    """Block `index` of a prompt; None where the prompt is not resident that far."""
    run, at = root, 0
    while at <= index < len(hashes):
        child = run.children.get(hashes[at])
        if child is None:
            return None
        same = common(child, hashes, at)
        if index < at + same:
            return BlockView(
                rank=child.rank,
                protected=child.rank >= PROTECTED,
                dropped=child.rank == DROPPED,
                tier=child.tier.name,
                held=child.refs,
                marks=tuple(covering(child)),
                block=child.ids[index - at],
                state=_state(child, now),
                last_release=None if child.refs else child.released_at,
            )
        if same < len(child.hashes):
            return None
        run, at = child, at + same
    return None


def _state(run: Run, now: float) -> str:
    if run.ready_at <= now:
        return "resident"
    return "offloading" if run.tier.level else "loading"


def covering(run: Run) -> list[Mark]:
    """Marks at the run or behind it."""
    found: list[Mark] = []
    pending = [run]
    while pending:
        run = pending.pop()
        found += run.marks or ()
        pending += run.children.values()
    return found


def order(tier: Tier, count: int | None) -> list[tuple[BlockHash, int]]:
    """(hash, physical id) of the next `count` blocks to leave `tier`, were nothing to change. O(runs looked at)."""
    left = tier.cached if count is None else count
    heap = [(rank, release, ticket, run) for rank, release, ticket, run in tier.order.standings()]
    heapify(heap)
    gone: dict[Run, int] = {}
    ticket = tier.order.tickets
    found: list[tuple[BlockHash, int]] = []
    while heap and left > 0:
        run = heappop(heap)[3]
        size = min(left, len(run.hashes))
        found += zip(run.hashes[: -size - 1 : -1], run.ids[: -size - 1 : -1], strict=True)
        left -= size
        parent = run.parent
        assert parent is not None
        gone[parent] = gone.get(parent, 0) + 1
        if parent.tier is tier and not parent.refs and gone[parent] == parent.below:
            ticket += 1
            heappush(heap, (parent.rank, parent.release, ticket, parent))
    return found


def ids(run: Run) -> list[int]:
    """Physical blocks of the prefix that ends with `run`, head first."""
    parts = []
    while run.parent is not None:
        parts.append(run.ids)
        run = run.parent
    return [block for part in reversed(parts) for block in part]


def count(root: Run) -> int:
    """Runs in the tree, the root not counted."""
    total, pending = 0, [root]
    while pending:
        children = pending.pop().children.values()
        total += len(children)
        pending += children
    return total


def count_from(root: Run, tier: Tier, strength: int) -> int:
    """Blocks of `tier` whose rank is at least `strength`. A prompt's ranks never rise, so weaker ends are not entered
    where the tier is the first one. O(runs)."""
    total, pending = 0, [root]
    while pending:
        for run in pending.pop().children.values():
            if run.rank >= strength:
                total += len(run.hashes) if run.tier is tier else 0
                pending.append(run)
    return total
