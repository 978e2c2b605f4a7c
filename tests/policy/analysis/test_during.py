"""Which intervals are open whenever another is: of many as of a few, and without comparing each with each."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvpolicy.policy.analysis.during import intervals
from kvpolicy.policy.model import EventPattern, IntervalPattern
from tests.policy.analysis.test_following import work_of_relating

CONDITIONS = st.lists(
    st.sampled_from(
        [
            ("tool", "=", ("a",)),
            ("tool", "!=", ("a",)),
            ("tool", "in", ("a", "b")),
            ("agent", "=", ("x",)),
            ("depth", ">", (3.0,)),
            ("depth", "<", (2.0,)),
            ("depth", "<=", (5.0,)),
        ]
    ),
    max_size=2,
).map(tuple)
EVENTS = st.builds(EventPattern, st.sampled_from(["tool_call", "tool_result", "turn_end"]), CONDITIONS)
PATTERNS = st.one_of(st.none(), st.builds(IntervalPattern, EVENTS, st.one_of(st.none(), EVENTS)))


@settings(max_examples=200, deadline=None)
@given(st.lists(PATTERNS, min_size=1, max_size=12))
def test_of_many_as_pair_by_pair(patterns: list[IntervalPattern | None]) -> None:
    pairs, many = intervals(patterns), intervals(patterns, few=-1)
    assert (many.of, many.apart) == (pairs.of, pairs.apart)
    sure = ~many.rough & ((1 << len(patterns)) - 1)
    for at, number in enumerate(many.of):
        if sure >> at & 1:
            assert many.wider[number] & sure == pairs.wider[number] & sure
            assert many.narrower[number] & sure == pairs.narrower[number] & sure


@pytest.mark.parametrize("until", ["until tool_result", "until tool_result[tool = t{i}]", ""])
def test_many_intervals_with_conditions_are_not_compared_pair_by_pair(until: str) -> None:
    """Twice the rules take about twice the work to be put in relation."""

    def work(count: int) -> int:
        lines = [
            f"on tool_call[tool = t{i}] {until.format(i=i)} {{ r{i}: turn when turns_ago() > {i} {{ priority: 7 }} }}"
            for i in range(count)
        ]
        return work_of_relating(lines)

    assert work(600) < 3 * work(300)
