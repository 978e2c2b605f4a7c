"""Boxes in words: which spans, during which events, under which conditions.

Reads a `Space`; gives the parts of a sentence and a JSON row. Conditions are written as in a policy where it can say
them, and plainly where it cannot (`no agent`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from math import inf

from kvpolicy import words
from kvpolicy.policy.diff.cells import Between, sample
from kvpolicy.policy.diff.space import (
    ATTRIBUTE,
    INTERVAL,
    KIND,
    OPEN,
    QUANTITY,
    Box,
    Dimension,
    Space,
)
from kvpolicy.policy.model import NEVER, EventPattern
from kvpolicy.policy.terms import Apply, Constant, Read, Term
from kvpolicy.units import format_bytes, format_duration, format_tokens

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class Where:
    """A box: kinds (() for all), conditions on attributes, intervals that are open or not, conditions of guards."""

    kinds: tuple[str, ...]
    attributes: tuple[str, ...]
    during: tuple[str, ...]
    outside: tuple[str, ...]
    when: tuple[str, ...]

    def __str__(self) -> str:
        others = [kind for kind in words.SPAN_KINDS if kind not in self.kinds]
        text = ", ".join(self.kinds) if self.kinds else "any span"
        if 0 < len(others) < 3:
            text = f"any span but {' and '.join(others)}"
        if self.attributes:
            text += f" with {' and '.join(self.attributes)}"
        for word, rows in (("during", self.during), ("outside", self.outside)):
            if rows:
                text += f", {word} `{'` and `'.join(rows)}`"
        return text + (f", when {' and '.join(self.when)}" if self.when else "")

    def as_json(self) -> dict[str, object]:
        """`{"kinds", "attributes", "during", "outside", "when"}`, each a list."""
        kinds = list(self.kinds or words.SPAN_KINDS)
        rows = {"attributes": self.attributes, "during": self.during, "outside": self.outside, "when": self.when}
        return {"kinds": kinds, **{name: list(row) for name, row in rows.items()}}


def where(space: Space, box: Box) -> Where:
    """A box in words."""
    rows: dict[str, list[str]] = {"kinds": [], "attributes": [], "during": [], "outside": [], "when": []}
    for dimension, cells in zip(space.dimensions, box, strict=True):
        if cells == dimension.all:
            continue
        chosen = [c for i, c in enumerate(dimension.cells) if cells >> i & 1]
        if dimension.kind == KIND:
            rows["kinds"] = [str(c) for c in chosen]
        elif dimension.kind == ATTRIBUTE:
            rows["attributes"].append(_attribute(dimension, chosen))
        elif dimension.kind == INTERVAL:
            rows["during" if cells == OPEN else "outside"].append(_interval(dimension))
        elif dimension.kind == QUANTITY:
            assert isinstance(dimension.name, Read | Apply)
            rows["when"].append(_quantity(dimension, chosen))
        else:
            assert isinstance(dimension.name, Constant | Read | Apply)
            text = term_text(dimension.name)
            rows["when"].append(text if cells == OPEN else f"not ({text})")
    return Where(**{name: tuple(row) for name, row in rows.items()})


def witness(space: Space, box: Box) -> dict[str, object]:
    """A span of a box, kind and attributes; what may be absent is. The spans of a box differ in nothing that a rule
    asks for."""
    found: dict[str, object] = {}
    for dimension, cells in zip(space.dimensions, box, strict=True):
        if dimension.kind not in (KIND, ATTRIBUTE):
            continue
        chosen = [sample(c) for i, c in enumerate(dimension.cells) if cells >> i & 1]
        kinds = dimension.kind == KIND
        value = "turn" if kinds and "turn" in chosen else chosen[0] if None not in chosen else None
        if value is not None:
            whole = isinstance(value, float) and value.is_integer() and abs(value) != inf
            shown = int(value) if whole and isinstance(value, float) else value
            found["kind" if kinds else str(dimension.name)] = str(shown) if isinstance(shown, str) else shown
    return found


# --- attributes and numbers -----------------------------------------------------------------------------


def _attribute(dimension: Dimension, chosen: list[object]) -> str:
    name = str(dimension.name)
    present = [c for c in chosen if c is not None]
    absent = len(present) < len(chosen)
    if not present:
        return f"no {name}"
    if len(present) == len(dimension.cells) - 1:
        return f"some {name}"
    kind = words.ATTRIBUTES.get(name, "string")
    if kind in ("int", "tokens", "number"):
        text = _numbers(name, dimension.cells[1:], present, format_tokens if kind == "tokens" else _plain)
    else:
        text = _words(name, [c for c in dimension.cells if c is not None], present, kind == "string")
    return f"({text} or no {name})" if absent else text


def _quantity(dimension: Dimension, chosen: list[object]) -> str:
    assert isinstance(dimension.name, Read | Apply)
    name, shown = term_text(dimension.name), _unit_of(dimension.name)
    known = [c for c in dimension.cells if c is not None]
    numbers = [c for c in chosen if c is not None]
    lacking = len(numbers) < len(chosen)
    if not numbers:
        return f"{name} has no data"
    if len(numbers) == len(known):
        return f"{name} has data"
    text = _numbers(name, known, numbers, shown)
    return f"({text} or no data)" if lacking else text


def _words(name: str, every: list[object], chosen: list[object], strings: bool) -> str:
    if strings and every[-1] in chosen and chosen[-1] is every[-1]:  # all but some that are named
        rest = [word(c) for c in every if c not in chosen]
        return f"{name} != {rest[0]}" if len(rest) == 1 else f"{name} not in {{{', '.join(rest)}}}"
    named = [word(c) for c in chosen]
    return f"{name} = {named[0]}" if len(named) == 1 else f"{name} in {{{', '.join(named)}}}"


def _numbers(name: str, every: Iterable[object], chosen: list[object], show: object) -> str:
    """`1k <= tokens < 8k`, ranges joined by `or`."""
    assert callable(show)
    cells = list(every)
    rest = [c for c in cells if not any(c is one for one in chosen)]
    if len(rest) == 1 and not isinstance(rest[0], Between):
        return f"{name} != {show(rest[0])}"
    runs: list[list[object]] = []
    wanted, last = set(map(id, chosen)), False
    for cell in cells:
        if id(cell) in wanted:
            if last:
                runs[-1].append(cell)
            else:
                runs.append([cell])
        last = id(cell) in wanted
    return " or ".join(_range(name, run, cells, show) for run in runs)


def _range(name: str, run: list[object], cells: list[object], show: object) -> str:
    assert callable(show)
    first, last = run[0], run[-1]
    if first is last and not isinstance(first, Between):
        return f"{name} = {show(first)}"
    low, high = "", ""
    if first is not cells[0]:
        low = f"{show(first.low)} <" if isinstance(first, Between) else f"{show(first)} <="
    if last is not cells[-1]:
        high = f"< {show(last.high)}" if isinstance(last, Between) else f"<= {show(last)}"
    if low and high:
        return f"{low} {name} {high}"
    if low:
        number, _, sign = low.partition(" ")
        return f"{name} {'>=' if sign == '<=' else '>'} {number}"
    return f"{name} {high}"


def word(value: object) -> str:
    """A value of a condition, quoted where it is no name."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return value if _NAME.fullmatch(value) else f'"{value}"'
    return _plain(value)


