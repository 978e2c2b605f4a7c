"""Looking without touching: one block, the order of eviction, a request's physical blocks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from heapq import heapify, heappop, heappush

from kvpolicy.claims.strength import DROPPED, PROTECTED
from kvpolicy.pool.lease import BlockView
from kvpolicy.pool.mark import Mark
from kvpolicy.pool.run import BlockHash, Run
from kvpolicy.pool.tier import Tier
from kvpolicy.pool.tree import common


def block(root: Run, hashes: list[BlockHash], index: int, now: float) -> BlockView | None:
    """Block `index` of a prompt; None where the prompt is not resident that far."""
    view = None
    start = 0
    for end, run in along(root, hashes, index + 1):
        if start <= index < end:
            view = _view(run, index - start, now)
        start = end
    return view


def stretches(root: Run, hashes: list[BlockHash], count: int, now: float) -> Iterator[tuple[int, BlockView]]:
    """The runs that the first `count` blocks of a prompt lie in: where each ends, and its first block, from which the
    others differ in their physical place alone."""
    for end, run in along(root, hashes, count):
        yield end, _view(run, 0, now)


def along(root: Run, hashes: list[BlockHash], count: int) -> Iterator[tuple[int, Run]]:
    """The resident runs that a prompt's first `count` blocks lie in, each with the place of the block behind it. The
    walk follows runs and compares each block once."""
    run, at = root, 0
    while at < min(count, len(hashes)):
        child = run.children.get(hashes[at])
        if child is None:
            return
        same = common(child, hashes, at)
        yield at + same, child
        if same < len(child.hashes):
            return
        run, at = child, at + same


def survey(root: Run, hashes: list[BlockHash], count: int) -> tuple[int, int, int]:
    """Of the first `count` blocks of a prompt: the leading ones resident, those of them that requests hold, those of
    them on the first tier."""
    resident = held = first = 0
    for reach, run in along(root, hashes, count):
        resident = end = min(reach, count)
        if run.refs:
            held = end
        if not run.tier.level:
            first = end
    return resident, held, first


def _view(run: Run, place: int, now: float) -> BlockView:
    return BlockView(
        rank=run.rank,
        protected=run.rank >= PROTECTED,
        dropped=run.rank == DROPPED,
        tier=run.tier.name,
        held=run.refs,
        marks=tuple(covering(run)),
        block=run.ids[place],
        state=_state(run, now),
        last_release=None if run.refs else run.released_at,
    )


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


def residents(root: Run, most: int, now: float) -> Iterator[tuple[BlockHash, BlockView]]:
    """Up to `most` resident blocks, each prompt head first. Marks behind a run are gathered once for all its blocks."""
    pending = list(root.children.values())
    while pending and most > 0:
        run = pending.pop()
        view = _view(run, 0, now)
        for place, block_hash in enumerate(run.hashes[:most]):
            yield block_hash, replace(view, block=run.ids[place])
        most -= len(run.hashes)
        pending += run.children.values()


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
