"""Whatever breaks on our side, the scheduler steps on as if we were not there, and a counter says so."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from kvpolicy.adapters.vllm import segment, takeover
from kvpolicy.adapters.vllm.attach import attach
from kvpolicy.adapters.vllm.claims import Claims
from kvpolicy.adapters.vllm.holdings import Holdings
from kvpolicy.adapters.vllm.keeper import MOST_FAULTS, Keeper
from kvpolicy.adapters.vllm.ranked import Ranked
from kvpolicy.adapters.vllm.segment import Rank
from kvpolicy.adapters.vllm.takeover import Takeover
from kvpolicy.adapters.vllm.tree import Tree
from kvpolicy.adapters.vllm.trunk import Trunk
from kvpolicy.adapters.vllm.versions import unknown
from kvpolicy.claims.ledger import Ledger
from tests.engines.vllm.core.stepped import Stepped, prompt, system


class Injected(Exception):
    """Never one that the code under test knows."""


HOOKS = [
    (owner, name)
    for owner, names in (
        (Ranked, "pop append prepend take _cut _stand assign put after"),
        (Rank, "first enter leave sweep"),
        (Tree, "hold store attach split cut emptied"),
        (Trunk, "enter release mark weigh unmark take_up tell_emptied uncached"),
        (Ledger, "arrive place grow finish settle heed advance cancel"),
        (Holdings, "hashes cached"),
        (Claims, "begin came scheduled leaving advance uncached heed _place _grow"),
        (Takeover, "begin"),
        (Keeper, "engage"),
    )
    for name in names.split()
]


def work(engine: Stepped) -> None:
    """A bit of everything: hits, evictions, an abort, a preemption's worth of pressure."""
    for seed in range(12):
        shared = prompt(1, 3, 0) + prompt(seed + 10, 5)
        told = system(1, 3, owner=f"s{seed % 3}", priority=90 - seed, ttl=5)
        engine.add(shared, told, output=1 + seed % 4)
        if seed % 3 == 2:
            gone = engine.add(prompt(90 + seed, 4), system(90, 4, priority=70), output=90)
            for _ in range(4):
                engine.step()
            engine.abort(gone)
        engine.run()
        engine.say(do="rank", owner=f"s{(seed + 1) % 3}", claim="system", priority=35 if seed % 2 else 20 + seed)
        engine.now += 1.0
    engine.scheduler.kv_cache_manager.evict_blocks(set(engine.order()[-4:]))
    for block in [b for b in engine.pool.blocks[1:] if b.ref_cnt == 0][5:9]:  # as a connector does it, by ids
        engine.pool.touch([block])
        engine.pool.free_blocks([block])


@pytest.mark.parametrize("after", [0, 7])
@pytest.mark.parametrize("hook", HOOKS, ids=lambda hook: f"{hook[0].__name__}.{hook[1]}")
def test_an_injected_fault_reaches_no_step(hook: Any, after: int, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, name = hook
    real, calls = getattr(owner, name), 0

    def broken(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == after + 1:
            raise Injected(name)
        return real(*args, **kwargs)

    monkeypatch.setattr(segment, "_SLACK", 0)  # so that a few blocks are reason enough to sweep
    engine = Stepped(blocks=24, batched=64)
    monkeypatch.setattr(owner, name, broken)
    work(engine)
    # INVARIANT: every block is free again and each is there once.
    assert engine.free == 23
    assert sorted(engine.order()) == list(range(1, 24))
    assert all(block.ref_cnt == 0 for block in engine.pool.blocks if not block.is_null)
    assert calls > 0
    if calls > after:
        assert engine.keeper.counters["failures"] == 1
    monkeypatch.setattr(owner, name, real)
    work(engine)
    assert engine.keeper.counters["failures"] <= 1
    assert engine.free == 23


def test_faults_that_go_on_turn_us_off_for_good(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Stepped(blocks=24)

    def broken(*args: Any, **kwargs: Any) -> None:
        raise Injected

    monkeypatch.setattr(Ledger, "place", broken)
    work(engine)
    assert engine.keeper.counters["failures"] == MOST_FAULTS
    assert engine.keeper.off is not None
    assert type(engine.pool.free_block_queue).__module__.startswith("vllm.")
    assert not {"touch", "evict_blocks"} & engine.pool.__dict__.keys()
    assert engine.keeper.status()["off"]


@pytest.mark.parametrize("name", ["touching", "RankedQueue"])
def test_a_takeover_that_breaks_leaves_vllms_own_queue(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: Any, **kwargs: Any) -> None:
        raise Injected

    monkeypatch.setattr(takeover, name, broken)
    engine = Stepped(blocks=24)
    queue = engine.pool.free_block_queue
    assert engine.ask(prompt(1, 4), system(1, 4, priority=90)) == 0
    assert type(engine.pool.free_block_queue) is type(queue)
    assert not {"touch", "evict_blocks"} & engine.pool.__dict__.keys()
    assert engine.claims is None
    assert engine.keeper.counters["failures"] == 1
    assert sorted(engine.order()) == list(range(1, 24))


class Dead:
    """A control channel whose socket is gone."""

    address = None
    pending = True

    def drain(self, limit: int = 64) -> list[dict[str, Any]]:
        raise OSError("the socket is gone")

    def close(self) -> None:
        raise OSError("the socket is gone")


class Deaf(Dead):
    """One that cannot even say whether a message waits."""

    @property
    def pending(self) -> bool:  # type: ignore[override]
        raise OSError("the socket is gone")


@pytest.mark.parametrize("kind", [Dead, Deaf])
def test_a_killed_control_channel_changes_nothing(kind: type[Dead]) -> None:
    engine, stock = Stepped(blocks=24), Stepped("stock", blocks=24)
    engine.keeper.channel = kind()
    for each in (engine, stock):
        for seed in range(6):
            each.ask(prompt(seed, 5))
    assert engine.order() == stock.order()
    assert engine.hits == stock.hits


@pytest.mark.parametrize("version", ["0.31.9", "0.34.0", "1.0", "nonsense", None])
def test_an_unknown_version_is_off_and_said_aloud(
    version: str | None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert unknown(version) is not None
    engine = Stepped(blocks=24)
    monkeypatch.setattr("kvpolicy.adapters.vllm.attach.version_here", lambda: version)
    monkeypatch.setattr(logging.getLogger("vllm"), "propagate", True)
    with caplog.at_level("WARNING", logger="vllm.kvpolicy"):
        engine.scheduler._kvp = attach(engine.scheduler, "test")
    assert engine.scheduler._kvp is None
    assert "off" in caplog.text
    assert "known are 0.32.0, 0.33.0" in caplog.text
    queue = engine.pool.free_block_queue
    engine.ask(prompt(1, 4), system(1, 4, priority=90))
    assert engine.pool.free_block_queue is queue


def test_a_queue_with_a_method_that_is_not_known_is_none_that_we_replace(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Stepped(blocks=24)
    monkeypatch.setattr(type(engine.pool.free_block_queue), "rotate", lambda self: None, raising=False)
    assert attach(engine.scheduler, "test") is None


def test_without_prefix_caching_there_is_nothing_to_do() -> None:
    engine = Stepped(blocks=24, caching=False)
    assert engine.keeper is None
    engine.ask(prompt(1, 4), system(1, 4, priority=90))
    assert engine.free == 23
