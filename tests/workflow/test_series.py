"""One series of durations: exact while few, within the sketch's bound after; what fades, what is open, what is lost."""

from __future__ import annotations

import math
import random
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvpolicy.workflow import durations
from kvpolicy.workflow.durations import ENDED, FADES_AT, FEW, RETURNED, UNKNOWN, Series
from kvpolicy.workflow.learned_times import TOOL, LearnedTimes
from kvpolicy.workflow.sketch import ACCURACY, LONGEST_S, SHORTEST_S, Sketch
from tests.workflow import naive_times

HALF_LIFE = 100.0
BOUND = ACCURACY * 1.001  # rounding apart
seconds = st.one_of(st.integers(0, 30).map(float), st.floats(0.0, 1e6))
# What one clock tells: all differences are exact, as those of times read off one clock are, so that the definition and
# a series see the same ages. Elsewhere they may differ by a tick of the clock: see `test_series_ticks`.
TICK = 2.0**-20
MONTH_S = 30 * 86400
ticks = st.one_of(st.integers(0, 30).map(float), st.integers(0, MONTH_S * 2**20).map(lambda count: count * TICK))


def tells(lengths: st.SearchStrategy[float]) -> st.SearchStrategy[list[tuple[float, float, str]]]:
    """Durations, what passes before each is over, and how it ends."""
    pauses, ways = st.sampled_from((0.0, 1.0, 60.0, 250.0, 5000.0)), st.sampled_from((RETURNED, ENDED, UNKNOWN))
    return st.lists(st.tuples(lengths, pauses, ways), max_size=15)


told = tells(seconds)


def clocked(rows: list[tuple[float, float, str]]) -> list[tuple[float, float, str]]:
    """Pauses between the ends become times."""
    now, made = 50.0, []
    for length, later, way in rows:
        now += later
        made.append((length, now, way))
    return made


def series_of(rows: list[tuple[float, float, str]], half_life: float = HALF_LIFE) -> Series:
    made = Series(half_life)
    for length, at, way in rows:
        made.add(length, at, way)
    return made


# --- while they are few ---------------------------------------------------------------------------------------------


@given(told, st.sampled_from((50, 90, 95)))
def test_while_few_statistics_are_those_of_all_that_was_told(rows: list, rank: int) -> None:
    rows = clocked(rows)
    made, plain = series_of(rows), naive_times.weighed(rows, HALF_LIFE)
    assert made.exact
    assert made.percentile(rank) == naive_times.percentile(plain, rank)
    returned = [(s, w) for s, w, way in plain if way == RETURNED]
    assert made.count == math.ceil(sum(w for _, w in returned))
    mean = made.mean()
    if returned:
        assert mean == pytest.approx(float(sum(s * w for s, w in returned) / sum(w for _, w in returned)))
    else:
        assert mean is None


@given(tells(ticks), st.lists(ticks, max_size=6), ticks, st.one_of(st.just(math.inf), ticks))
def test_while_few_chances_are_those_of_aalen_and_johansen(
    rows: list, open_ages: list[float], waited: float, within: float
) -> None:
    rows, now = clocked(rows), 1e7
    made, plain = series_of(rows), naive_times.weighed(rows, HALF_LIFE)
    for age in open_ages:
        made.opened(now - age)
    chance = made.return_probability(waited, within, now)
    if naive_times.longest(plain, open_ages) <= waited:
        assert chance is None
    else:
        assert chance == pytest.approx(float(naive_times.incidence(plain, waited, within, open_ages)), abs=1e-9)
    left = naive_times.remaining(plain, waited, open_ages)
    assert made.remaining(waited, now) == (None if left is None else pytest.approx(left, rel=1e-6, abs=1e-6))


@given(told, st.lists(seconds, max_size=6), st.lists(seconds, min_size=2, max_size=8))
def test_who_has_waited_longer_comes_back_later_and_a_longer_look_sees_more(
    rows: list, open_ages: list[float], looks: list[float]
) -> None:
    made, now = series_of(clocked(rows)), 1e7
    for age in open_ages:
        made.opened(now - age)
    ends = [waited + (made.remaining(waited, now) or 0.0) for waited in sorted(looks)]
    assert all(one <= other + 1e-6 * other for one, other in pairwise(ends))
    chances = [made.return_probability(looks[0], within, now) for within in (*sorted(looks), math.inf)]
    known = [chance for chance in chances if chance is not None]
    assert known == sorted(known) and all(0.0 <= chance <= 1.0 for chance in known)


def test_a_pause_of_sixty_seconds_does_not_end_in_one() -> None:
    """Though the tool takes a second on average."""
    times = LearnedTimes()
    for _ in range(99):
        times.over(TOOL, "build", 0.0, 1.0)
    times.over(TOOL, "build", 0.0, 300.0)
    assert times.remaining(TOOL, "build", 0.0) == 1.0
    assert times.remaining(TOOL, "build", 60.0) == 240.0
    assert times.remaining(TOOL, "build", 600.0) == 3 * 600.0 + 12.0  # longer than any
    assert times.remaining(TOOL, "never_seen", 60.0) == 240.0  # all tools speak for it
    assert times.typical(TOOL, "never_seen") == 1.0
    assert times.return_probability(TOOL, "build", 60.0, 10.0) == 0.0


