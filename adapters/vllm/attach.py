"""The keeper attached to a scheduler that vLLM has just built, or a line in the log why not. Never raises."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from typing import Any

from kvpolicy.adapters.vllm.keeper import Keeper
from kvpolicy.adapters.vllm.versions import OFF_VARIABLE, strange, unknown, version_here
from kvpolicy.claims.ledger import BUDGET

log = logging.getLogger("vllm.kvpolicy")

BUDGET_VARIABLE = "KVPOLICY_BUDGET"


def attach(scheduler: Any, hook: str, clock: Callable[[], float] = time.monotonic) -> Keeper | None:
    """hook: how we came here, `scheduler` (--scheduler-cls) or `plugin`. None: nothing is done; the log says why."""
    try:
        return _attach(scheduler, hook, clock)
    except Exception as fault:
        log.warning("kvpolicy: off: %r; vLLM serves as it is", fault)
        return None


def _attach(scheduler: Any, hook: str, clock: Callable[[], float]) -> Keeper | None:
    if os.environ.get(OFF_VARIABLE, "") not in ("", "0"):
        log.warning("kvpolicy: off: %s is set", OFF_VARIABLE)
        return None
    version = version_here()
    why = unknown(version) or strange(scheduler)
    if why is not None:
        log.warning("kvpolicy: off: %s; vLLM serves as it is", why)
        return None
    budget = _budget()
    try:
        keeper = Keeper(scheduler, clock, budget=budget)
    except ValueError as fault:
        log.warning("kvpolicy: off: %s; vLLM serves as it is", fault)
        return None
    keeper.channel = _channel(scheduler, lambda: {"vllm": version, "hooks": {hook: True}, **keeper.status()})
    log.info(
        "kvpolicy: on: vLLM %s, %s, %d blocks of %d tokens, budget %g, channel %s",
        version,
        hook,
        keeper.blocks,
        keeper.holdings.unit,
        budget,
        "none" if keeper.channel is None else keeper.channel.address,
    )
    return keeper


def _budget() -> float:
    text = os.environ.get(BUDGET_VARIABLE)
    if not text:
        return BUDGET
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if 0 <= share <= 1:
        return share
    log.warning("kvpolicy: %s: a share from 0 to 1 is needed, not %r; %g is taken", BUDGET_VARIABLE, text, BUDGET)
    return BUDGET


def _channel(scheduler: Any, status: Callable[[], dict[str, Any]]) -> Any:
    from kvpolicy.channel.wire import ADDRESS_VARIABLE, TOKEN_VARIABLE

    address = os.environ.get(ADDRESS_VARIABLE)
    if not address:
        return None
    from kvpolicy.adapters.vllm.wake import find_wake
    from kvpolicy.channel.channel import Channel

    rank = int(getattr(scheduler.vllm_config.parallel_config, "data_parallel_index", 0) or 0)
    channel = Channel(address, token=os.environ.get(TOKEN_VARIABLE), rank=rank, status=status)
    channel.wake = find_wake()
    if not channel.start():
        log.warning("kvpolicy: no control channel: %s", channel.fault)
        return None
    return channel
