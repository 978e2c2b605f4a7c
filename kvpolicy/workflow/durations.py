"""Learned times: how long tools, humans and workflow steps take, per tenant.

`state` feeds them as pauses and steps end; `signals` reads them. Percentiles are nearest rank over the latest 512
durations, exact. A pause that ended without a return (the owner's life was over, or it was forgotten) is kept apart: it
is evidence that some pauses do not end, never a duration.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Iterator

LATEST = 512
_MOST_TOOLS = 1024  # names of tools kept per tenant; the longest unused leave first

TOOL, TOOLS, HUMAN, STEP = "tool.duration", "tools.duration", "human.duration", "step.duration"
_RANKS = {"p50": 50, "p90": 90, "p95": 95}


class Series:
    """Durations of one kind of pause, seconds: the latest 512, in order of arrival and sorted."""

    __slots__ = ("_best", "_mean", "_never", "_recent", "_returned", "_waited")

    def __init__(self) -> None:
        self._recent: deque[float] = deque()
        self._returned: list[float] = []  # sorted
        self._never: deque[float] = deque()
        self._waited: list[float] = []  # sorted: how long pauses lasted that ended without a return
        self._mean: float | None = None
        self._best: list[tuple[float, int]] | None = None  # see `best_bound`

    def add(self, seconds: float) -> None:
        """A pause ended by a return after `seconds`; a negative or endless time is ignored."""
        if not 0.0 <= seconds < math.inf:
            return
        self._recent.append(seconds)
        insort(self._returned, seconds)
        self._mean = self._best = None
        if len(self._recent) > LATEST:
            oldest = self._recent.popleft()
            del self._returned[bisect_left(self._returned, oldest)]

    def add_never(self, seconds: float) -> None:
        """A pause ended without a return after `seconds`."""
        if not 0.0 <= seconds < math.inf:
            return
        self._never.append(seconds)
        insort(self._waited, seconds)
        if len(self._never) > LATEST:
            del self._waited[bisect_left(self._waited, self._never.popleft())]

    def kept(self) -> tuple[list[float], list[float]]:
        """The durations kept, and how long those lasted that never ended by a return; oldest first."""
        return list(self._recent), list(self._never)

    @property
    def count(self) -> int:
        """How many durations are kept."""
        return len(self._returned)

    @property
    def sorted(self) -> list[float]:
        """The durations kept, smallest first; not to be changed."""
        return self._returned

    def percentile(self, rank: int) -> float | None:
        """Nearest rank: the smallest duration that at least `rank` % do not exceed."""
        if not self._returned:
            return None
        return self._returned[max(0, math.ceil(rank * len(self._returned) / 100) - 1)]

    def mean(self) -> float | None:
        """The arithmetic mean."""
        if self._mean is None and self._returned:
            self._mean = math.fsum(self._returned) / len(self._returned)
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

        Only corners of the least concave curve over (duration, how many are not longer) can be the best; they are
        found once after a new duration, and the best among them by halving.
        """
        if self._best is None:
            self._best = _corners(self._returned)
        corners, count = self._best, len(self._returned)
        low, high = 0, len(corners) - 1
        while low < high:
            middle = (low + high) // 2
            (before, fewer), (after, more) = corners[middle], corners[middle + 1]
            if (more - fewer) * gain > (after - before) * count:
                low = middle + 1
            else:
                high = middle
        return corners[low][0]

    def return_probability(self, waited: float, within: float = math.inf) -> float | None:
        """P(return within the next `within` seconds | none after `waited`): returns in that time over pauses that
        had lasted longer than `waited`. None where no kept pause lasted that long."""
        returned = self._returned
        after = bisect_right(returned, waited)
        at_risk = len(returned) - after + len(self._waited) - bisect_right(self._waited, waited)
        if at_risk == 0:
            return None
        return (bisect_right(returned, waited + within) - after) / at_risk

    def remaining(self, waited: float) -> float | None:
        """Median of what is left of a pause that has lasted `waited`, among those that lasted longer; None where none
        did."""
        after = bisect_right(self._returned, waited)
        left = len(self._returned) - after
        return self._returned[after + (left - 1) // 2] - waited if left else None


def _corners(ordered: list[float]) -> list[tuple[float, int]]:
    """The corners of the least concave curve from (0, 0) over (duration, how many are not longer)."""
    corners: list[tuple[float, int]] = [(0.0, 0)]
    for index, seconds in enumerate(ordered):
        count = index + 1
        while len(corners) > 1:
            (x0, n0), (x1, n1) = corners[-2], corners[-1]
            if (n1 - n0) * (seconds - x0) > (count - n0) * (x1 - x0):
                break
            corners.pop()
        if seconds == corners[-1][0]:
            corners[-1] = (seconds, count)
        else:
            corners.append((seconds, count))
    return corners


class LearnedTimes:
    """All series of one tenant."""

    __slots__ = ("human", "step", "tool", "tools")

    def __init__(self) -> None:
        self.tool: dict[str, Series] = {}
        self.tools = Series()
        self.human = Series()
        self.step = Series()

    def called(self, tool: str | None, seconds: float, returned: bool = True) -> None:
        """A tool's call is over after `seconds`; `returned` False: no result ever came."""
        for series in (self.tools,) if tool is None else (self.tools, self._tool(tool)):
            if returned:
                series.add(seconds)
            else:
                series.add_never(seconds)

    def of(self, name: str, tools: Iterator[str | None]) -> Iterator[Series]:
        """The series that `name` (of `words.SERIES`) stands for while `tools` run."""
        if name == TOOL:
            for tool in tools:
                if tool is not None and tool in self.tool:
                    yield self.tool[tool]
        elif name == TOOLS:
            yield self.tools
        elif name == HUMAN:
            yield self.human
        elif name == STEP:
            yield self.step

    def _tool(self, tool: str) -> Series:
        series = self.tool.pop(tool, None) or Series()
        self.tool[tool] = series
        if len(self.tool) > _MOST_TOOLS:
            del self.tool[next(iter(self.tool))]
        return series
