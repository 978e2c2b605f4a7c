"""Rules of others, to compare with: each stands in a module that names its source, and has a page in docs/baselines.

Three kinds: `BASELINES` see block ids, `RULES` see whole calls, `FORESIGHT` must know the trace's later calls and is
given all of them at once. Read by `names` and `runs`.
"""

from __future__ import annotations

from collections.abc import Callable

from kvpolicy.simulate.baselines.evoke import Evoke
from kvpolicy.simulate.baselines.foresight import SessionEnds, ToolTimes
from kvpolicy.simulate.baselines.generic import GENERIC
from kvpolicy.simulate.baselines.in_the_wild import InTheWild
from kvpolicy.simulate.baselines.objects import Baseline, Fifo, Lfu, LruObject
from kvpolicy.simulate.baselines.sglang import SGLANG
from kvpolicy.simulate.baselines.tree import Order, RadixCache, Rule
from kvpolicy.simulate.baselines.workflow_aware import WorkflowAware
from kvpolicy.simulate.trace import Call

BASELINES: dict[str, Callable[[int], Baseline]] = {
    "lru-object": LruObject,
    "fifo": Fifo,
    "lfu": Lfu,
    **GENERIC,
}
RULES: dict[str, Callable[[int], Rule]] = {
    **SGLANG,
    "kv-in-the-wild": lambda capacity: RadixCache(capacity, InTheWild(), whole=False),
    "evoke": Evoke,
}
FORESIGHT: dict[str, Callable[[list[Call]], Order]] = {
    "oracle-tool-times": ToolTimes,
    "oracle-session-ends": SessionEnds,
    "workflow-aware": WorkflowAware,
}

__all__ = ["BASELINES", "FORESIGHT", "RULES", "Baseline", "RadixCache", "Rule"]
