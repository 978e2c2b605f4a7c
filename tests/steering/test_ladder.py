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
