"""What an engine can do, as data, and what every adapter offers.

`Capabilities` come from an adapter, found by entry point (`kvpolicy.adapters`), or from a JSON file
(`capabilities_json.read_capabilities`). `lowering` brings a plan into an engine's scale with them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib.metadata import entry_points
from math import ceil, inf
from typing import Any, Protocol

from kvpolicy import words
from kvpolicy.directive import Plan
from kvpolicy.faults import InputFault, Notice
from kvpolicy.request import Request

GROUP = "kvpolicy.adapters"
LARGER, SMALLER, UNKNOWN = "larger", "smaller", "unknown"
READY, DIRECTION_UNKNOWN, UNSUPPORTED = "READY", "DIRECTION_UNKNOWN", "UNSUPPORTED"
_FEW = 0.9  # an engine with fewer levels on one side than this share of ours gets them in proportion


@dataclass(frozen=True, slots=True)
class Capabilities:
    """One engine at one version.

    lowest, highest: the ends of its levels. default: where untagged blocks stand there. direction: which levels are
    kept longer. unit_s: seconds of its unit of time; None where it takes no lifetime. zero_means: what it makes of a
    lifetime of 0 (never sent). supported: False where it was seen to refuse or to ignore the field. versions: those it
    is true of. granularity: levels per `range` of tokens or per `request`. merge: whose level counts on a shared block.
    ttl_origin: from when a lifetime runs. ranks_change: whether a level may change after the block is stored. tiers:
    where it can keep blocks, highest first. prefetch: whether it can bring them up. events: whether it tells of blocks.
    limits: whether it keeps a policy's bounds on memory (`limit … { hold: at most … }`).
    """

    name: str
    version: str | None = None
    lowest: int = words.PRIORITY_RANGE[0]
    highest: int = words.PRIORITY_RANGE[1]
    default: int = words.DEFAULT_PRIORITY
    direction: str = LARGER
    unit_s: float | None = 1.0
    zero_means: str | None = None
    verified: str = "emitted"
    supported: bool = True
    versions: str | None = None
    granularity: str = "range"
    merge: str | None = None
    ttl_origin: str | None = None
    ranks_change: bool = False
    tiers: tuple[str, ...] = ("gpu",)
    prefetch: bool = False
    limits: bool = False
    events: bool = False


@dataclass(frozen=True, slots=True)
class Lowered:
    """A plan in the engine's form.

    state: READY, DIRECTION_UNKNOWN or UNSUPPORTED; only in the first is anything sent. answer: what the caller of the
    hint is told: status, requested and granted (blocks), reason.
    """

    payload: dict[str, Any]
    losses: tuple[Notice, ...]
    state: str
    answer: dict[str, Any] = field(default_factory=dict)


class Adapter(Protocol):
    """What an adapter offers."""

    @property
    def capabilities(self) -> Capabilities:
        """What its engine can do."""
        ...

    def lower(self, plan: Plan, request: Request) -> Lowered:
        """The plan in the engine's own form."""
        ...


def find_adapter(name: str) -> Adapter:
    """The adapter of that name. Raises InputFault naming the installed ones."""
    offered = {point.name: point for point in entry_points(group=GROUP)}
    if name not in offered:
        known = ", ".join(sorted(offered)) or "none"
        raise InputFault(f"no adapter for engine '{name}' is installed (installed: {known}); a JSON file works, too")
    try:
        adapter = offered[name].load()
    except (ImportError, AttributeError) as fault:
        raise InputFault(f"the adapter for engine '{name}' cannot be loaded: {fault}") from fault
    if not hasattr(adapter, "lower") or not hasattr(adapter, "capabilities"):
        raise InputFault(f"engine '{name}' takes no plan in a form of its own; kvp replay shows what it does with one")
    found: Adapter = adapter
    return found


def level(priority: int, engine: Capabilities) -> int:
    """The engine's level for a priority of 0 to 100; 35 is the engine's own default.

    On each side of the default levels go one to one where the engine has nearly as many as we, and in proportion where
    it has few, so that different priorities stay apart as far as they can; then they are clamped to its range.
    """
    distance = priority - words.DEFAULT_PRIORITY
    lowest, highest = words.PRIORITY_RANGE
    ours = highest - words.DEFAULT_PRIORITY if distance > 0 else words.DEFAULT_PRIORITY - lowest
    kept_larger = engine.direction != SMALLER
    theirs = engine.highest - engine.default if (distance > 0) == kept_larger else engine.default - engine.lowest
    if theirs < _FEW * ours:
        distance = round(distance * theirs / ours)
    value = engine.default + (distance if kept_larger else -distance)
    return min(max(value, engine.lowest), engine.highest)


def duration(seconds: float, engine: Capabilities) -> int | None:
    """A lifetime in the engine's unit, rounded up; None where nothing must be sent: no lifetime, an endless one, no
    such field. 0 is never sent, as several engines take it for ever.
    """
    if engine.unit_s is None or seconds <= 0 or seconds == inf:
        return None
    return max(1, ceil(round(seconds / engine.unit_s, 9)))
