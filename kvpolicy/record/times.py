"""Times of a log: what its values mean in seconds, and where calls stand that say none.

Read by the readers of logs (`reading`) and, when all of them are read, by `kvp record`, which says how many had none.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from kvpolicy.record.calls import Recorded
from kvpolicy.units import UnitFault, parse_duration

APART = 1.0  # seconds between calls that say no time
_NUMBER = re.compile(r"\s*[+-]?\d+(\.\d*)?([eE][+-]?\d+)?\s*")
# A time since 1970 that is larger than this, in seconds the year 5138, is in the smaller unit: ms, µs, ns.
_SMALLER = ((1e17, 1e9), (1e14, 1e6), (1e11, 1e3))


def number(value: Any) -> float | None:
    """A number, also one in quotes; None of anything else. Raises OverflowError for one that no float holds."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return float(value)
    return float(value) if isinstance(value, str) and _NUMBER.fullmatch(value) else None


def seconds(value: Any) -> float | None:
    """A time of a log, in seconds: a number, also in quotes (by its size in s, ms, µs or ns), ISO 8601, or a duration
    with its unit. None where it is none of them."""
    found = number(value)
    if found is not None:
        return next((found / parts for above, parts in _SMALLER if found > above), found)
    if not isinstance(value, str):
        return None
    try:
        return datetime.fromisoformat(value.strip().replace("Z", "+00:00")).timestamp()
    except ValueError:
        try:
            return parse_duration(value)
        except UnitFault:
            return None


def put_in_time(calls: Sequence[Recorded]) -> int:
    """Give each call without a time one: `APART` behind the call before it in the log, or before the first that has
    one. Returns how many there were."""
    first = next((place for place, call in enumerate(calls) if call.at is not None), len(calls))
    start = calls[first].at if first < len(calls) else None
    before = -APART if start is None else start - APART * (first + 1)
    untimed = 0
    for call in calls:
        if call.at is None:
            untimed, call.at = untimed + 1, before + APART
        before = call.at
    return untimed
