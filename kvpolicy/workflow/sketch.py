"""Many durations in little room: the logarithmic bins of DDSketch (Masson, Rim, Lee, VLDB 12(12), 2019).

The mapping of durations to bins and the store of their weights are those of the library `ddsketch`, which is imported
when the first sketch is made. A duration that is answered differs from the one that was told by at most `ACCURACY` of
it, between a microsecond and 30 days; shorter ones are 0, longer ones are 30 days. The bins cover all of that, so the
store never has to give accuracy up.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from itertools import accumulate
from typing import TYPE_CHECKING

from kvpolicy.workflow.sample import LEAST, Rows

if TYPE_CHECKING:
    from ddsketch import CollapsingLowestDenseStore

ACCURACY = 0.01
SHORTEST_S, LONGEST_S = 1e-6, 30 * 86400.0
_BINS = 2048  # 1433 cover the range


class Sketch:
    """Weights of durations by logarithmic bins."""

    __slots__ = ("_ceiling", "_mapping", "_none", "_rows", "_store", "_sums")

    def __init__(self) -> None:
        from ddsketch import CollapsingLowestDenseStore, LogarithmicMapping  # few tools are called so often

        self._mapping = LogarithmicMapping(ACCURACY)
        self._store: CollapsingLowestDenseStore = CollapsingLowestDenseStore(_BINS)
        self._ceiling = (1.0 + self._mapping.gamma) / 2.0  # of a bin, over what the mapping says of it
        self._none = 0.0  # weight of those of no length
        self._rows: Rows | None = None
        self._sums: list[float] | None = None

    def add(self, seconds: float, weight: float = 1.0) -> None:
        """Take one more."""
        if seconds < SHORTEST_S:
            self._none += weight
        else:
            self._store.add(self._mapping.key(min(seconds, LONGEST_S)), weight)
        self._rows = self._sums = None

    def scale(self, factor: float) -> None:
        """All weigh `factor` of what they did; what weighs next to nothing is dropped."""
        bins, self._none = self.bins(), self._none * factor
        store = self._store = type(self._store)(_BINS)
        for key, weight in bins.items():
            if weight * factor >= LEAST:
                store.add(key, weight * factor)
        self._rows = self._sums = None

    @property
    def total(self) -> float:
        """The sum of weights."""
        return float(self._store.count) + self._none

    def percentile(self, rank: int) -> float | None:
        """Nearest rank, see `Sample.percentile`; within `ACCURACY` of the exact one."""
        values, weights = self.rows()
        if not values:
            return None
        if self._sums is None:
            self._sums = [100.0 * each for each in accumulate(weights)]
        return values[min(len(values) - 1, bisect_left(self._sums, rank * self._sums[-1] / 100.0))]

    def rows(self) -> Rows:
        """A duration for every bin that holds any, rising, and what it weighs; not to be changed."""
        if self._rows is None:
            bins = self.bins()
            self._rows = [self._mapping.value(key) for key in bins], list(bins.values())
            if self._none:
                self._rows[0].insert(0, 0.0)
                self._rows[1].insert(0, self._none)
        return self._rows

    def ceilings(self) -> Rows:
        """As `rows`, with the upper ends of the bins: no duration in a bin is longer."""
        values, weights = self.rows()
        return [value * self._ceiling for value in values], weights

    def bins(self) -> dict[int, float]:
        """The weights that are not 0, by the number of their bin, rising."""
        store = self._store
        return {store.offset + index: weight for index, weight in enumerate(store.bins) if weight}

    def state(self) -> tuple[float, dict[int, float]]:
        """The weight of those of no length, and `bins`: all there is to keep."""
        return self._none, self.bins()

    @classmethod
    def of(cls, none: float, bins: Mapping[int, float]) -> Sketch:
        """The sketch with that `state`. Bins beyond the range of durations go to its ends."""
        made = cls()
        made._none = none
        first, last = made._mapping.key(SHORTEST_S), made._mapping.key(LONGEST_S)
        for key, weight in sorted(bins.items()):
            made._store.add(min(max(key, first), last), weight)
        return made
