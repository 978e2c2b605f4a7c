"""What an engine can do, as JSON: read where `--engine` names a file, and checked by pydantic as all documents are.

Imported only where such a document is read, because pydantic takes long to load.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from kvpolicy import words
from kvpolicy.adapter import LARGER, SMALLER, UNKNOWN, Capabilities
from kvpolicy.faults import InputFault
from kvpolicy.request_json import Text, checked

TIME_UNITS: dict[str, float] = {
    **words.DURATION_UNITS,
    "milliseconds": 0.001,
    "seconds": 1.0,
    "whole_seconds": 1.0,
    "minutes": 60.0,
}
_DIRECTIONS = (LARGER, SMALLER, UNKNOWN, "not_known")


class _Engine(BaseModel):
    model_config = ConfigDict(strict=True, extra="allow")
    name: Text
    version: Text | None = None
    min: int = words.PRIORITY_RANGE[0]
    max: int = words.PRIORITY_RANGE[1]
    default: int | None = None
    direction: str = LARGER
    ttl_unit: str | None = "s"
    zero_means: str | None = None
    verified: str = "emitted"
    supported: bool = True
    granularity: str = "range"
    ranks_change: bool = False
    tiers: list[Text] = ["gpu"]
    prefetch: bool = False
    limits: bool = False


def read_capabilities(document: object, name: str = "engine") -> Capabilities:
    """An engine's capabilities. A `default` that is not stated is ours, seen in the engine's direction.

    Raises InputFault for an empty range, a default outside it, and a unit of time, a
    direction, a tier or a granularity that is none.
    """
    model = checked(_Engine, document, name)
    if model.min > model.max:
        raise InputFault(f"{name}: min {model.min} is above max {model.max}")
    default = model.default
    if default is None:
        default = words.DEFAULT_PRIORITY
        if model.direction == SMALLER:
            default = model.min + model.max - default
        default = min(max(default, model.min), model.max)
    if not model.min <= default <= model.max:
        raise InputFault(f"{name}: default {default} is outside {model.min} to {model.max}")
    if model.ttl_unit is not None and model.ttl_unit not in TIME_UNITS:
        raise InputFault(f"{name}: ttl_unit: '{model.ttl_unit}' is not a unit; the units are {', '.join(TIME_UNITS)}")
    for tier in model.tiers:
        if tier not in words.TIERS:
            raise InputFault(f"{name}: tiers: '{tier}' is not a tier; the tiers are {', '.join(words.TIERS)}")
    if model.direction not in _DIRECTIONS:
        raise InputFault(f"{name}: direction: write larger, smaller or unknown, not '{model.direction}'")
    if model.granularity not in ("range", "request"):
        raise InputFault(f"{name}: granularity: write range or request, not '{model.granularity}'")
    return Capabilities(
        model.name,
        model.version,
        model.min,
        model.max,
        default,
        model.direction,
        None if model.ttl_unit is None else TIME_UNITS[model.ttl_unit],
        model.zero_means,
        model.verified,
        model.supported,
        granularity=model.granularity,
        ranks_change=model.ranks_change,
        tiers=tuple(model.tiers),
        prefetch=model.prefetch,
        limits=model.limits,
    )
