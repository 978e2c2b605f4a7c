"""The arithmetic of a bench: shares of the gap, differences in pairs, how sure they are. Reads rows, writes figures.

Everything is compared in pairs: the same calls in the same order at the same size, once under a policy and once under
`lru`. Two intervals, both 95 %, by the percentile bootstrap (Efron, 1979) with a fixed seed: over the seeds, for what
another interleaving would give; and within one seed over its sessions, for whether that difference is more than a few
sessions. Five seeds are few: an interval over them is rough, and all five are shown beside it.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from kvpolicy.simulate.bench_experiments import EXPERIMENTS
from kvpolicy.simulate.names import BELADY_RESIDENT, LRU

RESAMPLES = 2000
Interval = tuple[float, float]
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Pair:
    """One seed: a policy and lru on the same calls. gap, within: share of the distance from lru to belady-resident and
    its interval over sessions (None where hits by session are not kept); recomputed: tokens computed again, over lru's,
    less 1; cost: likewise, an uncached token at ten cached ones."""

    seed: int
    gap: float
    within: Interval | None
    recomputed: float
    cost: float

    @property
    def below(self) -> bool:
        """Is it worse than lru, beyond the interval?"""
        return self.within is not None and self.within[1] < 0.0


@dataclass(frozen=True, slots=True)
class Point:
    """One policy at one size, over the seeds. Tokens are means of one run."""

    percent: float
    hit_ratio: float
    cached_tokens: float
    uncached_tokens: float
    recomputed_tokens: float
    moved_bytes: float
    pairs: tuple[Pair, ...]
    gap: float
    gap_interval: Interval | None
    recomputed: float
    recomputed_interval: Interval | None
    cost: float


@dataclass(frozen=True, slots=True)
class Line:
    """One policy under one kind of hints, at all sizes. gap: the mean over sizes and seeds."""

    policy: str
    baseline: bool
    hints: str
    points: tuple[Point, ...]
    gap: float
    gap_interval: Interval | None


@dataclass(frozen=True, slots=True)
class Figures:
    """What came of one experiment. made: commits, trace and SHA-256 that the rows are of."""

    name: str
    about: str
    seeds: tuple[int, ...]
    lines: tuple[Line, ...]
    made: dict[str, Any]


def figures(name: str, rows: Sequence[Row]) -> Figures:
    """Of those rows that belong to the experiment; a policy without a whole pair is left out."""
    experiment = EXPERIMENTS[name]
    wanted = {cell.key(): cell for cell in experiment.cells()}
    mine: dict[tuple[str, str, float, int], Row] = {}
    for row in rows:
        cell = wanted.get(str(row["key"]))
        if cell is not None:
            mine[cell.policy, cell.hints, cell.percent, cell.seed] = row
    lines = []
    for policy, hints in dict.fromkeys((cell.policy, cell.hints) for cell in wanted.values()):
        points = [_point(mine, policy, hints, percent, experiment.seeds) for percent in experiment.percents]
        whole = tuple(point for point in points if point is not None)
        if whole:
            lines.append(_line(policy, hints, whole, mine))
    any_row = next(iter(mine.values()), {})
    made = {
        "commits": sorted({str(row.get("commit", "unknown")) for row in mine.values()}),
        "trace": experiment.trace,
        "trace_sha256": any_row.get("trace_sha256"),
        "part": experiment.part,
        "sample": experiment.sample,
        "coarsen": experiment.coarsen,
        "block_size": any_row.get("block_size"),
        "requests": any_row.get("requests"),
        "sessions": len(any_row.get("by_session", ())) or None,
        "command": f"kvp bench run {name}",
    }
    seeds = tuple(seed for seed in experiment.seeds if any(key[3] == seed for key in mine))
    return Figures(name, experiment.about, seeds, tuple(lines), made)


def _point(
    mine: dict[tuple[str, str, float, int], Row], policy: str, hints: str, percent: float, seeds: Sequence[int]
) -> Point | None:
    pairs, rows = [], []
    for seed in seeds:
        row = mine.get((policy, hints, percent, seed))
        lru, bound = (mine.get((name, "true", percent, seed)) for name in (LRU, BELADY_RESIDENT))
        if row is None or lru is None or bound is None or bound["block_hits"] == lru["block_hits"]:
            continue
        rows.append(row)
        room = bound["block_hits"] - lru["block_hits"]
        pairs.append(
            Pair(
                seed,
                (row["block_hits"] - lru["block_hits"]) / room,
                _within(row, lru, room),
                row["recomputed_tokens"] / max(1, lru["recomputed_tokens"]) - 1.0,
                row["cost"] / lru["cost"] - 1.0,
            )
        )
    if not pairs:
        return None
    return Point(
        percent,
        _mean(rows, "hit_ratio"),
        _mean(rows, "cached_tokens"),
        _mean(rows, "uncached_tokens"),
        _mean(rows, "recomputed_tokens"),
        _mean(rows, "moved_bytes"),
        tuple(pairs),
        fmean(pair.gap for pair in pairs),
        bootstrap([pair.gap for pair in pairs]),
        fmean(pair.recomputed for pair in pairs),
        bootstrap([pair.recomputed for pair in pairs]),
        fmean(pair.cost for pair in pairs),
    )


def _mean(rows: Sequence[Row], name: str) -> float:
    return fmean(float(row[name]) for row in rows)


def _line(policy: str, hints: str, points: tuple[Point, ...], mine: dict[tuple[str, str, float, int], Row]) -> Line:
    """The mean over sizes is taken seed by seed, over the seeds that have all sizes."""
    by_seed: dict[int, list[float]] = {}
    for point in points:
        for pair in point.pairs:
            by_seed.setdefault(pair.seed, []).append(pair.gap)
    means = [fmean(gaps) for gaps in by_seed.values() if len(gaps) == len(points)]
    baseline = next(bool(row["baseline"]) for key, row in mine.items() if key[:2] == (policy, hints))
    gap = fmean(means) if means else fmean(point.gap for point in points)
    return Line(policy, baseline, hints, points, gap, bootstrap(means))


def _within(row: Row, lru: Row, room: int) -> Interval | None:
    mine, others = row.get("by_session"), lru.get("by_session")
    if not mine or not others or mine.keys() != others.keys() or len(mine) < 2:
        return None
    differences = [mine[session][1] - others[session][1] for session in mine]
    draw = random.Random(0)
    sums = sorted(sum(draw.choices(differences, k=len(differences))) for _ in range(RESAMPLES))
    return sums[int(0.025 * RESAMPLES)] / room, sums[int(0.975 * RESAMPLES)] / room


def bootstrap(values: Sequence[float]) -> Interval | None:
    """95 % interval of the mean; None for a single value."""
    if len(values) < 2:
        return None
    draw = random.Random(0)
    means = sorted(fmean(draw.choices(values, k=len(values))) for _ in range(RESAMPLES))
    return means[int(0.025 * RESAMPLES)], means[int(0.975 * RESAMPLES)]
