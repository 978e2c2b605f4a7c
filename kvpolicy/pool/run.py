"""A run: consecutive blocks of one prompt that share everything the pool knows of them. The node of the radix tree.

All blocks of a run have one rank, one release number, one set of holders and one tier, so whatever is done to them
is done once. A run ends where that stops being true: where prompts part, where a request or a mark ends, where
the tier changes. Runs are made by `pool.tree`; the identity of a run is that of its END, so that a mark, a lease or
a standing in the order stays valid when its run is split or merged.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import TYPE_CHECKING

from kvpolicy.claims.strength import DEFAULT

if TYPE_CHECKING:
    from kvpolicy.pool.mark import Mark
    from kvpolicy.pool.order import Standing
    from kvpolicy.pool.tier import Tier

BlockHash = Hashable
_LONG_AGO = -math.inf  # one object for all runs
ROOT_RANK = 1_000  # above every strength: the empty prefix caps nothing


class Run:
    """Blocks `start … start + len(hashes)` of a prompt, all resident in `tier` as the physical blocks `ids`.

    parent, children: the tree; a child is found by its first hash. below: how many children are in the same tier.
    refs: requests that hold it (those that end here or behind). release, released_at: number and time of the
    release that left it unheld. marks: the claims that end here; listened: those of them that hear of its release.
    counts: how many marks here and children have which strength; claimed: the strongest of them, None without a claim.
    own: the rank it keeps when nothing claims it. rank: the one that counts. before, before_at: the rank it had when
    the instant `before_at` began. ready_at: when the last transfer of its blocks ends. standing: its place in the
    tier's order, None while it may not leave.
    """

    __slots__ = (
        "before",
        "before_at",
        "below",
        "children",
        "claimed",
        "counts",
        "hashes",
        "ids",
        "listened",
        "marks",
        "own",
        "parent",
        "rank",
        "ready_at",
        "refs",
        "release",
        "released_at",
        "standing",
        "start",
        "tier",
    )

    def __init__(self, hashes: list[BlockHash], ids: list[int], start: int, parent: Run | None, tier: Tier) -> None:
        self.hashes = hashes
        self.ids = ids
        self.start = start
        self.parent = parent
        self.tier = tier
        self.children: dict[BlockHash, Run] = {}
        self.below = 0
        self.refs = 0
        self.release = 0
        self.released_at = math.nan
        self.marks: dict[Mark, None] | None = None
        self.listened: dict[Mark, None] | None = None
        self.counts: dict[int, int] | None = None
        self.claimed: int | None = None
        self.own = DEFAULT
        self.rank = DEFAULT
        self.before = DEFAULT
        self.before_at = math.nan  # equal to no instant
        self.ready_at = _LONG_AGO
        self.standing: Standing | None = None

    @property
    def end(self) -> int:
        """Length in blocks of the prefix that ends with this run."""
        return self.start + len(self.hashes)

    def told(self) -> list[Mark]:
        """The marks here that hear of its release, in the order in which they came here. Their number is what it costs,
        not that of all marks."""
        listened = self.listened
        if listened is None:
            return []
        return sorted(listened, key=lambda mark: mark.turn) if len(listened) > 1 else list(listened)

    def began(self, now: float) -> int:
        """The rank it had when the instant `now` began; the default once a request has used it in that instant."""
        return self.before if self.before_at == now else self.rank


def root(tier: Tier) -> Run:
    """The empty prefix. Held for ever, so that it is never evicted."""
    run = Run([], [], 0, None, tier)
    run.refs = 1
    run.rank = ROOT_RANK
    return run
