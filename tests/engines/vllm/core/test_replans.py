"""Plans without their request on the real scheduler: read again while it runs or after it, or late."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.engines.vllm.core.stepped import SIZE, Stepped, prompt, system

HEAD = 4


def shared(seed: int) -> list[int]:
    return prompt(1, HEAD, 0) + prompt(seed, 8)


def named(name: str, **wish: Any) -> dict[str, Any]:
    return {**system(1, HEAD, owner="s", **wish), "request": name}


def silent(name: str) -> dict[str, Any]:
    """Whose it is, and no more: the plan comes later."""
    return {"owner": "s", "request": name, "spans": []}


def kept(engine: Stepped) -> int:
    engine.flood(30)
    assert engine.keeper.counters["failures"] == 0
    return engine.ask(shared(3))


@pytest.mark.parametrize(("first", "then", "cached"), [(10, 90, HEAD * SIZE), (90, 10, 0)])
def test_a_finished_request_is_planned_again(first: int, then: int, cached: int) -> None:
    engine = Stepped()
    engine.ask(shared(2), named("r", priority=first))
    row = engine.say(do="plan", owner="s", request="r", payload=named("r", priority=then))
    assert (row["status"], row["granted"]) == ("accepted", HEAD), row
    assert kept(engine) == cached


@pytest.mark.parametrize("kind", ["plain", "async"])
def test_a_plan_that_comes_after_its_request_has_ended(kind: str) -> None:
    engine = Stepped(kind)
    engine.ask(shared(2), silent("late"))
    text = {"vllm_xargs": {"kvpolicy": json.dumps(named("late", priority=90))}}
    row = engine.say(do="plan", owner="s", request="late", payload=text)
    assert (row["status"], row["granted"]) == ("accepted", HEAD), row
    assert kept(engine) == HEAD * SIZE
    again = engine.say(do="plan", owner="s", request="late", payload=named("late", priority=10))
    assert again["status"] in ("accepted", "unknown"), again


def test_a_plan_that_comes_before_its_request_and_before_any_directive() -> None:
    engine = Stepped()
    assert engine.say(do="plan", owner="s", request="r", payload=named("r", priority=90))["status"] == "unknown"
    assert engine.claims is None
    engine.ask(shared(2), silent("r"))
    assert kept(engine) == HEAD * SIZE


def test_a_plan_that_comes_while_its_request_is_preempted() -> None:
    engine = Stepped(blocks=24)
    other = engine.add(prompt(9, 8), {"owner": "o", "spans": []}, output=90)
    name = engine.add(shared(2), silent("now"), output=60)
    request = engine.scheduler.requests[name]
    while not request.num_preemptions:
        engine.step()
    assert request not in engine.scheduler.running
    row = engine.say(do="plan", owner="s", request="now", payload=named("now", priority=90))
    assert (row["status"], row["granted"]) == ("accepted", HEAD), row
    engine.run(other, name)
    assert kept(engine) == HEAD * SIZE


def test_a_plan_that_comes_while_its_request_runs() -> None:
    engine = Stepped()
    name = engine.add(shared(2), silent("now"), output=40)
    engine.step()
    row = engine.say(do="plan", owner="s", request="now", payload=named("now", priority=90))
    assert (row["status"], row["granted"]) == ("accepted", HEAD), row
    engine.run(name)
    assert kept(engine) == HEAD * SIZE


def test_a_plan_that_comes_before_its_request_has_a_block() -> None:
    engine = Stepped(max_seqs=1)
    running = engine.add(prompt(9, 4), {"owner": "o", "spans": []}, output=30)
    engine.step()
    name = engine.add(shared(2), silent("waits"))
    row = engine.say(do="plan", owner="s", request="waits", payload=named("waits", priority=90))
    assert row["status"] == "accepted" and "waits" in row["reason"], row
    engine.run(running, name)
    assert kept(engine) == HEAD * SIZE


def test_what_an_answer_turned_out_to_be_ends_its_claims_alike() -> None:
    """A plan with the answer's own span after the end of a request that had an open output."""
    engine = Stepped()
    told = named("r", priority=90)
    told["spans"].append({"kind": "output", "start": len(shared(2)), "end": None, "priority": 20})
    engine.ask(shared(2), told, output=40)
    row = engine.say(do="plan", owner="s", request="r", payload=told)
    assert row["status"] == "accepted", row
    assert kept(engine) == HEAD * SIZE


def test_a_plan_of_nobody_or_of_another_changes_nothing() -> None:
    engine = Stepped()
    engine.ask(shared(2), named("r", priority=90))
    for message, status in (
        ({"owner": "s", "request": "other", "payload": named("other", priority=1)}, "unknown"),
        ({"owner": "t", "request": "r", "payload": named("r", priority=1)}, "unknown"),
        ({"owner": "s", "request": "r", "payload": {**named("r", priority=1), "owner": "t"}}, "rejected"),
        ({"owner": "s", "request": "r", "payload": "{"}, "rejected"),
    ):
        assert engine.say(do="plan", **message)["status"] == status
    assert kept(engine) == HEAD * SIZE


@pytest.mark.parametrize(("waits", "cached"), [(["calls"], HEAD * SIZE), ([], 0), (["another"], 0)])
def test_other_prompts_of_an_owner_end_the_one_whose_tool_runs_only_without_a_word_of_it(
    waits: list[str], cached: int
) -> None:
    engine = Stepped()
    engine.ask(shared(2), named("calls", priority=90))
    for number in (5, 6):
        engine.ask(prompt(number, 8), {"owner": "s", "request": f"aside {number}", "spans": [], "waits": waits})
    assert kept(engine) == cached
