"""How likely a pause of one class is to end, by how long it has lasted: returns over time at risk, in steps of time.

A step is a quarter of a doubling. Within one, the chance of a return per second counts as constant: returns seen in it
over the seconds that pauses spent in it. So a pause that is still open, or whose owner is gone, counts for what it
lasted and no more, and one that will never end counts to the last step. Where a class has few pauses in a step, the
class above it speaks: it counts as `PRIOR` more pauses. Above the last class stands what recency alone says, a chance
that falls as 1 / age. Fed by `pauses`, kept by `keep`.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import pairwise

from kvpolicy.workflow.survival import RECENCY_AGE_S, RECENCY_RATE

PRIOR = 8.0  # pauses that the class above counts for
SETTLES = 32
FADES_AT = 8192.0  # pauses; then all counts of the class are halved
_STEPS_A_DOUBLING = 4
_DOUBLINGS = 17  # 2**17 s are 36 hours

EDGES: tuple[float, ...] = (
    0.0,
    0.25,
    0.5,
    *(2.0 ** (k / _STEPS_A_DOUBLING) for k in range(_DOUBLINGS * _STEPS_A_DOUBLING + 1)),
)
WIDTHS = tuple(end - start for start, end in pairwise(EDGES))
STEPS = len(WIDTHS)
_PRIORS = tuple(PRIOR * width for width in WIDTHS)
RECENCY = tuple(RECENCY_RATE / (start + width / 2 + RECENCY_AGE_S) for start, width in zip(EDGES, WIDTHS, strict=False))


class Hazard:
    """The pauses of one class. count: pauses that ended by a return, faded.

    What is read is the class as it was when it last settled: whenever it has been told a `SETTLES`th more than then. So
    an answer is worked out once for many readings, and depends on what was told, never on who read when.
    """

    __slots__ = (
        "_at_risk",
        "_densities",
        "_rates",
        "_read_at",
        "_returns",
        "_settled",
        "_settles",
        "_told",
        "above",
        "at_risk",
        "count",
        "returns",
    )

    def __init__(self, above: Hazard | None) -> None:
        self.above = above
        self.returns = [0.0] * STEPS
        self.at_risk = [0.0] * STEPS  # seconds
        self.count = 0.0
        self._returns, self._at_risk = self.returns, self.at_risk
        self._told = self._settles = self._settled = 0
        self._read_at = -1  # version
        self._rates: list[float] = []
        self._densities: dict[int, float] = {}

    def waited(self, since: float, until: float, weight: float = 1.0) -> None:
        """A pause lasted from age `since` to age `until`, seconds; weight -1 takes it back."""
        at_risk = self.at_risk
        for k in range(step_of(since), STEPS):
            start = EDGES[k]
            if start >= until:
                break
            end = EDGES[k + 1]
            if start >= since and end <= until:
                at_risk[k] += weight * WIDTHS[k]
            else:
                at_risk[k] += weight * max(0.0, min(end, until) - max(start, since))

    def ended(self, age: float) -> None:
        """A pause ended by a return at this age; `waited` has been told of its time."""
        self.returns[step_of(age)] += 1.0
        self.count += 1.0
        if self.count >= FADES_AT:
            self.count /= 2
            self.returns = [value / 2 for value in self.returns]
            self.at_risk = [value / 2 for value in self.at_risk]

    def told(self) -> None:
        """Something was told."""
        self._told += 1
        if self._told >= self._settles:
            self._settle()

    def state(self) -> tuple[float, int, dict[int, float], dict[int, float]]:
        """All there is to keep: the count, how often it was told something, returns and seconds at risk by step."""
        returns = {k: value for k, value in enumerate(self.returns) if value}
        return self.count, self._told, returns, {k: value for k, value in enumerate(self.at_risk) if value}

    def take(self, count: float, told: int, returns: Mapping[int, float], at_risk: Mapping[int, float]) -> None:
        """Be as `state` says."""
        self.count, self._told = count, told
        self.returns = [returns.get(k, 0.0) for k in range(STEPS)]
        self.at_risk = [at_risk.get(k, 0.0) for k in range(STEPS)]
        self._settle()

    def _settle(self) -> None:
        self._settles = self._told + 1 + self._told // SETTLES
        self._returns, self._at_risk = self.returns.copy(), self.at_risk.copy()
        self._settled += 1

    def version(self) -> int:
        """Grows whenever this class or one above it settles."""
        return self._settled if self.above is None else self._settled + self.above.version()

    def rates(self) -> list[float]:
        """Returns per second, by step."""
        version = self.version()
        if self._read_at != version:
            self._read_at, self._densities = version, {}
            above = RECENCY if self.above is None else self.above.rates()
            self._rates = [
                (returns + prior * rate) / (max(0.0, at_risk) + prior)
                for returns, at_risk, prior, rate in zip(self._returns, self._at_risk, _PRIORS, above, strict=True)
            ]
        return self._rates

    def density(self, age: float) -> float:
        """max over h of P(return within h) / E[seconds held within h], per second, for a pause that has lasted `age`
        (in whole steps).

        Within a step the quotient only moves towards the step's own rate, so the ends of steps are all that is tried.
        """
        first = step_of(age)
        rates = self.rates()
        best = self._densities.get(first)
        if best is None:
            best = self._densities[first] = _best(rates, first)
        return best


def foretold(rates: Sequence[float], age: float) -> float:
    """Logarithm of the probability density of a return at just this age, by returns per second in each step."""
    last = step_of(age)
    passed = sum(rate * width for rate, width in zip(rates[:last], WIDTHS, strict=False))
    return math.log(rates[last]) - passed - rates[last] * (age - EDGES[last])


def recency_density(age: float) -> float:
    """`Hazard.density` of recency alone."""
    return _RECENCY_DENSITIES[step_of(age)]


def _best(rates: Sequence[float], first: int) -> float:
    best = passed = spent = 0.0
    left = 1.0
    for k in range(first, STEPS):
        rate = rates[k]
        gone = left * -math.expm1(-rate * WIDTHS[k])
        passed += gone
        spent += gone / rate
        left -= gone
        best = max(best, passed / spent)
        if left < _LEAST:
            break
    return best


_LEAST = 1e-3  # what is left of the chance, beyond which no step can be the best


def step_of(age: float) -> int:
    """The step of an age in seconds; the last one has no end."""
    return min(bisect_right(EDGES, age), STEPS) - 1


_RECENCY_DENSITIES = tuple(_best(RECENCY, step) for step in range(STEPS))
