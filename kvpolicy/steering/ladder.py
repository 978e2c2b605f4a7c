"""Ladders: how far down a line's blocks may sink by now, and what is to be brought up again.

A block wants the highest tier that any claim covering it wants. So, as with ranks, only the stairs count: from the
longest claim to shorter ones, each wanting a higher tier than all behind it. Called by steering whenever a line was
planned or its time came; works on claims, and the pool moves the blocks.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from kvpolicy import words
from kvpolicy.claims.claim import Claim
from kvpolicy.claims.line import Line
from kvpolicy.claims.ranks import Mark, Tiers
from kvpolicy.directive import TierRung

_LEVELS = {tier: level for level, tier in enumerate(words.TIERS)}
_NO_WISH = len(words.TIERS)


def _as_stated(line: Line, claim: Claim) -> float:
    """Of a prefetch by condition: now, where it holds."""
    return -inf if claim.directive is not None and claim.directive.prefetch is True else inf


def step(line: Line, pool: Tiers, now: float, wanted_from: Callable[[Line, Claim], float] = _as_stated) -> float:
    """Bring the tiers of a line's blocks in line with its ladders and prefetches. wanted_from: when a claim wants its
    blocks back on its first rung; inf for not at all. Returns when to look again, inf for never."""
    for mark in line.steps:
        pool.unmark(mark, now)
    line.steps = []
    if not line.marks:
        return inf
    if not any(map(_speaks, line.claims)):
        for mark in line.marks:
            mark.ceiling, mark.admit = 0, True
        return inf
    living = line.living(pool, now)
    wishes = _Wishes()
    for length, _, claim in reversed(living):
        wishes.add(claim, length, pool.last_release(line.marks[0], length), wanted_from(line, claim), now)
    at: dict[int, Mark] = {}
    for each in line.marks:
        each.ceiling = _NO_WISH
        each.admit = any(c.directive is None or c.directive.admit for n, _, c in living if n >= each.length)
        at[each.length] = each
    for length, level in wishes.stairs:
        mark = at.get(length) or pool.mark(line.marks[0], length, None, line, now)
        if length not in at:
            at[length] = mark
            line.steps.append(mark)
        mark.ceiling = level
        if wishes.used:
            mark.notify = True
    for length, level in wishes.stairs:
        if level and length:
            pool.demote(at[length], words.TIERS[level], now)
    for length, level in wishes.wanted:
        mark = pool.mark(line.marks[0], length, None, line, now)
        pool.prefetch(mark, now, words.TIERS[level])
        pool.unmark(mark, now)
    return wishes.soonest


class _Wishes:
    """What a line's claims want, added from the longest to shorter ones.

    stairs: (length in blocks, level of the highest tier wanted), each higher than the one before. wanted: the same of
    what is to be brought up. soonest: when any of it changes. used: somebody's request holds a block, which is idle
    from its release on.
    """

    def __init__(self) -> None:
        self.stairs: list[tuple[int, int]] = []
        self.wanted: list[tuple[int, int]] = []
        self.soonest = inf
        self.used = False

    def add(self, claim: Claim, length: int, released: float | None, comes: float, now: float) -> None:
        """A claim that reaches `length` blocks, the last of them released at `released` (None: held), and that wants
        to be brought up from `comes` on."""
        rungs = () if claim.directive is None else claim.directive.tier or ()
        level, change = 0, comes if comes > now else inf
        if comes <= now:
            level = _LEVELS.get(rungs[0].tier, 0) if rungs else 0
            self.wanted.append((length, level))
        elif rungs and released is not None:
            level, after = _level(rungs, now - released)
            change = min(change, released + after)
        elif rungs:
            self.used = True
        self.soonest = min(self.soonest, change)
        if not self.stairs or level < self.stairs[-1][1]:
            self.stairs.append((length, level))


def _speaks(claim: Claim) -> bool:
    wish = claim.directive
    return wish is not None and (bool(wish.tier) or not wish.admit or wish.prefetch is not False)


def _level(rungs: tuple[TierRung, ...], idle: float) -> tuple[int, float]:
    """The level allowed after `idle` seconds, and the idle time at which the next rung comes (inf: none)."""
    level, after = 0, inf
    for rung in rungs:
        if rung.after_s <= idle:
            level = max(level, _LEVELS.get(rung.tier, 0))
        else:
            after = min(after, rung.after_s)
    return level, after