def _plain(value: object) -> str:
    if value == inf:
        return "never"
    return f"{value:g}" if isinstance(value, float) else str(value)


# --- events and terms -----------------------------------------------------------------------------------


def _interval(dimension: Dimension) -> str:
    assert isinstance(dimension.name, tuple)
    start, until = dimension.name
    return f"on {_event(start)}" + (f" until {_event(until)}" if until is not None else "")


def _event(event: EventPattern) -> str:
    said = []
    for attribute, operator, values in event.conditions:
        shown = [word(v) for v in values]
        said.append(f"{attribute} {operator} {'{' + ', '.join(shown) + '}' if operator == 'in' else shown[0]}")
    return event.name + (f"[{', '.join(said)}]" if said else "")


def _unit_of(term: Term) -> object:
    """How numbers of a term's kind are shown."""
    if isinstance(term, Read):
        shown = {"duration": format_duration, "probability": _share, "bytes": format_bytes, "ratio": _plain}
        return shown.get(words.FUNCTIONS[term.function][1], _plain)
    if isinstance(term, Apply) and term.operator in ("else", "+", "-", "min", "max", "clamp", "neg"):
        return next((s for o in term.operands if (s := _unit_of(o)) is not _plain), _plain)
    return _plain


def _share(value: float) -> str:
    return f"{value * 100:g}%"


def term_text(term: Term, show: object = _plain) -> str:
    """A term as an author would write it, names written out. show: how its numbers are shown."""
    assert callable(show)
    match term:
        case Constant(value=value):
            if isinstance(value, bool | str):
                return word(value)
            return "never" if value == NEVER else str(show(value))
        case Read():
            inner = "" if term.within is None else f"within {term_text(term.within, format_duration)}"
            if term.argument is not None:
                inner = term.argument.name if isinstance(term.argument, EventPattern) else term.argument
            return f"{term.function}({inner})"
        case Apply(operator=operator, operands=operands):
            shown = _unit_of(term) if operator not in ("*", "/") else _plain
            if operator in ("<", "<=", "=", "!="):
                shown = next((s for o in operands if (s := _unit_of(o)) is not _plain), _plain)
            texts = [term_text(o, shown) for o in operands]
            texts = [
                f"({t})" if isinstance(o, Apply) and o.operator not in _CLOSE else t
                for t, o in zip(texts, operands, strict=True)
            ]
            if operator in ("neg", "not"):
                return f"-{texts[0]}" if operator == "neg" else f"not {texts[0]}"
            return f"{operator}({', '.join(texts)})" if operator in _CALLS else f" {operator} ".join(texts)
    raise AssertionError(term)


_CALLS = frozenset({"min", "max", "clamp", "log2"})
_CLOSE = _CALLS | {"else", "neg"}
