"""Several KV groups, LoRA, the plugin, and what is imported: on the real scheduler and block pool."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from vllm.config import SchedulerConfig
from vllm.lora.request import LoRARequest
from vllm.v1.core.sched.async_scheduler import AsyncScheduler as StockAsync
from vllm.v1.core.sched.scheduler import Scheduler as Stock

from kvpolicy.adapters.vllm import plugin
from kvpolicy.adapters.vllm import scheduler as ours
from kvpolicy.adapters.vllm.steered import Steered
from kvpolicy.claims.strength import DEFAULT
from tests.engines.vllm.core.stepped import SIZE, Stepped, prompt, system


def shared(seed: int, head: int = 6) -> list[int]:
    return prompt(1, head, 0) + prompt(seed, 6)


@pytest.mark.parametrize("groups", [("full", "window"), ("window", "full")])
def test_every_group_that_a_hit_consults_is_kept(groups: tuple[str, ...]) -> None:
    for priority, cached in ((90, 6 * SIZE), (None, 0)):
        engine = Stepped(blocks=96, groups=groups, window=2 * SIZE)
        wish = {} if priority is None else {"priority": priority}
        # A request that ends with the system prompt leaves the window's blocks before that end.
        engine.ask(prompt(1, 6), system(1, 6, **wish))
        engine.ask(shared(2), system(1, 6, **wish))
        engine.flood(30)
        assert engine.ask(shared(3)) == cached
        assert engine.keeper.counters["failures"] == 0
        assert engine.free == 95


def test_null_blocks_of_a_window_are_never_claimed() -> None:
    engine = Stepped(blocks=96, groups=("full", "window"), window=2 * SIZE, batched=64)
    engine.ask(prompt(1, 16), system(1, 16, priority=90), output=40)
    assert engine.run_of(0) is None
    assert 0 not in engine.order()
    assert engine.free == 95
    assert engine.keeper.counters["failures"] == 0


def test_an_adapter_has_blocks_of_its_own() -> None:
    engine = Stepped()
    lora = LoRARequest("a", 1, "/nowhere")
    engine.ask(shared(2), system(1, 6, priority=90), lora=lora)
    engine.flood(30)
    assert engine.ask(shared(3)) == 0
    engine.flood(30, start=9000)
    assert engine.ask(shared(4), lora=lora) == 6 * SIZE


def test_two_requests_that_compute_the_same_at_once() -> None:
    """vLLM keeps both copies; the claim covers the one that a look-up returns."""
    engine = Stepped(blocks=96)
    engine.add(shared(2), system(1, 6, owner="a", priority=90))
    engine.add(shared(3), system(1, 6, owner="b", priority=90))
    engine.run()
    engine.flood(40)
    assert engine.ask(shared(4)) == 6 * SIZE
    assert engine.keeper.counters["failures"] == 0


def test_blocks_evicted_by_id_go_and_their_claims_with_them() -> None:
    engine = Stepped()
    engine.ask(prompt(1, 6), system(1, 6, priority=90))
    ranked = [i for i in engine.order() if engine.claims.trunk.rank_of(i) == 90]
    assert len(ranked) == 6
    engine.scheduler.kv_cache_manager.evict_blocks(set(ranked[:2]))  # the prompt's last: a tail leaves first
    assert [engine.claims.trunk.rank_of(i) for i in ranked] == [DEFAULT] * 2 + [90] * 4
    assert engine.order()[-4:] == ranked[2:]
    engine.flood(30)
    assert engine.ask(prompt(1, 6)) == 4 * SIZE
    assert engine.keeper.counters["failures"] == 0
    assert engine.free == 63


def test_a_claim_without_a_request_by_the_names_of_the_events() -> None:
    engine = Stepped()
    engine.ask(shared(2))
    hashes = [h.hex() for h in _hashes(engine, shared(2))[:6]]
    row = engine.say(do="claim", owner="ops", hashes=hashes, priority=90, claim="warm")
    assert row == {"status": "accepted", "requested": 6, "granted": 6, "reason": None}
    numbers = [int(h, 16) & ((1 << 64) - 1) for h in hashes]
    shown = engine.say(do="show", hashes=numbers)
    assert [block["rank"] for block in shown["blocks"]] == [90] * 6
    engine.flood(30)
    assert engine.ask(shared(3)) == 6 * SIZE
    assert engine.say(do="release", owner="ops", claim="warm")["granted"] == 1
    assert engine.say(do="claim", owner="ops", hashes=["00" * 32], priority=90)["status"] == "deferred"


def _hashes(engine: Stepped, tokens: list[int]) -> list[bytes]:
    request = SimpleNamespace(
        all_token_ids=tokens,
        num_tokens=len(tokens),
        block_hashes=[],
        mm_features=[],
        cache_salt=None,
        lora_request=None,
        prompt_embeds=None,
        _prompt_embeds_per_block_hashes={},
    )
    return list(engine.hasher(request))


def test_the_plugin_steers_whatever_scheduler_is_chosen_and_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SchedulerConfig, "get_scheduler_cls", SchedulerConfig.get_scheduler_cls)
    for _ in range(3):
        plugin.register()
    for asynchronous, stock in ((True, StockAsync), (False, Stock)):
        config = SimpleNamespace(scheduler_cls=None, async_scheduling=asynchronous)
        chosen: Any = SchedulerConfig.get_scheduler_cls(config)  # type: ignore[arg-type]
        assert issubclass(chosen, Steered)
        assert issubclass(chosen, stock)
        assert chosen.__mro__.count(Steered) == 1
    config = SimpleNamespace(scheduler_cls=ours.AsyncScheduler, async_scheduling=True)
    assert SchedulerConfig.get_scheduler_cls(config) is ours.AsyncScheduler  # type: ignore[arg-type]


def test_the_factory_picks_by_the_configuration() -> None:
    for kind, picked in (("chosen", ours.PlainScheduler), ("chosen-async", ours.AsyncScheduler)):
        engine = Stepped(kind)
        assert type(engine.scheduler) is picked
        engine.ask(shared(2), system(1, 6, priority=90))
        engine.flood(30)
        assert engine.ask(shared(3)) == 6 * SIZE


def test_the_engine_imports_only_what_it_needs() -> None:
    code = """
import sys
import vllm.v1.core.sched.async_scheduler
before = set(sys.modules)
import kvpolicy.adapters.vllm.scheduler, kvpolicy.adapters.vllm.plugin, kvpolicy.channel.channel
import kvpolicy.adapters.vllm.offload
new = {name.split('.')[0] for name in set(sys.modules) - before}
print(sorted(new - {'kvpolicy', 'vllm'} - set(sys.stdlib_module_names)))
print(sorted(n for n in sys.modules if n.startswith('kvpolicy.') and n.split('.')[1] in
    ('language', 'cli', 'simulate', 'plan', 'workflow', 'steering', 'replay', 'serve', 'simulated', 'store')))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=240)
    assert done.stdout.splitlines()[-2:] == ["[]", "[]"]
