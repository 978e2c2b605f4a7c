"""Many durations in little room: the logarithmic bins of DDSketch (Masson, Rim, Lee, VLDB 12(12), 2019).

The mapping of durations to bins and the store of their weights are those of the library `ddsketch`, which is imported
when the first sketch is made. A duration that is answered differs from the one that was told by at most `ACCURACY` of
it, between a microsecond and 30 days; shorter ones are 0, longer ones are 30 days. The bins cover all of that, so the
store never has to give accuracy up.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from functools import cache
from itertools import accumulate, compress
from typing import TYPE_CHECKING

from kvpolicy.workflow.sample import LEAST, Rows

if TYPE_CHECKING:
    from ddsketch import CollapsingLowestDenseStore, LogarithmicMapping

ACCURACY = 0.02
SHORTEST_S, LONGEST_S = 1e-6, 30 * 86400.0
_BINS = 1024  # 717 cover the range


class Sketch:
    """Weights of durations by logarithmic bins."""

    __slots__ = ("_none", "_rows", "_store", "_sums")

    def __init__(self) -> None:
        self._store = _empty()
        self._none = 0.0  # weight of those of no length
        self._rows: Rows | None = None
        self._sums: list[float] | None = None  # of weights up to and with each bin of the store

    def add(self, seconds: float, weight: float = 1.0) -> None:
        """Take one more."""
        if seconds < SHORTEST_S:
            self._none += weight
        else:
            self._store.add(_bins().mapping.key(min(seconds, LONGEST_S)), weight)
        self._rows = self._sums = None

    def scale(self, factor: float) -> None:
        """All weigh `factor` of what they did; what weighs next to nothing is dropped."""
        bins, self._none = self.bins(), self._none * factor
        store = self._store = _empty()
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
        total = self.total
        if not total:
            return None
        if self._sums is None:
            self._sums = list(accumulate(self._store.bins, initial=self._none))
        index = bisect_left(self._sums, rank * total / 100.0)
        return 0.0 if index == 0 else _bins().values[self._store.offset + index - 1 - _bins().first]

    def rows(self) -> Rows:
        """A duration for every bin that holds any, rising, and what it weighs; not to be changed."""
        if self._rows is None:
            self._rows = self._pairs(_bins().values)
        return self._rows

    def ceilings(self) -> Rows:
        """As `rows`, with the upper ends of the bins: no duration in a bin is longer."""
        return self._pairs(_bins().ceilings)

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
        made, known = cls(), _bins()
        made._none = none
        for key, weight in sorted(bins.items()):
            made._store.add(min(max(key, known.first), known.last), weight)
        return made

    def _pairs(self, durations: list[float]) -> Rows:
        """Durations by bin, and weights, of the bins that hold any."""
        weights: list[float] = self._store.bins
        start = self._store.offset - _bins().first
        if start < 0:  # the store's first bins lie below all durations
            weights, start = weights[-start:], 0
        found, held = list(compress(durations[start:], weights)), list(compress(weights, weights))
        return ([0.0, *found], [self._none, *held]) if self._none else (found, held)


class _Bins:
    """The bins that durations fall into: the library's mapping, the first and the last, and of each what the library
    says for it and its upper end."""

    def __init__(self, mapping: LogarithmicMapping) -> None:
        self.mapping = mapping
        self.first, self.last = mapping.key(SHORTEST_S), mapping.key(LONGEST_S)
        self.values = [mapping.value(key) for key in range(self.first, self.last + 1)]
        self.ceilings = [value * (1.0 + mapping.gamma) / 2.0 for value in self.values]


@cache
def _bins() -> _Bins:
    from ddsketch import LogarithmicMapping  # few tools are called often enough to need it

    return _Bins(LogarithmicMapping(ACCURACY))


def _empty() -> CollapsingLowestDenseStore:
    from ddsketch import CollapsingLowestDenseStore

    return CollapsingLowestDenseStore(_BINS)
