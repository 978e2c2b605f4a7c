"""Learned times survive export and import; what does not fit is refused and changes nothing."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvpolicy.faults import InputFault
from kvpolicy.workflow.durations import HUMAN, LATEST, TOOL, TOOLS
from kvpolicy.workflow.keep import export, load
from kvpolicy.workflow.learned import Learned

durations = st.lists(st.floats(0, 1e6), max_size=30)


@given(st.dictionaries(st.text(max_size=5), durations, max_size=4), durations, durations)
def test_what_is_exported_is_learned_again(
    tools: dict[str, list[float]], human: list[float], never: list[float]
) -> None:
    learned, other = Learned(), Learned()
    times = learned.times("t")
    for tool, seconds in tools.items():
        for value in seconds:
            times.called(tool, value)
    for value in human:
        times.human.add(value)
    for value in never:
        times.human.add_never(value)
    load(other, json.loads(json.dumps(export(learned, "t"))))
    again = other.times("t")
    for name in (TOOLS, HUMAN):
        one, two = next(times.of(name, iter(()))), next(again.of(name, iter(())))
        assert (one.sorted, one.mean(), one.kept()) == (two.sorted, two.mean(), two.kept())
        assert one.return_probability(5.0, 10.0) == two.return_probability(5.0, 10.0)
    kept = [tool for tool, seconds in tools.items() if seconds]
    assert [s.sorted for s in again.of(TOOL, iter(kept))] == [sorted(tools[tool]) for tool in kept]


def document() -> dict[str, Any]:
    learned = Learned()
    learned.times("t").called("grep", 1.0)
    return export(learned, "t")


@pytest.mark.parametrize(
    "change",
    [
        {"version": 2},
        {"tenant": None},
        {"tool": []},
        {"human": None},
        {"human": {"returned": [1.0]}},
        {"human": {"returned": [-1.0], "never": []}},
        {"human": {"returned": [math.nan], "never": []}},
        {"human": {"returned": [True], "never": []}},
        {"human": {"returned": ["1"], "never": []}},
        {"step": {"returned": [1.0] * (LATEST + 1), "never": []}},
        {"tool": {"grep": 5}},
    ],
)
def test_one_that_does_not_fit_changes_nothing(change: dict[str, Any]) -> None:
    learned = Learned()
    learned.times("t").called("grep", 7.0)
    with pytest.raises(InputFault):
        load(learned, {**document(), **change})
    assert learned.times("t").tools.sorted == [7.0]


def test_another_tenant_may_take_it_and_reset_forgets_one_tenant() -> None:
    learned = Learned()
    load(learned, document())
    load(learned, document(), "other")
    learned.reset("t")
    assert learned.times("t").tools.count == 0
    assert learned.times("other").tools.sorted == [1.0]
