"""Rules that read how full a tier is are read again when that crosses a step of 5 %."""

from __future__ import annotations

from kvpolicy.request import Owner
from tests.laws.world import World, spans

S = Owner(session="s")
POLICY = "policy p\nturn when pressure(gpu) > 50% { priority: 10 }\nsystem { priority: 60 }\n"


def _fill(world: World, name: str, blocks: int) -> None:
    world.ask(Owner(session=name), [f"{name}{i}" for i in range(blocks)], spans(("system", blocks)), finished=True)


def test_the_first_block_beyond_a_step_is_noticed() -> None:
    world = World(POLICY, blocks=100)
    world.ask(S, "abcd", spans(("turn", 4)), finished=True)
    _fill(world, "x", 46)
    assert world.ranks("abcd") == [35] * 4
    _fill(world, "y", 1)
    assert world.ranks("abcd") == [10] * 4
    assert world.steering.counters["failures"] == 0


def test_between_two_steps_nothing_is_read_again() -> None:
    world = World(POLICY, blocks=100)
    world.ask(S, "abcd", spans(("turn", 4)), finished=True)
    _fill(world, "x", 8)
    before = world.steering.counters["replans"]
    _fill(world, "y", 1)
    _fill(world, "z", 1)
    assert world.steering.counters["replans"] - before == 2  # at the end of their own answers


def test_only_plans_that_ask_are_read_again() -> None:
    world = World("policy p\nturn when pressure(cpu) > 50% { priority: 10 }\nsystem { priority: 60 }\n", blocks=20)
    world.ask(S, "abcd", spans(("turn", 4)), finished=True)
    assert world.ranks("abcd") == [10] * 4  # there is no such tier, so nothing fits into it
