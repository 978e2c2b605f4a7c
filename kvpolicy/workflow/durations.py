"""Durations of one kind of pause or step: how long it took until a return; of pauses, what was seen of those without.

`learned_times` keeps one series a tool, a node, and for humans; `signals` reads it. The first 512 are kept exactly,
more in a sketch of quantiles (`sketch`). What is old fades: with every half-life since the first duration, all that
came before weighs half, and so it does whenever there are very many. Within a half-life all weigh the same, so that
percentiles are nearest rank to the letter. Ages of open pauses count up to the time that is passed in.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Iterator

from kvpolicy.workflow.sample import Sample
from kvpolicy.workflow.sketch import Sketch
from kvpolicy.workflow.survival import After, Survival

FEW = 512  # of one series, kept exactly
FADES_AT = 8192.0  # weight of a sketched series; then all of it weighs half
HALF_LIFE_S = 86400.0

RETURNED, ENDED, UNKNOWN = "returned", "never", "unknown"  # by a return; for good; lost sight of
WAYS = (RETURNED, ENDED, UNKNOWN)
_RANKS = {"p50": 50, "p90": 90, "p95": 95}

Kept = Sample | Sketch


class Series:
    """Durations of one kind, in seconds, told with the time on the caller's clock at which they were over."""

    __slots__ = ("_after", "_began", "_best", "_halved", "_kept", "_mean", "_open", "_survival", "half_life")

    def __init__(self, half_life: float = HALF_LIFE_S) -> None:
        self.half_life = half_life
        self._kept: dict[str, Kept] = {way: Sample() for way in WAYS}
        self._open: list[float] = []  # since when, rising
        self._began: float | None = None  # the first duration
        self._halved = 0  # half-lives since then that have been applied
        self._mean: float | None = None
        self._best: list[tuple[float, float]] | None = None  # see `best_bound`
        self._survival: Survival | None = None
        self._after: tuple[float, float, After] | None = None  # the last that was asked for: waited, now, answer

    # --- what happens -------------------------------------------------------------------------------------

    def add(self, seconds: float, at: float | None = None, way: str = RETURNED) -> None:
        """A pause was over at `at` (None: no later than the last) after `seconds`; a negative or endless one is
        ignored. way: how it ended."""
        if not 0.0 <= seconds < math.inf:
            return
        self._forget_answers()
        if at is not None:
            self._fade(at)
        self._kept[way].add(seconds)
        first = self._kept[RETURNED]
        if isinstance(first, Sketch):
            if self.weight >= FADES_AT:
                self._scale(0.5)
        elif sum(len(kept) for kept in self._kept.values() if isinstance(kept, Sample)) > FEW:
            self._kept = {way: _sketched(kept) for way, kept in self._kept.items()}

    def opened(self, at: float) -> None:
        """A pause began that is open."""
        insort(self._open, at)
        self._after = None

    def closed(self, at: float) -> None:
        """The pause that began at `at` is not open any more; `add` says what became of it."""
        index = bisect_left(self._open, at)
        if index < len(self._open) and self._open[index] == at:
            del self._open[index]
            self._after = None

    def go_on_with(self, other: Series) -> None:
        """The pauses that are open in `other` are open here."""
        self._open = other._open

    @property
    def waiting(self) -> int:
        """How many pauses are open."""
        return len(self._open)

    # --- what is asked ------------------------------------------------------------------------------------

    @property
    def count(self) -> int:
        """How many durations there are, by what they weigh: those of the last half-life count whole."""
        kept = self._kept[RETURNED]
        return math.ceil(kept.total)

    @property
    def exact(self) -> bool:
        """Whether every duration is kept as it came."""
        return isinstance(self._kept[RETURNED], Sample)

    @property
    def weight(self) -> float:
        """What all that is kept weighs."""
        kept = self._kept
        return kept[RETURNED].total + kept[ENDED].total + kept[UNKNOWN].total

    @property
    def sorted(self) -> list[float]:
        """The durations, smallest first (where they are many: one a bin of the sketch); not to be changed."""
        return self._kept[RETURNED].rows()[0]

    def percentile(self, rank: int) -> float | None:
        """Nearest rank: the smallest duration that at least `rank` % do not exceed."""
        return self._kept[RETURNED].percentile(rank)

    def mean(self) -> float | None:
        """The arithmetic mean."""
        kept = self._kept[RETURNED]
        if self._mean is None and kept.total:
            values, weights = kept.rows()
            self._mean = math.fsum(v * w for v, w in zip(values, weights, strict=True)) / kept.total
        return self._mean

    def read(self, statistic: str) -> float | None:
        """`mean`, `p50`, `p90`, `p95` or `count`."""
        if statistic == "count":
            return float(self.count)
        if statistic == "mean":
            return self.mean()
        return self.percentile(_RANKS[statistic])

    def best_bound(self, gain: float) -> float:
        """argmax over t >= 0 of share(durations <= t) * gain - t, seconds; 0 where nothing is above 0.

        Only corners of the least concave curve over (duration, weight of those not longer) can be the best; they are
        found once after a new duration, and the best among them by halving. Of a sketch the upper ends of bins are
        tried, so that the share holds; what that costs is at most 4.1 % of the best t.
        """
        if self._best is None:
            self._best = list(_corners(*self._kept[RETURNED].ceilings()))
        corners, total = self._best, self._kept[RETURNED].total
        low, high = 0, len(corners) - 1
        while low < high:
            middle = (low + high) // 2
            (before, fewer), (after, more) = corners[middle], corners[middle + 1]
            if (more - fewer) * gain > (after - before) * total:
                low = middle + 1
            else:
                high = middle
        return corners[low][0]

    def return_probability(self, waited: float, within: float = math.inf, now: float = 0.0) -> float | None:
        """P(return within the next `within` seconds | none after `waited`), see `survival`. None where no pause is
        known to have lasted longer. now: for how long those have lasted that are open."""
        after = self._what_follows(waited, now)
        return after.return_probability(within) if after.known else None

    def remaining(self, waited: float, now: float = 0.0) -> float | None:
        """Median of what is left of a pause that has lasted `waited`, see `survival`; None where none has returned."""
        return self._what_follows(waited, now).remaining() if self._kept[RETURNED].total else None

    # --- to keep ------------------------------------------------------------------------------------------

    def state(self) -> tuple[dict[str, Kept], float | None, int]:
        """What there is to keep but for open pauses: durations by the way they ended, the time of the first, how many
        half-lives have been applied."""
        return self._kept, self._began, self._halved

    @classmethod
    def of(cls, kept: dict[str, Kept], began: float | None, halved: int, half_life: float = HALF_LIFE_S) -> Series:
        """The series with that `state`."""
        made = cls(half_life)
        made._kept, made._began, made._halved = kept, began, halved
        return made

    # --- inside -------------------------------------------------------------------------------------------

    def _fade(self, at: float) -> None:
        if self._began is None:
            self._began = at
        due = int((at - self._began) // self.half_life)
        if due > self._halved:
            self._scale(0.5 ** min(due - self._halved, 64))
            self._halved = due

    def _scale(self, factor: float) -> None:
        for kept in self._kept.values():
            kept.scale(factor)

    def _what_follows(self, waited: float, now: float) -> After:
        if self._survival is None:
            self._survival = Survival(*(self._kept[way].rows() for way in WAYS))
        if self._after is None or self._after[:2] != (waited, now):
            self._after = (waited, now, self._survival.after(waited, self._open, now))
        return self._after[2]

    def _forget_answers(self) -> None:
        self._mean = self._best = self._survival = self._after = None


def _sketched(kept: Kept) -> Kept:
    made = Sketch()
    for seconds, weight in zip(*kept.rows(), strict=True):
        made.add(seconds, weight)
    return made


def _corners(values: list[float], weights: list[float]) -> Iterator[tuple[float, float]]:
    """The corners of the least concave curve from (0, 0) over (duration, weight of those that are not longer)."""
    corners: list[tuple[float, float]] = [(0.0, 0.0)]
    total = 0.0
    for seconds, weight in zip(values, weights, strict=True):
        total += weight
        while len(corners) > 1:
            (x0, n0), (x1, n1) = corners[-2], corners[-1]
            if (n1 - n0) * (seconds - x0) > (total - n0) * (x1 - x0):
                break
            corners.pop()
        if seconds == corners[-1][0]:
            corners[-1] = (seconds, total)
        else:
            corners.append((seconds, total))
    yield from corners
