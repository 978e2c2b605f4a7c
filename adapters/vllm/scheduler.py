"""vLLM's scheduler with claims: what `--scheduler-cls` names.

`kvp_scheduler` picks the asynchronous one where vLLM schedules asynchronously. The overrides call vLLM's own methods
and, around them, the keeper; where that could not be attached (an unknown version, no prefix caching, switched off)
they do nothing.
"""

from __future__ import annotations

from typing import Any

from vllm.v1.core.sched.async_scheduler import AsyncScheduler as StockAsync  # type: ignore[import-not-found, unused-ignore]
from vllm.v1.core.sched.scheduler import Scheduler as Stock  # type: ignore[import-not-found, unused-ignore]

from kvpolicy.adapters.vllm.attach import attach
from kvpolicy.adapters.vllm.keeper import Keeper


class Steered:
    """The overrides, to stand before a scheduler class of vLLM."""

    _kvp: Keeper | None = None

    def add_request(self, request: Any) -> None:
        super().add_request(request)  # type: ignore[misc]
        if self._kvp is not None:
            self._kvp.came(request)

    def schedule(self, *args: Any, **kwargs: Any) -> Any:
        keeper = self._kvp
        if keeper is None:
            return super().schedule(*args, **kwargs)  # type: ignore[misc]
        keeper.before_step()
        output = super().schedule(*args, **kwargs)  # type: ignore[misc]
        if keeper.engaged:
            keeper.after_schedule(output)
        return output

    def _free_request_blocks(self, request: Any) -> Any:
        if self._kvp is not None:
            self._kvp.leaving(request)
        return super()._free_request_blocks(request)  # type: ignore[misc]

    def has_requests(self) -> bool:
        """Asked when an idle engine wakes: messages are taken up at once, in the engine's own thread."""
        keeper = self._kvp
        if keeper is not None and keeper.channel is not None and keeper.channel.pending:
            keeper.drain()
        return bool(super().has_requests())  # type: ignore[misc]

    def reset_prefix_cache(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().reset_prefix_cache(*args, **kwargs)  # type: ignore[misc]
        finally:
            if self._kvp is not None:
                self._kvp.after_reset()

    def shutdown(self) -> None:
        keeper, self._kvp = self._kvp, None
        if keeper is not None and keeper.channel is not None:
            keeper.channel.close()
        super().shutdown()  # type: ignore[misc]


class PlainScheduler(Steered, Stock):  # type: ignore[misc, unused-ignore]
    """For `--no-async-scheduling`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._kvp = attach(self, "scheduler")


class AsyncScheduler(Steered, StockAsync):  # type: ignore[misc, unused-ignore]
    """For asynchronous scheduling, vLLM's default."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._kvp = attach(self, "scheduler")


def kvp_scheduler(vllm_config: Any, *args: Any, **kwargs: Any) -> Any:
    """The scheduler that fits the configuration: vLLM decides late whether it schedules asynchronously."""
    chosen = AsyncScheduler if vllm_config.scheduler_config.async_scheduling else PlainScheduler
    return chosen(vllm_config, *args, **kwargs)
