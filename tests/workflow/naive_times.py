"""Learned times worked out from all that was ever told, by definition, in fractions: a series must agree with it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from kvpolicy.workflow.durations import ENDED, RETURNED

Told = tuple[float, float, str]  # seconds, when it was over, how
Weighed = list[tuple[Fraction, Fraction, str]]  # seconds, weight, how


def weighed(told: Sequence[Told], half_life: float) -> Weighed:
    """What each weighs now: half for every half-life, counted from the first, that has passed since it was over."""
    if not told:
        return []
    first, passed, at_each = told[0][1], 0, []
    for _, at, _ in told:
        passed = max(passed, math.floor((at - first) / half_life))
        at_each.append(passed)
    rows = []
    for (seconds, _, way), then in zip(told, at_each, strict=True):
        rows.append((Fraction(seconds), Fraction(1, 2 ** (passed - then)), way))
    return [row for row in rows if row[1] >= Fraction(1, 2**20)]


def percentile(rows: Weighed, rank: int) -> Fraction | None:
    """Nearest rank over the durations that ended by a return."""
    returned = sorted((s, w) for s, w, way in rows if way == RETURNED)
    total, passed = sum((w for _, w in returned), Fraction(0)), Fraction(0)
    for seconds, weight in returned:
        passed += weight
        if passed * 100 >= rank * total:
            return seconds
    return None


def incidence(
    rows: Weighed, waited: float, within: float, open_ages: Sequence[float] = (), way: str = RETURNED
) -> Fraction:
    """Aalen and Johansen: the chance to have ended in this way by `waited + within`, given `waited`."""
    alive, share = Fraction(1), Fraction(0)
    after = sorted({s for s, _, how in rows if s > waited and how in (RETURNED, ENDED)})
    for age in after:
        if age > waited + within:
            break
        at_risk = sum((w for s, w, _ in rows if s >= age), Fraction(0)) + sum(a >= age for a in open_ages)
        here = {how: sum((w for s, w, h in rows if s == age and h == how), Fraction(0)) for how in (RETURNED, ENDED)}
        share += alive * here[way] / at_risk
        alive *= 1 - (here[RETURNED] + here[ENDED]) / at_risk
    return share


def longest(rows: Weighed, open_ages: Sequence[float]) -> float:
    """The longest pause of which anything was seen."""
    return max((*(float(s) for s, _, _ in rows), *open_ages), default=0.0)


def remaining(rows: Weighed, waited: float, open_ages: Sequence[float] = ()) -> float | None:
    """The median of what is left, of those that do not end for good; beyond all that was seen, as recency says."""
    if not any(way == RETURNED for _, _, way in rows):
        return None
    ended = incidence(rows, waited, math.inf, open_ages, ENDED)
    half = (1 - ended) / 2
    for age in sorted({s for s, _, way in rows if way == RETURNED and s > waited}):
        if half and incidence(rows, waited, float(age) - waited, open_ages) >= half:
            return float(age) - waited
    returned = incidence(rows, waited, math.inf, open_ages)
    alive = 1 - ended - returned
    stays = 1 - (half - returned) / alive if half else Fraction(1, 2)  # of those that are still there
    last = max(longest(rows, open_ages), waited)
    # The chance to stay falls as the square root of (last + 4) / (age + 4).
    return (last + 4) / float(stays) ** 2 - 4 - waited
