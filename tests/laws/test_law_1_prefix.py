"""Law 1. At every instant, along one prompt, the rank never increases; and it is what the claims say."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from kvpolicy.request import Owner
from tests.laws.world import POLICIES, World, histories, play, spans


@given(st.sampled_from(POLICIES), histories, st.sampled_from([1000, 14, 8]))
@settings(max_examples=150)
def test_along_a_prompt_the_rank_never_increases(text: str, history: list[tuple[object, ...]], blocks: int) -> None:
    play(World(text, blocks), history, World.check)


def test_a_strong_early_span_and_a_weak_late_one_make_stairs() -> None:
    world = World("policy p\nsystem { priority: 90 }\nturn { priority: 10 }\n")
    world.ask(Owner(session="s"), "abcd", spans(("system", 2), ("turn", 2)))
    assert world.ranks("abcd") == [90, 90, 10, 10]


def test_a_weak_early_span_is_lifted_by_a_strong_late_one() -> None:
    world = World("policy p\nsystem { priority: 10 }\nturn { priority: 90 }\n")
    world.ask(Owner(session="s"), "abcd", spans(("system", 2), ("turn", 2)))
    assert world.ranks("abcd") == [90, 90, 90, 90]


def test_when_the_later_claim_lapses_the_earlier_ones_step_forward_in_the_same_instant() -> None:
    world = World(
        "policy p\nsystem { priority: 60 }\ntool_result { priority: 50 ttl: 20s }\nturn { priority: 70 ttl: 10s }\n"
    )
    world.ask(Owner(session="s"), "abcd", spans(("system", 1), ("tool_result", 1), ("turn", 2)))
    assert world.at(9.9).ranks("abcd") == [70, 70, 70, 70]
    assert world.at(10).ranks("abcd") == [60, 50, 35, 35]
    assert world.at(20).ranks("abcd") == [60, 35, 35, 35]
