"""The numbers in a graph that a caller brings: how many branches, how often, how likely.

Called by `graph_read` for JSON and networkx (whose numbers may be numpy's), by `graph_block` for counts. What is none
is refused where it stands: later it would be taken for a name, or break what counts with it.
"""

from __future__ import annotations

import numbers
from typing import Any

from kvpolicy.faults import InputFault
from kvpolicy.language.check_counts import MOST, is_count
from kvpolicy.workflow.shown import shown


def count_of(value: object, place: str) -> str | None:
    """How many branches an edge makes (`times`): digits, or the name of a count that is told at run time; None where
    nothing is said. Raises InputFault."""
    if value is None:
        return None
    if isinstance(value, str) and is_count(value):
        return str(int(value)) if value.isdecimal() else value
    number = _whole(value)
    if number is None or not 1 <= number <= MOST:
        mend = f"a whole number from 1 to {MOST}, or the name of a count, which begins with a letter"
        raise InputFault(f"{place}: times: {shown(value)} is no count of branches; write {mend}")
    return str(number)


def bound_of(value: object, place: str, key: str) -> int | None:
    """How often an edge may be taken (`at_most`), or a loop run through (`max_rounds`). Raises InputFault."""
    if value is None:
        return None
    number = _whole(value)
    if number is None or not 0 <= number <= MOST:
        raise InputFault(f"{place}: {key}: {shown(value)} is no bound; write a whole number from 0 to {MOST}")
    return number


def probability_of(value: object, place: str) -> float | None:
    """How likely an edge is taken. Raises InputFault."""
    if value is None:
        return None
    number: Any = value if isinstance(value, numbers.Real) and not isinstance(value, bool) else -1
    if not 0 <= number <= 1:
        raise InputFault(f"{place}: probability: {shown(value)} is none; write a number from 0 to 1, such as 0.3")
    return float(number)


def _whole(value: object) -> int | None:
    return int(value) if isinstance(value, numbers.Integral) and not isinstance(value, bool) else None
