"""How often plans are read again while time alone passes: counted, and never at the cost of a crossing."""

from __future__ import annotations

import pytest

from kvpolicy.request import Owner
from tests.laws.world import World, spans

S = Owner(session="s")
DRIFTING = (
    "any { priority: 20 + idle() / 1s }",
    "any when return_probability(within 30s) else 0% > 50% { priority: 80 }",
    "any when next_use() else 5s > 1min { priority: 20 }",
)


@pytest.mark.parametrize("rule", DRIFTING)
@pytest.mark.parametrize("owner", [S, Owner()], ids=["session", "nameless"])
def test_a_request_that_runs_for_hours_is_read_a_few_times(rule: str, owner: Owner) -> None:
    world = World(f"policy p\n{rule}\n")
    world.request(owner, "abcd", spans(("turn", 4)))
    for hour in range(1, 21):
        world.at(500.0 * hour)
    # ages of 1, 1.5, 2, 3, … up to 10,000 s, and what is rare enough for the claims' own sake
    assert world.steering.counters["replans"] <= 28
    assert world.steering.counters["failures"] == 0


@pytest.mark.parametrize("end", ["finish", "cut", "cancel"])
def test_a_crossing_counts_from_the_end_of_the_request(end: str) -> None:
    world = World("policy p\nturn { priority: 60 }\nlayer late { turn when idle() >= 40s { priority: 20 } }\n")
    world.ask(S, "abcd", spans(("turn", 4)), finished=True)
    world.at(10.0)
    name, _ = world.request(S, "abcde", spans(("turn", 5)))
    before = world.steering.counters["replans"]
    world.at(500.0)
    assert world.steering.counters["replans"] == before  # idle time stands still, so nothing can cross
    if end == "cancel":
        world.steering.cancel(name, 500.0)
    else:
        world.finish(name, **({"finished": True} if end == "finish" else {}))
    for now, rank in ((539.0, 60), (540.0, 20)):
        world.at(now)
        assert world.ranks("abcd") == [rank] * 4


def test_the_other_prompts_of_an_owner_are_read_when_it_goes_idle() -> None:
    world = World("policy p\nturn { priority: 60 }\nlayer late { turn when idle() >= 40s { priority: 20 } }\n")
    one, _ = world.request(S, "abcd", spans(("turn", 4)))
    other, _ = world.request(S, "wxyz", spans(("turn", 4)))
    world.at(100.0)
    world.finish(one)
    world.at(200.0)
    assert world.ranks("abcd") == [60] * 4  # a request of its owner runs
    world.finish(other)
    world.at(239.0)
    assert (world.ranks("abcd"), world.ranks("wxyz")) == ([60] * 4, [60] * 4)
    world.at(240.0)
    assert (world.ranks("abcd"), world.ranks("wxyz")) == ([20] * 4, [20] * 4)


def test_a_grace_that_a_request_ended_asks_for_nothing_when_its_time_is_over() -> None:
    world = World("policy p\non tool_call until tool_result { turn { retention: hold 3s  priority: 60 } }\n")
    world.ask(S, "abcd", spans(("turn", 4)), tool_calls=["grep"])
    world.at(1.0)
    world.ask(S, "abcde", spans(("turn", 5)), tool_calls=["grep"])  # the first call's result, and another call
    before = world.steering.counters["replans"]
    world.at(40.0)  # past the grace of the first result, and past the hold of the second call
    assert world.steering.counters["replans"] == before
    assert world.ranks("abcde") == [60] * 5