def test_open_and_lost_pauses_count_as_far_as_they_were_seen() -> None:
    made = Series()
    for length in (1.0, 2.0, 4.0):
        made.add(length)
    assert made.return_probability(0.0, 2.0, now=3.0) == pytest.approx(2 / 3)
    made.opened(0.0)
    assert made.return_probability(0.0, 2.0, now=0.5) == pytest.approx(2 / 3)  # seen for half a second: says nothing
    assert made.return_probability(0.0, 2.0, now=3.0) == pytest.approx(2 / 4)
    made.closed(0.0)
    made.add(3.0, way=UNKNOWN)
    assert made.return_probability(0.0, 2.0) == pytest.approx(2 / 4)
    assert made.return_probability(0.0) == pytest.approx(1.0)  # the one that was lost may have returned
    made.add(3.0, way=ENDED)
    assert made.return_probability(0.0) == pytest.approx(1 - 3 / 5 / 3)  # and one of the three left then never will
    made.closed(77.0)  # nobody's
    assert made.waiting == 0


# --- when they are many ---------------------------------------------------------------------------------------------


def many(seed: int, count: int, spread: float) -> list[float]:
    chance = random.Random(seed)
    return [min(max(chance.lognormvariate(0.0, spread), 2 * SHORTEST_S), LONGEST_S) for _ in range(count)]


lots = st.builds(many, st.integers(0, 10**6), st.integers(FEW + 1, 1500), st.sampled_from((0.0, 0.5, 2.0, 4.0)))


@settings(max_examples=25)
@given(lots)
def test_when_many_statistics_are_within_the_bound(values: list[float]) -> None:
    made = Series()
    for value in values:
        made.add(value)
    assert not made.exact
    values.sort()
    for rank in (50, 90, 95):
        exact = values[math.ceil(rank * len(values) / 100) - 1]
        assert made.percentile(rank) == pytest.approx(exact, rel=BOUND, abs=SHORTEST_S)
    assert made.mean() == pytest.approx(math.fsum(values) / len(values), rel=BOUND, abs=SHORTEST_S)
    assert made.count == len(values)
    for within in (0.5, 1.0, 10.0):
        found = made.return_probability(0.0, within) or 0.0
        fewest = sum(value <= within / 1.0409 for value in values) / len(values)
        most = sum(value <= within * 1.0409 for value in values) / len(values)
        assert fewest - 1e-9 <= found <= most + 1e-9


@settings(max_examples=25)
@given(lots, st.sampled_from((0.5, 5.0, 50.0, 1e4)))
def test_when_many_the_best_bound_costs_at_most_its_share(values: list[float], gain: float) -> None:
    made = Series()
    for value in values:
        made.add(value)
    values.sort()

    def utility(bound: float) -> float:
        return sum(value <= bound * (1 + 1e-9) for value in values) / len(values) * gain - bound

    best = max((0.0, *values), key=utility)
    assert utility(made.best_bound(gain)) >= utility(best) - 0.041 * best - 1e-9


def test_the_change_to_a_sketch_loses_nothing_of_what_is_lost_or_open() -> None:
    chance = random.Random(5)
    rows = [(chance.expovariate(0.1), 0.0, chance.choice((RETURNED, RETURNED, ENDED, UNKNOWN))) for _ in range(FEW)]
    made = series_of(rows)
    made.opened(-50.0)
    assert made.exact
    before = [(made.return_probability(w, 10.0), made.remaining(w)) for w in (0.0, 5.0, 10.0)]
    made.add(7.0, 0.0)
    assert not made.exact
    for waited, (share, left) in zip((0.0, 5.0, 10.0), before, strict=True):
        assert made.return_probability(waited, 10.0) == pytest.approx(share, abs=0.03)
        assert made.remaining(waited) == pytest.approx(left, rel=0.1)
    assert made.waiting == 1


def test_a_sketch_covers_all_durations_there_are() -> None:
    made = Sketch()
    for value in (0.0, 1e-9, SHORTEST_S, 1.0, LONGEST_S, 1e300):
        made.add(value)
    values, weights = made.rows()
    assert weights == [2.0, 1.0, 1.0, 2.0]
    assert values == pytest.approx([0.0, SHORTEST_S, 1.0, LONGEST_S], rel=BOUND)
    assert not made._store.is_collapsed
    again = Sketch.of(*made.state())
    assert again.rows() == made.rows()


# --- what fades -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("before", [100, 2000])  # exact, and in a sketch
def test_what_is_old_weighs_half_for_every_half_life(before: int) -> None:
    made = Series(half_life=1000.0)
    for _ in range(before):
        made.add(1.0, 0.0)
    for _ in range(before // 10):
        made.add(10.0, 999.0)
    assert made.percentile(50) == pytest.approx(1.0, rel=BOUND)
    assert made.count == before + before // 10
    for _ in range(before // 10):
        made.add(30.0, 6_500.0)  # six half-lives later the rest weighs a 64th
    assert made.percentile(50) == pytest.approx(30.0, rel=BOUND)
    assert made.count == math.ceil(before * 1.1 / 64 + before // 10)
    made.add(50.0, 1e9)  # long after: nothing else is left
    assert (made.count, made.weight) == (1, 1.0)
    assert made.percentile(50) == pytest.approx(50.0, rel=BOUND)


def test_a_clock_that_goes_back_fades_nothing() -> None:
    made = Series(half_life=10.0)
    for at in (100.0, 0.0, 105.0, -1e9):
        made.add(1.0, at)
    assert made.count == 4


def test_very_many_durations_fade_without_a_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(durations, "FADES_AT", 1000.0)
    made = Series()
    for _ in range(5000):
        made.add(1.0)
    for _ in range(1001):
        made.add(10.0)
    assert made.weight < 1000.0 < FADES_AT
    assert made.percentile(50) == pytest.approx(10.0, rel=BOUND)
