"""Lengths that differ from what the clock tells by less than a tick: one rule says who is open for as long.

A duration may come from another clock than the ages of open pauses do, or be shorter than a tick of it. Whether one
that is open has lasted exactly so long is then a matter of rounding. Either answer is right to a tick, but it must not
depend on which others are open.
"""

from __future__ import annotations

import math

import pytest

from kvpolicy.workflow.durations import Series
from kvpolicy.workflow.sketch import LONGEST_S


def of_one(length: float) -> Series:
    """A series that was told of one return."""
    made = Series()
    made.add(length, 50.0)
    return made


@pytest.mark.parametrize("older", [[], [1.0]])
@pytest.mark.parametrize("now", [10.2, 1e7, 1.7e9])
def test_as_old_as_one_that_was_told_is_open_for_as_long_whatever_the_clock_rounds(
    now: float, older: list[float]
) -> None:
    """By the clock at 1e7 it has been open for 0.09999999962747097 seconds only."""
    made = of_one(0.1)
    for age in (0.1, *older):
        made.opened(now - age)
    assert made.return_probability(0.0, 0.5, now) == pytest.approx(1 / (2 + len(older)))


@pytest.mark.parametrize("length", [5e-324, 1.9082096979550612e-51, 1e-10, LONGEST_S, 1e300])
@pytest.mark.parametrize("open_ages", [[], [0.0], [0.0, 1e-3], [1e6, 1e15]])
def test_lengths_that_the_clock_cannot_tell_give_answers_within_bounds(length: float, open_ages: list[float]) -> None:
    """The second was found: at 1e7 what began just now has begun that long before, too."""
    made, now = of_one(length), 1e7
    for age in open_ages:
        made.opened(now - age)
    for waited in (0.0, length, 1.0):
        chances = [made.return_probability(waited, within, now) for within in sorted((0.0, length, 0.5, math.inf))]
        known = [chance for chance in chances if chance is not None]
        assert known == sorted(known) and all(0.0 <= chance <= 1.0 for chance in known)
        left = made.remaining(waited, now)
        assert left is not None and 0.0 <= left < math.inf
    # The ones that are open count at most all: with k of them the chance is at least 1 in k + 1.
    assert (made.return_probability(0.0, math.inf, now) or 0.0) >= 1 / (len(open_ages) + 1)
