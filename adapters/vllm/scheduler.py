"""vLLM's schedulers with claims: what `--scheduler-cls` names. Importing it needs vLLM.

`kvp_scheduler` picks the asynchronous one where vLLM schedules asynchronously, as vLLM decides that late.
"""

from __future__ import annotations

from typing import Any

from vllm.v1.core.sched.async_scheduler import AsyncScheduler as _StockAsync
from vllm.v1.core.sched.scheduler import Scheduler as _Stock

from kvpolicy.adapters.vllm.steered import steered

PlainScheduler: Any = steered(_Stock, "scheduler")
AsyncScheduler: Any = steered(_StockAsync, "scheduler")


def kvp_scheduler(vllm_config: Any, *args: Any, **kwargs: Any) -> Any:
    """The one that fits the configuration, built."""
    chosen = AsyncScheduler if vllm_config.scheduler_config.async_scheduling else PlainScheduler
    return chosen(vllm_config, *args, **kwargs)
