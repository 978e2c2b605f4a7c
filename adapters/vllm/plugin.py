"""kvpolicy as a general plugin of vLLM: installed beside it, it needs no flag.

vLLM calls `register` in every process. It changes what `SchedulerConfig.get_scheduler_cls` answers, which the engine
alone asks; nothing else is imported or touched, and a second call does nothing. `VLLM_PLUGINS` without `kvpolicy`
leaves it out, and so does KVPOLICY_OFF=1.
"""

from __future__ import annotations

import functools
import logging
from typing import Any

log = logging.getLogger("vllm.kvpolicy")


def register() -> None:
    """Let vLLM build its scheduler with claims. Never raises, and does nothing the second time."""
    try:
        from vllm.config import SchedulerConfig

        asked = SchedulerConfig.get_scheduler_cls
        if not hasattr(asked, "kvpolicy"):
            SchedulerConfig.get_scheduler_cls = _steered_answer(asked)
    except Exception as fault:
        log.warning("kvpolicy: the plugin is off: %r; vLLM serves as it is", fault)


def _steered_answer(asked: Any) -> Any:
    @functools.wraps(asked)
    def get_scheduler_cls(self: Any) -> Any:
        chosen = asked(self)
        try:
            from kvpolicy.adapters.vllm.steered import steered

            return steered(chosen, "plugin") if isinstance(chosen, type) else chosen
        except Exception as fault:
            log.warning("kvpolicy: the plugin is off: %r; vLLM serves as it is", fault)
            return chosen

    get_scheduler_cls.kvpolicy = True  # type: ignore[attr-defined]
    return get_scheduler_cls
