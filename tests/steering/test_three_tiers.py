"""The embedded engine end to end: three tiers under a policy, its events, its hits, its transfers.

The pool verifies the payload of every hit in every tier itself and raises where it differs, so a history that runs
through is one without a wrong hit; here the rest is checked from outside, from what the engine tells.
"""

from __future__ import annotations

from collections.abc import Hashable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvpolicy.pool import Pool
from kvpolicy.pool.events import AllBlocksCleared, BlockRemoved, BlockStored
from kvpolicy.pool.movement import Movement
from kvpolicy.pool.payload import PayloadMismatch
from kvpolicy.request import Owner
from kvpolicy.steering import Steering
from tests.laws.test_long_histories import MORE, Player, step
from tests.laws.world import SIZE, World, policy, spans
from tests.pool.structure import check_structure

S = Owner(session="s")


class Told:
    """Where every block is, from the engine's events alone."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.media: dict[str, set[Hashable]] = {"GPU": set(), "CPU": set(), "DISK": set()}

    def read(self) -> None:
        """Take up the events since."""
        events = self.pool.events
        assert events is not None
        for event in events:
            match event:
                case BlockStored():
                    if event.parent is not None:
                        assert any(event.parent in held for held in self.media.values())
                    assert not self.media[event.medium] & set(event.hashes)
                    self.media[event.medium].update(event.hashes)
                case BlockRemoved():
                    assert set(event.hashes) <= self.media[event.medium]
                    self.media[event.medium].difference_update(event.hashes)
                case AllBlocksCleared():
                    for held in self.media.values():
                        held.clear()
        events.clear()

    def check(self) -> None:
        """What was told is what there is."""
        self.read()
        for tier in self.pool.tiers:
            assert len(self.media[tier.medium]) == tier.cached <= tier.capacity

    def where(self, block: Hashable) -> str | None:
        """The medium of a block."""
        return next((medium for medium, held in self.media.items() if block in held), None)


class Engine(Player):
    """A player whose pool tells what it does."""

    def __init__(self, text: str, sizes: tuple[int, int, int], transfer: bool) -> None:
        world = World(text)
        pool = Pool(
            sizes[0],
            block_size=SIZE,
            cpu_blocks=sizes[1],
            disk_blocks=sizes[2],
            events=True,
            transfer=(lambda blocks, source, target: 0.25 * blocks) if transfer else None,
        )
        world.steering = Steering(policy(text), pool)
        super().__init__(world)
        self.told = Told(pool)

    def check(self) -> None:
        super().check()
        self.told.check()
        pool = self.world.steering.pool
        for prompt in self.world.prompts.values():
            depth = 0
            for index, block in enumerate(prompt):
                view = pool.block(prompt, index)
                assert (None if view is None else view.tier.upper()) == self.told.where(block)
                if view is not None:
                    level = [tier.name for tier in pool.tiers].index(view.tier)
                    assert level >= depth  # like sediment: never above the block before
                    depth = level

    def _open(self, who: int, head: int, tail: list[int], retry: bool) -> None:
        before = len(self.world.steering.running)
        super()._open(who, head, tail, retry)
        running = self.world.steering.running[self.open[-1]]
        if len(self.world.steering.running) > before and not retry:
            assert sum(running.lease.hits_by_tier) == running.lease.hits


@given(
    st.sampled_from(MORE),
    st.lists(step, min_size=1, max_size=30),
    st.sampled_from([(8, 4, 6), (6, 12, 0), (20, 3, 3)]),
    st.booleans(),
)
@settings(max_examples=60)
def test_what_it_tells_is_what_there_is(
    text: str, history: list[tuple[object, ...]], sizes: tuple[int, int, int], transfer: bool
) -> None:
    engine = Engine(text, sizes, transfer)
    for what, *rest in history:
        engine.play(str(what), *rest)
    for name in engine.open:
        engine.world.finish(name)
    engine.check()
    assert engine.world.steering.pool.clear(engine.world.now)
    engine.told.check()
    assert not any(engine.told.media.values())


def test_a_wrong_payload_in_a_lower_tier_does_not_go_unnoticed() -> None:
    world = World("policy p\nturn { priority: 60 tier: gpu, cpu after 5s, disk after 10s }\n", 8, cpu_blocks=8)
    world.ask(S, "abc", spans(("turn", 3)), finished=True)
    world.at(6)
    cpu = world.steering.pool.tiers[1]
    assert cpu.cached == 3
    cpu.holds[next(i for i, held in enumerate(cpu.holds) if held == "a/b")] = "something else"
    with pytest.raises(PayloadMismatch):
        world.ask(S, "abc", spans(("turn", 3)), finished=True)


def test_transfers_take_their_time() -> None:
    world = World("policy p\nturn { priority: 60 tier: gpu, cpu after 5s }\n")
    pool = Pool(8, block_size=SIZE, cpu_blocks=8, transfer=lambda blocks, source, target: 0.5 * blocks)
    world.steering = Steering(policy("policy p\nturn { priority: 60 tier: gpu, cpu after 5s }\n"), pool)
    world.ask(S, "ab", spans(("turn", 2)), finished=True)
    world.at(5)
    view = pool.block(["a", "a/b"], 1)
    assert view is not None and (view.tier, view.state) == ("cpu", "offloading")
    assert world.steering.show(["a", "a/b"], 1)["state"] == "offloading"
    world.at(6)
    pool.settle(6.0)
    view = pool.block(["a", "a/b"], 1)
    assert view is not None and view.state == "resident"
    name, outcome = world.at(7).request(S, "ab", spans(("turn", 2)))
    assert outcome.cached == 2
    view = pool.block(["a", "a/b"], 1)
    assert view is not None and (view.tier, view.state) == ("gpu", "loading")
    assert world.steering.show(["a", "a/b"], 1)["state"] == "loading"
    assert world.steering.running[name].lease.ready_at == 8.0
    check_structure(pool)


def test_an_engine_that_does_not_tell_of_what_sinks_is_noticed() -> None:
    with pytest.MonkeyPatch.context() as patch, pytest.raises(AssertionError):
        patch.setattr(Movement, "removed", lambda self, hashes, tier: None)
        engine = Engine(MORE[9], (8, 4, 6), False)
        engine.play("ask", 0, 0, [0, 0, 0], 0)
        engine.play("wait", 10.0)
