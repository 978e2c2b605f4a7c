"""Law 4. Protected blocks count as free for admission: whenever the engine's own order would make room, so do we."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from kvpolicy.request import Owner
from tests.laws.world import POLICIES, World, histories, play, spans

PIN = "policy pinned\nany { retention: pin priority: 100 }\n"


@given(st.sampled_from((*POLICIES, PIN)), histories, st.integers(4, 20))
@settings(max_examples=80)
def test_a_request_gets_as_many_blocks_as_without_a_policy(
    text: str, history: list[tuple[object, ...]], blocks: int
) -> None:
    with_policy, without = World(text, blocks, budget=1.0), World(None, blocks)
    for world in (with_policy, without):
        play(world, history)
        world.lengths = [r.lease.length for r in world.steering.running.values()]  # type: ignore[attr-defined]
        name, _ = world.request(Owner(session="new"), [f"n{i}" for i in range(blocks)])
        world.lengths.append(world.steering.running[name].lease.length)  # type: ignore[attr-defined]
    assert with_policy.lengths == without.lengths  # type: ignore[attr-defined]


def test_a_pool_full_of_pins_admits_a_request() -> None:
    world = World(PIN, blocks=10, budget=1.0)
    world.ask(Owner(session="a"), "abcdefghij", spans(("turn", 10)), finished=True)
    assert world.protected("abcdefghij") == 10
    outcome = world.ask(Owner(session="b"), "ABCDEFGH", spans(("turn", 8)))
    assert len(outcome.stored) == 8
    assert world.steering.counters["failures"] == 0
