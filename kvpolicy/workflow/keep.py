"""Learned times as a plain document, so that they survive a restart: export and import.

A document is JSON: the latest durations of every tool, of humans and of steps, oldest first. What is read is checked;
one of another version, or one that does not fit, is refused as a whole. The classes of pauses are not in it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from kvpolicy.faults import InputFault
from kvpolicy.workflow.durations import LATEST, LearnedTimes, Series
from kvpolicy.workflow.learned import Learned

VERSION = 1
_SERIES = ("tools", "human", "step")


def export(learned: Learned, tenant: str) -> dict[str, Any]:
    """What was learned of one tenant's durations."""
    times = learned.times(tenant)
    return {
        "version": VERSION,
        "tenant": tenant,
        "tool": {tool: _row(series) for tool, series in times.tool.items()},
        **{name: _row(getattr(times, name)) for name in _SERIES},
    }


def load(learned: Learned, document: Mapping[str, Any], tenant: str | None = None) -> None:
    """Take a document in place of what was learned of its tenant (or of `tenant`). Raises InputFault, changing
    nothing, for one that does not fit."""
    if document.get("version") != VERSION:
        raise InputFault(f"learned times of version {document.get('version')!r}; this version reads {VERSION}")
    name = document.get("tenant") if tenant is None else tenant
    tools = document.get("tool")
    if not isinstance(name, str) or not isinstance(tools, dict):
        raise InputFault("learned times without a tenant or without tools")
    times = LearnedTimes()
    for tool, row in tools.items():
        times.tool[str(tool)] = _series(row, f"tool {tool}")
    for each in _SERIES:
        setattr(times, each, _series(document.get(each), each))
    learned.replace(name, times)


def _row(series: Series) -> dict[str, list[float]]:
    returned, never = series.kept()
    return {"returned": returned, "never": never}


def _series(row: object, what: str) -> Series:
    if not isinstance(row, dict):
        raise InputFault(f"learned times of {what} are missing")
    series = Series()
    for key, add in (("returned", series.add), ("never", series.add_never)):
        values = row.get(key)
        if not isinstance(values, list) or len(values) > LATEST:
            raise InputFault(f"learned times of {what}: {key} is no list of at most {LATEST} durations")
        for value in values:
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
                raise InputFault(f"learned times of {what}: {value!r} is no duration in seconds")
            add(float(value))
    return series
