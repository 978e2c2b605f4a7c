"""Law 6. One rank and one soft lifetime for everything is the engine's own order, while no claim ends otherwise."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvpolicy.request import Owner
from tests.laws.world import World, spans

ALL_EQUAL = (
    "policy top\nany { priority: 100 }\n",
    "policy low\nany { priority: 10 }\n",
    "policy soft\nany { priority: 60 ttl: 10s }\n",
)
uses = st.lists(st.tuples(st.integers(0, 4), st.integers(1, 4), st.floats(0.0, 6.0)), max_size=30)


def _replay(text: str | None, made: list[tuple[int, int, float]], blocks: int) -> list[object]:
    world = World(text, blocks)
    grown = [1] * 5
    seen: list[object] = []
    for session, more, wait in made:
        world.at(world.now + wait)
        grown[session] = min(grown[session] + more, 12)  # prompts grow, so nothing is ever dead
        words = [f"{session}.{i}" for i in range(grown[session])]
        outcome = world.ask(Owner(session=f"s{session}"), words, spans(("turn", len(words))))
        seen.append((outcome.cached, outcome.evicted, world.steering.pool.eviction_order()))
    return seen


@pytest.mark.parametrize("text", ALL_EQUAL)
@given(uses, st.integers(4, 40))
@settings(max_examples=40)
def test_all_equal_is_the_engines_own_order(text: str, made: list[tuple[int, int, float]], blocks: int) -> None:
    assert _replay(text, made, blocks) == _replay(None, made, blocks)
