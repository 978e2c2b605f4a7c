"""Ladders: how far down a line's blocks may sink by now, and what is to be brought up again.

A block wants the highest tier that any claim covering it wants. So, as with ranks, only the stairs count: from the
longest claim to shorter ones, each wanting a higher tier than all behind it. Called by steering whenever a line was
planned or its time came; works on claims, and the pool moves the blocks.
"""

from __future__ import annotations

from math import inf

from kvpolicy import words
from kvpolicy.claims.claim import Claim
from kvpolicy.claims.line import Line
from kvpolicy.claims.ranks import Mark, Tiers
from kvpolicy.directive import TierRung

_LEVELS = {tier: level for level, tier in enumerate(words.TIERS)}
_NO_WISH = len(words.TIERS)


def step(line: Line, pool: Tiers, now: float) -> float:
    """Bring the tiers of a line's blocks in line with its ladders. Returns the time of the next rung, inf for none."""
    for mark in line.steps:
        pool.unmark(mark, now)
    line.steps = []
    if not line.marks or not any(map(_speaks, line.claims)):
        return inf
    soonest = inf
    living = line.living(pool, now)
    stairs: list[tuple[int, int]] = []  # length in blocks, level: longest first, each higher than the one before
    for length, _, claim in reversed(living):
        rungs = None if claim.directive is None else claim.directive.tier
        level = 0
        if rungs:
            released = pool.last_release(line.marks[0], length)
            if released is not None:
                level, after = _level(rungs, now - released)
                soonest = min(soonest, released + after)
        if not stairs or level < stairs[-1][1]:
            stairs.append((length, level))
    at: dict[int, Mark] = {}
    for each in line.marks:
        each.ceiling = _NO_WISH
        each.admit = any(c.directive is None or c.directive.admit for n, _, c in living if n >= each.length)
        at[each.length] = each
    for length, level in stairs:
        mark = at.get(length) or pool.mark(line.marks[0], length, None, line, now)
        if length not in at:
            at[length] = mark
            line.steps.append(mark)
        mark.ceiling = level
    for length, level in stairs:
        if level and length:
            pool.demote(at[length], words.TIERS[level], now)
    return soonest


def bring_up(line: Line, pool: Tiers, now: float) -> int:
    """Prefetch what the line's claims ask for by now. Blocks moved."""
    wanted = [
        min(claim.length, line.length)
        for claim in line.claims
        if claim.directive is not None and claim.directive.prefetch is True and not claim.ended
    ]
    if not wanted or not max(wanted):
        return 0
    mark = pool.mark(line.marks[0], max(wanted), None, line, now)
    moved = pool.prefetch(mark, now)
    pool.unmark(mark, now)
    return moved


def _speaks(claim: Claim) -> bool:
    return claim.directive is not None and (bool(claim.directive.tier) or not claim.directive.admit)


def _level(rungs: tuple[TierRung, ...], idle: float) -> tuple[int, float]:
    """The level allowed after `idle` seconds, and the idle time at which the next rung comes (inf: none)."""
    level, after = 0, inf
    for rung in rungs:
        if rung.after_s <= idle:
            level = max(level, _LEVELS.get(rung.tier, 0))
        else:
            after = min(after, rung.after_s)
    return level, after
