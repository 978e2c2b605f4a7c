"""Ladders: blocks sink when idle, as far as every claim on them allows, and come up by use or prefetch."""

from __future__ import annotations

from kvpolicy.pool import Pool
from kvpolicy.request import Owner
from kvpolicy.steering import Steering
from tests.laws.world import SIZE, World, chain, policy, spans

S = Owner(session="s")


def _world(text: str) -> World:
    world = World(text)
    world.steering = Steering(policy(text), Pool(20, block_size=SIZE, cpu_blocks=20, disk_blocks=20))
    return world


def _tiers(world: World, words: str) -> list[str]:
    views = [world.steering.pool.block(chain(*words), i) for i in range(len(words))]
    return [view.tier if view else "gone" for view in views]


LADDER = "policy p\nsystem { priority: 80 }\nturn { priority: 40 tier: gpu, cpu after 30s, disk after 10min }\n"


def test_idle_blocks_step_down_and_a_use_brings_them_up() -> None:
    world = _world(LADDER)
    world.ask(S, "Sab", spans(("system", 1), ("turn", 2)), finished=True)
    assert _tiers(world.at(29.9), "Sab") == ["gpu", "gpu", "gpu"]
    assert _tiers(world.at(30), "Sab") == ["gpu", "cpu", "cpu"]
    assert _tiers(world.at(600), "Sab") == ["gpu", "disk", "disk"]
    outcome = world.ask(S, "Sab", spans(("system", 1), ("turn", 2)), finished=True)
    assert outcome.cached == 3
    assert _tiers(world, "Sab") == ["gpu", "gpu", "gpu"]
    assert _tiers(world.at(630), "Sab") == ["gpu", "cpu", "cpu"]
    assert world.steering.counters["failures"] == 0


def test_another_claim_that_wants_them_higher_keeps_them() -> None:
    world = _world("policy p\nturn[session = s] { priority: 40 tier: gpu, cpu after 30s }\n")
    world.ask(S, "abc", spans(("turn", 3)), finished=True)
    world.ask(Owner(session="other"), "ab", spans(("turn", 2)), finished=True)
    assert _tiers(world.at(30), "abc") == ["gpu", "gpu", "cpu"]


def test_an_owners_weaker_claim_that_wants_a_higher_tier_keeps_its_blocks_up() -> None:
    world = _world("policy p\nsystem { priority: 40 }\nturn { priority: 60 tier: gpu, cpu after 30s }\n")
    world.ask(S, "Sab", spans(("system", 1), ("turn", 2)), finished=True)
    assert _tiers(world.at(30), "Sab") == ["gpu", "cpu", "cpu"]


def test_prefetch_brings_up_when_its_event_comes() -> None:
    world = _world(
        "policy p\nturn { priority: 60 tier: gpu, cpu after 30s }\non step_start { turn { prefetch: yes tier: gpu } }\n"
    )
    world.ask(S, "abc", spans(("turn", 3)), finished=True)
    assert _tiers(world.at(30), "abc") == ["cpu", "cpu", "cpu"]
    world.at(40).event("step_start", session="s")
    assert _tiers(world, "abc") == ["gpu", "gpu", "gpu"]
    assert world.steering.counters["failures"] == 0


AHEAD = "policy p\nturn { priority: 60 tier: gpu, cpu after 5s prefetch: 10s }\n"


def test_prefetch_ahead_of_the_expected_next_use() -> None:
    world = _world(AHEAD)
    for _ in range(3):  # the tool takes 60 s
        world.ask(S, "ab", spans(("turn", 2)), tool_calls=["build"])
        world.at(world.now + 60).ask(S, "ab", spans(("turn", 1), ("tool_result", 1)), finished=True)
    start = world.now
    world.ask(S, "abc", spans(("turn", 3)), tool_calls=["build"])
    assert _tiers(world.at(start + 5), "abc") == ["cpu"] * 3
    assert _tiers(world.at(start + 49.9), "abc") == ["cpu"] * 3
    assert _tiers(world.at(start + 50), "abc") == ["gpu"] * 3
    assert _tiers(world.at(start + 59), "abc") == ["gpu"] * 3
    assert world.steering.counters["failures"] == 0


def test_prefetch_brings_back_to_the_first_rung() -> None:
    world = _world(
        "policy p\nturn { priority: 60 tier: cpu, disk after 30s }\n"
        "on step_start { turn { prefetch: yes tier: cpu } }\n"
    )
    world.ask(S, "abc", spans(("turn", 3)), finished=True)
    assert _tiers(world, "abc") == ["cpu"] * 3
    assert _tiers(world.at(30), "abc") == ["disk"] * 3
    world.at(40).event("step_start", session="s")
    assert _tiers(world, "abc") == ["cpu"] * 3


def test_what_another_owner_holds_is_idle_from_its_release_on() -> None:
    world = _world("policy p\nturn[session = s] { priority: 40 tier: gpu, cpu after 30s }\n")
    world.ask(S, "abc", spans(("turn", 3)), finished=True)
    other, _ = world.at(20).request(Owner(session="other"), "abc", spans(("turn", 3)))
    assert _tiers(world.at(100), "abc") == ["gpu"] * 3
    world.finish(other)
    world.steering.release(Owner(session="other"), world.now)
    assert _tiers(world.at(129), "abc") == ["gpu"] * 3
    assert _tiers(world.at(130), "abc") == ["cpu"] * 3


def test_what_may_not_be_stored_below_is_lost_until_the_policy_says_otherwise() -> None:
    world = _world("policy p\nturn { admit: no }\non step_start { turn { admit: yes } }\n")
    world.ask(S, "abc", spans(("turn", 3)), finished=True)
    world.ask(Owner(session="keeps"), "xyz", spans(("document", 3)), finished=True)
    world.steering.evict(6, world.now)
    assert (_tiers(world, "abc"), _tiers(world, "xyz")) == (["gone"] * 3, ["cpu"] * 3)
    world.ask(S, "abc", spans(("turn", 3)), finished=True)
    world.event("step_start", session="s")
    world.steering.evict(6, world.now)
    assert _tiers(world, "abc") == ["cpu"] * 3
