"""How pauses end, from those that were seen: some by a return, some for good, some not yet as far as was seen.

A pause that ended by a return says when. One whose owner's life is over will not return: it competes with the returns.
One that was lost sight of, or that is still open, says only that it lasted that long, so it counts up to there and no
further. The chance of a return by an age is the cumulative incidence of Aalen and Johansen (Scand. J. Statist. 5,
1978); where nothing competes that is one minus the survival function of Kaplan and Meier (JASA 53, 1958), and where
nothing is lost sight of, the plain share. All ages and times are in seconds. Made by `durations`.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from kvpolicy.workflow.sample import Rows

# Beyond all that was seen stands what recency alone says: a chance of RATE / (age + AGE) a second (as in `hazard`).
RECENCY_AGE_S = 4.0
RECENCY_RATE = 0.5
_ROUNDING = 1e-9


class Survival:
    """What was seen of the pauses that are over, ready to be asked."""

    __slots__ = ("_ages", "_at_risk", "_ended", "_last", "_returned")

    def __init__(self, returned: Rows, ended: Rows, unknown: Rows) -> None:
        steps: dict[float, list[float]] = {}
        for kind, (ages, weights) in enumerate((returned, ended, unknown)):
            for age, weight in zip(ages, weights, strict=True):
                steps.setdefault(age, [0.0, 0.0, 0.0])[kind] += weight
        self._ages = sorted(steps)
        self._returned = [steps[age][0] for age in self._ages]
        self._ended = [steps[age][1] for age in self._ages]
        self._last = self._ages[-1] if self._ages else 0.0
        self._at_risk: list[float] = []  # weight of those that lasted at least so long
        left = 0.0
        for age in reversed(self._ages):
            left += sum(steps[age])
            self._at_risk.append(left)
        self._at_risk.reverse()

    def after(self, waited: float, open_since: Sequence[float] = (), now: float = 0.0) -> After:
        """What follows for a pause that has lasted `waited`. open_since: when those began that are still open, rising;
        they have lasted until `now`."""
        first = open_since[0] if open_since else math.inf
        alive, returned, ended = 1.0, 0.0, 0.0
        ages: list[float] = []
        shares: list[float] = []
        for index in range(bisect_right(self._ages, waited), len(self._ages)):
            age, returns, ends = self._ages[index], self._returned[index], self._ended[index]
            if not returns and not ends:
                continue
            at_risk = self._at_risk[index]
            # One rule for all: open for an age is what began no later than that before now, to a tick of the clock.
            if first <= now - age:
                at_risk += bisect_right(open_since, now - age)
            returned += alive * returns / at_risk
            ended += alive * ends / at_risk
            alive *= max(0.0, at_risk - returns - ends) / at_risk
            ages.append(age)
            shares.append(returned)
        return After(waited, max(self._last, now - first, waited), ages, shares, alive, ended)


class After:
    """The rest of a pause that has lasted `waited`.

    ages, shares: by each age, the chance that it has returned. alive: that it has neither returned nor ended by the
    last age of which anything was seen; ended: that it has ended for good by then.
    """

    __slots__ = ("_ages", "_alive", "_ended", "_last", "_shares", "_waited")

    def __init__(
        self, waited: float, last: float, ages: list[float], shares: list[float], alive: float, ended: float
    ) -> None:
        self._waited, self._last, self._ages, self._shares = waited, last, ages, shares
        self._alive, self._ended = alive, ended

    @property
    def known(self) -> bool:
        """Whether any pause was seen to last longer."""
        return self._last > self._waited

    def return_probability(self, within: float = math.inf) -> float:
        """P(return within the next `within` seconds), as far as was seen: a return later than that counts as none."""
        index = bisect_right(self._ages, self._waited + within)
        return min(1.0, self._shares[index - 1]) if index else 0.0

    def remaining(self) -> float:
        """Median of what is left, of those that do not end for good. Where fewer than half of them were seen to
        return, the rest returns as recency says: the longer it has waited, the longer it will."""
        # INVARIANT: waited + remaining never falls as waited grows (rounding apart).
        returned = self._shares[-1] if self._shares else 0.0
        half = (1.0 - self._ended) / 2.0
        if self._shares and returned >= half - _ROUNDING > 0.0:
            return self._ages[bisect_left(self._shares, half - _ROUNDING)] - self._waited
        stays = 1.0 - (half - returned) / self._alive if half > _ROUNDING else 0.5
        age = (self._last + RECENCY_AGE_S) / math.pow(stays, 1.0 / RECENCY_RATE) - RECENCY_AGE_S
        return age - self._waited


__all__ = ["RECENCY_AGE_S", "RECENCY_RATE", "After", "Survival"]
