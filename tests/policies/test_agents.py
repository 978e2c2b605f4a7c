"""agents: each of the policies it is made of does its part, alone and in it."""

from __future__ import annotations

import re

import pytest

from tests.policies.scenarios import SCENARIOS, agents
from tests.policies.scene import text_of

TEXT = text_of("agents")
ALL = [8, 8, 8, 4, 3]  # the coder, the tester, a branch, the planner, a shared head


def without_part(name: str) -> str:
    """The policy that does not use one of its parts."""
    return re.sub(r"(?<=layers ).*", lambda line: line[0].replace(f"{name}, ", ""), TEXT.replace(f"use {name}\n", ""))


@pytest.mark.parametrize(
    ("name", "found"),
    [("continuum", [8, 4, 0, 0, 0]), ("kvflow", [4, 4, 4, 4, 3]), ("tree_of_thought", [0, 0, 8, 0, 0])],
)
def test_no_part_alone_finds_what_all_find_together(name: str, found: list[int]) -> None:
    assert agents(TEXT) == ALL and sum(found) < sum(ALL)
    assert agents(text_of(name)) == found


@pytest.mark.parametrize("name", ["continuum", "kvflow", "tree_of_thought"])
def test_without_a_part_no_more_is_found(name: str) -> None:
    """What each part is for beyond this scenario: its own scenario below, and the mixed workload of the bench."""
    assert f"use {name}" not in without_part(name)
    found = agents(without_part(name))
    assert all(one <= all_ for one, all_ in zip(found, ALL, strict=True))


def test_a_chain_alone_is_nearly_as_under_its_steps() -> None:
    assert SCENARIOS["kvflow"](text_of("kvflow")) == [60]
    assert SCENARIOS["kvflow"](TEXT) == [57]


@pytest.mark.parametrize("name", ["base", "continuum", "tree_of_thought"])
def test_each_scenario_of_a_part_ends_as_under_that_part(name: str) -> None:
    assert SCENARIOS[name](TEXT) == SCENARIOS[name](text_of(name))
