"""Law 5. With no directives the order of eviction is the engine's own, block for block."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.laws.world import SILENT, World, histories, play


@given(histories, st.integers(4, 40))
@settings(max_examples=100)
def test_a_policy_that_says_nothing_changes_no_eviction(history: list[tuple[object, ...]], blocks: int) -> None:
    silent, alone = World(SILENT, blocks), World(None, blocks)
    orders: list[list[object]] = [[], []]
    for world, order in zip((silent, alone), orders, strict=True):
        play(world, history, lambda w, order=order: order.append(w.steering.pool.eviction_order()))  # type: ignore[misc]
    assert orders[0] == orders[1]
    assert silent.steering.counters["failures"] == 0


def test_without_a_policy_nothing_of_plans_and_claims_runs() -> None:
    world = World(None)
    play(world, [("ask", 0, 0, [1, 2], 0), ("event", "session_end", 0), ("wait", 10.0)])
    assert world.steering.stats()["placed"] == 0
    assert world.steering.counters["plans"] == 0
    assert world.steering.pool.listener is None
