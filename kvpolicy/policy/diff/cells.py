"""The cells of a dimension: the values that no rule of either policy tells apart, one for each such set of values.

`space` makes its dimensions of them: of the words and numbers that conditions name, and what lies between.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, floor, inf

from kvpolicy import words
from kvpolicy.policy.terms import Read, Term

_WHOLE = frozenset({"int", "tokens"})


@dataclass(frozen=True, slots=True)
class Between:
    """The numbers strictly between two; `sample` is one of them."""

    low: float
    high: float
    sample: float


class _Other(str):
    """Any string that no rule names."""


OTHER = _Other("other")


def sample(cell: object) -> object:
    """A value of a cell."""
    return cell.sample if isinstance(cell, Between) else cell


def attribute_cells(kind: str, values: set[object]) -> tuple[object, ...]:
    if kind == "bool":
        return (None, True, False)
    if kind == "status":
        return (None, *words.STATUSES)
    if kind == "string":
        other = OTHER
        while other in values:
            other = _Other(f"{other}_")
        return (None, *sorted(map(str, values)), other)
    numbers = [v for v in values if isinstance(v, int | float) and not isinstance(v, bool)]
    return (None, *_line(numbers, 0.0 if kind in _WHOLE else -inf, inf, whole=kind in _WHOLE))


def quantity_cells(term: Term, values: set[object]) -> tuple[object, ...]:
    """The numbers that a quantity may be, and None where it may have no data."""
    numbers = [v for v in values if isinstance(v, int | float)]
    if not isinstance(term, Read):
        return (None, *_line(numbers, -inf, inf, whole=False))
    _, gives, may_lack = words.FUNCTIONS[term.function]
    line = _line(numbers, 0.0, 1.0 if gives == "probability" else inf, whole=gives == "int")
    return (None, *line) if may_lack else line


def _line(numbers: Iterable[float], low: float, high: float, *, whole: bool) -> tuple[object, ...]:
    """The numbers and what lies between them, from `low` to `high`."""
    ends = sorted({low, high, *(n for n in numbers if low <= n <= high)})
    wanted = set(numbers)
    cells: list[object] = []
    for index, (one, two) in enumerate(pairwise(ends)):
        if index == 0 and (one in wanted or one > -inf):
            cells.append(one)
        between = _between(one, two, whole)
        if between is not None:
            cells.append(between)
        if two in wanted or two < inf:
            cells.append(two)
    return tuple(cells)


def _between(low: float, high: float, whole: bool) -> Between | None:
    if whole:
        first, last = floor(low) + 1 if low > -inf else -inf, ceil(high) - 1 if high < inf else inf
        if first > last:
            return None
        return Between(low, high, first if first > -inf else last if last < inf else 0.0)
    if low == -inf:
        return Between(low, high, high - 1 if high < inf else 0.0)
    return Between(low, high, low + 1 if high == inf else (low + high) / 2)
