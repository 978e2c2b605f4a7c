"""Observed durations as they came, smallest first, each with what it weighs: exact, for as long as they are few.

`durations` keeps one a kind of ending and hands it over to a `sketch.Sketch`, which answers the same questions, when
there are many.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from itertools import accumulate

LEAST = 2.0**-20  # what weighs less is dropped

Rows = tuple[list[float], list[float]]  # durations in seconds, rising, and what each weighs


class Sample:
    """Durations in seconds and their weights, exact. A weight is a power of two, so that sums of them are exact."""

    __slots__ = ("_even", "_sums", "_values", "_weights")

    def __init__(self) -> None:
        self._values: list[float] = []
        self._weights: list[float] = []
        self._even = True  # all weigh 1
        self._sums: list[float] | None = None  # of weights up to and with each

    def __len__(self) -> int:
        """How many are kept."""
        return len(self._values)

    def add(self, seconds: float, weight: float = 1.0) -> None:
        """Take one more."""
        index = bisect_right(self._values, seconds)
        self._values.insert(index, seconds)
        self._weights.insert(index, weight)
        self._even = self._even and weight == 1.0
        self._sums = None

    def scale(self, factor: float) -> None:
        """All weigh `factor` of what they did; what weighs next to nothing is dropped."""
        kept = [(v, w * factor) for v, w in zip(self._values, self._weights, strict=True) if w * factor >= LEAST]
        self._values, self._weights = [v for v, _ in kept], [w for _, w in kept]
        self._even = not kept
        self._sums = None

    @property
    def total(self) -> float:
        """The sum of weights."""
        return float(len(self._values)) if self._even else math.fsum(self._weights)

    def percentile(self, rank: int) -> float | None:
        """Nearest rank: the smallest duration such that it and the shorter ones are at least `rank` % of the weight."""
        count = len(self._values)
        if not count:
            return None
        if self._even:
            return self._values[max(0, math.ceil(rank * count / 100) - 1)]
        if self._sums is None:
            self._sums = list(accumulate(self._weights))
        return self._values[min(count - 1, bisect_left(self._sums, rank * self._sums[-1] / 100.0))]

    def rows(self) -> Rows:
        """The durations and their weights; not to be changed."""
        return self._values, self._weights

    def ceilings(self) -> Rows:
        """As `rows`: no duration is longer than it says."""
        return self.rows()
