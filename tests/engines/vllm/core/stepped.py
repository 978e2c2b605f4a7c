"""vLLM's real scheduler, stepped without a model: whatever is scheduled "runs" and samples one token.

Used by the core tests. The blocks, their hashes, hits, evictions and preemptions are vLLM's own; only time (a clock
that the test moves) and the sampled tokens are ours.
"""

from __future__ import annotations

import atexit
import json
import os
import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")

import torch
from vllm.config import CacheConfig, DeviceConfig, ModelConfig, ParallelConfig, SchedulerConfig, VllmConfig
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.sched.async_scheduler import AsyncScheduler as StockAsync
from vllm.v1.core.sched.scheduler import Scheduler as Stock
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec, SlidingWindowSpec
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request, RequestStatus
from vllm.v1.structured_output import StructuredOutputManager

from kvpolicy.adapters.vllm import scheduler as ours
from kvpolicy.adapters.vllm.attach import attach

SIZE = 16


@cache
def model_folder() -> str:
    """A tiny model's folder, for its configuration and tokenizer alone."""
    from tests.engines.tiny_model import make

    folder = Path(tempfile.mkdtemp(prefix="kvpolicy-core-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    make(folder)
    return str(folder)


class Stepped:
    """kind: plain, async, stock (vLLM's own, without us) or chosen (by our factory). groups: full, or full and window.
    now: the clock."""

    def __init__(
        self,
        kind: str = "plain",
        *,
        blocks: int = 64,
        groups: tuple[str, ...] = ("full",),
        batched: int = 512,
        max_seqs: int = 8,
        length: int = 1024,
        caching: bool = True,
        window: int = 64,
        policy: str = "fcfs",
    ) -> None:
        init_none_hash(sha256)
        self.now = 0.0
        model = ModelConfig(
            model=model_folder(), tokenizer=model_folder(), dtype="float32", seed=0, max_model_len=length
        )
        scheduling = SchedulerConfig(
            max_num_seqs=max_seqs,
            max_num_batched_tokens=batched,
            max_model_len=length,
            is_encoder_decoder=False,
            enable_chunked_prefill=True,
            async_scheduling=kind == "async",
            policy=policy,
        )
        cache_config = CacheConfig(block_size=SIZE, enable_prefix_caching=caching)
        cache_config.num_gpu_blocks = blocks
        config = VllmConfig(
            model_config=model,
            scheduler_config=scheduling,
            cache_config=cache_config,
            parallel_config=ParallelConfig(),
            device_config=DeviceConfig("cpu"),
        )
        common: dict[str, Any] = {"block_size": SIZE, "num_kv_heads": 1, "head_size": 1, "dtype": torch.float32}
        specs = {"full": FullAttentionSpec(**common), "window": SlidingWindowSpec(**common, sliding_window=window)}
        config.scheduler_config.async_scheduling = kind in ("async", "chosen-async")  # what a CPU's defaults turn off
        kv = KVCacheConfig(
            num_blocks=blocks,
            kv_cache_tensors=[],
            kv_cache_groups=[KVCacheGroupSpec([f"layer.{name}"], specs[name]) for name in groups],
        )
        classes = {
            "plain": ours.PlainScheduler,
            "async": ours.AsyncScheduler,
            "chosen": ours.kvp_scheduler,
            "chosen-async": ours.kvp_scheduler,
            "stock": Stock,
            "stock-async": StockAsync,
        }
        self.scheduler = classes[kind](
            vllm_config=config,
            kv_cache_config=kv,
            structured_output_manager=StructuredOutputManager(config),
            block_size=SIZE,
            hash_block_size=SIZE,
            log_stats=True,
        )
        if not kind.startswith("stock"):
            self.scheduler._kvp = attach(self.scheduler, "test", lambda: self.now)
        self.hasher = get_request_block_hasher(SIZE, sha256)
        self.pool = self.scheduler.kv_cache_manager.block_pool
        self.hits: dict[str, int] = {}
        self.evicted: list[int] = []
        self._count = 0

    @property
    def keeper(self) -> Any:
        return self.scheduler._kvp

    @property
    def claims(self) -> Any:
        """None before the first directive, and after a fault."""
        return self.keeper.claims

    def run_of(self, block: int) -> Any:
        """The run of a prompt that a block belongs to, as the queue has it."""
        return self.pool.free_block_queue.order.run_of(block)

    @property
    def free(self) -> int:
        return int(self.pool.get_num_free_blocks())

    def order(self) -> list[int]:
        return [block.block_id for block in self.pool.free_block_queue.get_all_free_blocks()]

    def add(
        self,
        tokens: list[int],
        told: dict[str, Any] | None = None,
        *,
        output: int = 1,
        carrier: str = "kv_transfer_params",
        name: str | None = None,
        salt: str | None = None,
        session: str | None = None,
        lora: Any = None,
        priority: int = 0,
    ) -> str:
        """Add a request; told: what it says of its blocks."""
        self._count += 1
        name = name or f"r{self._count}"
        extra: dict[str, Any] = {}
        if told is not None and carrier == "kv_transfer_params":
            extra["kv_transfer_params"] = {"kvpolicy": told}
        elif told is not None and carrier == "vllm_xargs":
            extra["kvpolicy"] = json.dumps(told)
        request = Request(
            request_id=name,
            prompt_token_ids=list(tokens),
            sampling_params=SamplingParams(max_tokens=output, ignore_eos=True, extra_args=extra or None),
            pooling_params=None,
            block_hasher=self.hasher,
            cache_salt=salt,
            lora_request=lora,
            priority=priority,
        )
        if told is not None and carrier == "kv_hints":
            from vllm.v1.kv_hints.protocol import KvHintAction, KvHintsEnvelope

            action = KvHintAction("a1", "kvpolicy.claims", "1.0", told)
            request.kv_hints = KvHintsEnvelope("0.1", "m1", [action])
        if session is not None:
            request.session_id = session
        self.scheduler.add_request(request)
        return name

    def step(self) -> dict[str, int]:
        """One step; tokens scheduled by request."""
        output = self.scheduler.schedule()
        for new in output.scheduled_new_reqs:
            self.hits[new.req_id] = new.num_computed_tokens
        names = list(output.num_scheduled_tokens)
        sampled = []
        for name in names:
            request = self.scheduler.requests[name]
            done = request.num_computed_tokens >= request.num_tokens
            sampled.append([7] if done else [])
        result = ModelRunnerOutput(
            req_ids=names,
            req_id_to_index={name: n for n, name in enumerate(names)},
            sampled_token_ids=sampled,
            logprobs=None,
            prompt_logprobs_dict={},
            pooler_output=[],
        )
        self.scheduler.update_from_output(output, result)
        return dict(output.num_scheduled_tokens)

    def run(self, *names: str, most: int = 500) -> None:
        """Step until the requests are done (all, where none is named)."""
        for _ in range(most):
            left = names or list(self.scheduler.requests)
            if not any(name in self.scheduler.requests for name in left):
                return
            self.step()
        raise AssertionError(f"not done after {most} steps: {list(self.scheduler.requests)}")

    def ask(self, tokens: list[int], told: dict[str, Any] | None = None, **more: Any) -> int:
        """Add a request and run it to its end; tokens of its prompt that were cached."""
        name = self.add(tokens, told, **more)
        self.run(name)
        return self.hits[name]

    def abort(self, name: str) -> None:
        self.scheduler.finish_requests(name, RequestStatus.FINISHED_ABORTED)

    def flood(self, count: int, blocks: int = 8, start: int = 1000) -> None:
        """`count` requests with nothing in common."""
        for n in range(count):
            self.ask(prompt(start + n, blocks))

    def say(self, **message: Any) -> dict[str, Any]:
        """A message of the control channel, taken up as the scheduler does it."""
        return self.keeper.take_up(message)  # type: ignore[no-any-return]


def prompt(seed: int, blocks: int, more: int = 1) -> list[int]:
    """Tokens of `blocks` full blocks and `more` behind them; different seeds share nothing."""
    return [5 + (seed * 7919 + n * 104729 + (n * n) % 251) % 300 for n in range(blocks * SIZE + more)]


def system(seed: int, blocks: int, *, owner: Any = "s1", **wish: Any) -> dict[str, Any]:
    """What a request says whose first `blocks` blocks are its system prompt."""
    return {"owner": owner, "spans": [{"kind": "system", "start": 0, "end": blocks * SIZE, **wish}]}
