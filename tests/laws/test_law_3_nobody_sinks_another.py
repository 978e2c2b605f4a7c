"""Law 3. A rank below the default takes effect only where every owner with a live claim on the block wants it."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from kvpolicy.claims.strength import DEFAULT
from kvpolicy.request import Owner
from tests.laws.world import POLICIES, World, histories, play, spans

LOW = "policy low\nturn[agent = low] { priority: 5 }\ndocument { retention: drop }\n"


def _nobody_is_sunk(world: World) -> None:
    for prompt in {tuple(p): None for p in world.prompts.values()}:
        words = [h.rsplit("/", 1)[-1] for h in prompt]
        for index, strength in enumerate(world.strengths(words)):
            if strength is not None and strength < DEFAULT:
                for line, claim in world.claims_on(words, index):
                    assert claim.dropped or claim.priority < DEFAULT, (line.holder.key, claim.kind)


@given(st.sampled_from((*POLICIES, LOW)), histories)
@settings(max_examples=80)
def test_below_the_default_every_owner_wants_it_low(text: str, history: list[tuple[object, ...]]) -> None:
    play(World(text), history, _nobody_is_sunk)


def test_an_owner_who_said_nothing_holds_the_default() -> None:
    world = World(LOW)
    world.ask(Owner(session="a", agent="low"), "xyz", spans(("turn", 3)))
    assert world.ranks("xyz") == [5, 5, 5]
    world.ask(Owner(session="b"), "xy", spans(("turn", 2)))
    assert world.ranks("xyz") == [35, 35, 5]


def test_a_drop_gives_way_to_others() -> None:
    world = World(LOW)
    world.ask(Owner(session="a"), "xyz", spans(("turn", 1), ("document", 1), ("turn", 1)))
    assert world.ranks("xyz") == [35, -1, -1]
    world.ask(Owner(session="b"), "xy", spans(("turn", 2)))
    assert world.ranks("xyz") == [35, 35, -1]


def test_a_drop_through_any_leaves_shared_lifetimes_alone() -> None:
    world = World("policy p\nany { retention: drop }\n")
    world.ask(Owner(session="a"), "xyz", spans(("system", 1), ("turn", 2)))
    assert world.ranks("xyz") == [35, -1, -1]
    named = World("policy p\nsystem, turn { retention: drop }\n")
    named.ask(Owner(session="a"), "xyz", spans(("system", 1), ("turn", 2)))
    assert named.ranks("xyz") == [-1, -1, -1]
