"""The radix tree of runs: finding, splitting, merging and attaching them. Structure only; ranks are `pool.ranks`.

Where a request and a run part, the run is split; `merge` undoes it at a release, once both halves are alike again.
Comparing slices of hashes lets the interpreter do a whole run at once.
"""

from __future__ import annotations

from collections.abc import Sequence

from kvpolicy.claims.strength import DEFAULT
from kvpolicy.pool.run import BlockHash, Run

# Longest run. It bounds what one split or merge copies, so that no step costs more in a larger pool.
LONGEST = 4096


def as_list(hashes: Sequence[BlockHash]) -> list[BlockHash]:
    """Hashes as the list that the tree compares slices of; a list is taken as it is and not changed."""
    return hashes if type(hashes) is list else list(hashes)


def common(run: Run, hashes: list[BlockHash], at: int) -> int:
    """How many blocks of `run` are the same as those of `hashes` from `at` on. O(blocks), by halving."""
    part = run.hashes
    low, high = 0, min(len(part), len(hashes) - at)
    if part[:high] == hashes[at : at + high]:
        return high
    while high - low > 1:  # part[:low] is known to be the same, part[:high] to differ
        middle = (low + high) // 2
        if part[low:middle] == hashes[at + low : at + middle]:
            low = middle
        else:
            high = middle
    return low


def locate(root: Run, hashes: list[BlockHash]) -> tuple[Run, int]:
    """Leading resident blocks of a prompt, and the run that the last of them lies in. Touches nothing."""
    at, total, run = 0, len(hashes), root
    while at < total:
        child = run.children.get(hashes[at])
        if child is None:
            break
        same = common(child, hashes, at)
        at += same
        run = child
        if same < len(child.hashes):
            break
    return run, at


def split(run: Run, at: int) -> Run:
    """Divides `run` before its block `at` (0 < at < length). Returns the new first half; `run` stays the end."""
    hashes, ids, parent = run.hashes, run.ids, run.parent
    assert parent is not None
    head = Run(hashes, ids, run.start, parent, run.tier)
    run.hashes, run.ids = hashes[at:], ids[at:]
    del hashes[at:]
    del ids[at:]
    parent.children[hashes[0]] = head
    head.children = {run.hashes[0]: run}
    head.below = 1
    head.refs = run.refs
    head.release = run.release
    head.released_at = run.released_at
    head.claimed = run.claimed
    if run.claimed is not None:
        head.counts = {run.claimed: 1}
    head.own = run.own
    head.rank = run.rank
    head.before = run.before
    head.before_at = run.before_at
    head.ready_at = run.ready_at
    run.parent = head
    run.start += at
    return head


def mergeable(head: Run, run: Run, now: float) -> bool:
    """Whether `run` is all that follows `head` and nothing tells their blocks apart, now or later in this instant."""
    return (
        len(head.children) == 1
        and head.release == run.release
        and head.rank == run.rank
        and not head.marks
        and not head.refs
        and not run.refs
        and head.tier is run.tier
        and (head.claimed is not None or head.own == run.own)
        and head.began(now) == run.began(now)
        and (head.ready_at == run.ready_at or (head.ready_at <= now and run.ready_at <= now))
        and len(head.hashes) + len(run.hashes) <= LONGEST
    )


def merge(head: Run, run: Run) -> None:
    """Puts the blocks of `head` in front of `run`, its only child; `head` is no more."""
    head.hashes += run.hashes
    head.ids += run.ids
    run.hashes, run.ids = head.hashes, head.ids
    run.start = head.start
    run.parent = parent = head.parent
    assert parent is not None
    parent.children[run.hashes[0]] = run
    head.parent = None


def extendable(run: Run, count: int, now: float) -> bool:
    """Whether `count` more blocks of a request that ends with `run` may stand in it: it alone holds the run, and
    nothing tells their blocks apart."""
    return (
        run.refs == 1
        and run.parent is not None
        and not run.children
        and not run.marks
        and run.own == DEFAULT
        and run.began(now) == DEFAULT
        and len(run.hashes) + count <= LONGEST
    )


def attach(parent: Run, hashes: list[BlockHash], ids: list[int], now: float) -> Run:
    """New runs behind `parent`, in its tier, held by the request that just stored them. Returns the last."""
    for at in range(0, len(hashes), LONGEST):
        some = hashes[at : at + LONGEST]
        run = Run(some, ids[at : at + LONGEST], parent.start + len(parent.hashes), parent, parent.tier)
        run.refs = 1
        run.rank = min(DEFAULT, parent.rank)
        run.before_at = now
        parent.children[some[0]] = run
        parent.below += 1
        parent = run
    return parent


def at_length(run: Run, length: int) -> Run:
    """The run that holds block `length - 1` on the path that ends at `run`; `run` itself where it is shorter."""
    while run.start >= length and run.parent is not None:
        run = run.parent
    return run
