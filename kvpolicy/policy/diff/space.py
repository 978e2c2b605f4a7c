"""The space in which two policies are compared: what rules can tell apart, and nothing finer.

A dimension is a span's kind, an attribute, an `on … until …`, or a quantity that guards compare. Its cells are the
values that no rule of either policy distinguishes, so a set of them is a number with a bit a cell, and every
condition is such a set. A box is one set a dimension. Read by `predicates`, `regions` and `words`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kvpolicy import words
from kvpolicy.policy.compiled import Clamp, Rule
from kvpolicy.policy.diff.cells import attribute_cells, quantity_cells, sample
from kvpolicy.policy.matching import holds
from kvpolicy.policy.order import interval_implies, phases_exclude
from kvpolicy.policy.terms import MIRRORED, Apply, Constant, Read, Term, parts

KIND, ATTRIBUTE, INTERVAL, QUANTITY, TRUTH = "kind", "attribute", "interval", "quantity", "truth"
CLOSED, OPEN = 1, 2  # the cells of an interval, and of a truth: no, yes

Key = tuple[str, object]
Box = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Dimension:
    """cells: values of which each stands for itself, a `Between`, OTHER for every string that is not named, or None for
    an attribute that the span does not have, a quantity without data."""

    kind: str
    name: object  # an attribute, (start, until) of an interval, or a term
    cells: tuple[object, ...]

    @property
    def all(self) -> int:
        """The set of every cell."""
        return (1 << len(self.cells)) - 1

    def where(self, operator: str, values: tuple[object, ...]) -> int:
        """The cells that meet a condition."""
        return sum(1 << i for i, cell in enumerate(self.cells) if holds(sample(cell), operator, values))


class Space:
    """The dimensions of two policies' rules and limits, by key and in a row."""

    def __init__(self, rules: Iterable[Rule], clamps: Iterable[Clamp]) -> None:
        rules = tuple(rules)
        self.dimensions: list[Dimension] = []
        self.index: dict[Key, int] = {}
        self._add(KIND, None, tuple(words.SPAN_KINDS))
        speaking: tuple[Rule | Clamp, ...] = (*rules, *clamps)
        for name, values in sorted(_named(speaking).items()):
            self._add(ATTRIBUTE, name, attribute_cells(words.ATTRIBUTES.get(name, "string"), values))
        for rule in rules:
            if rule.interval is not None:
                self._add(INTERVAL, (rule.interval.start, rule.interval.until), (False, True))
        compared: dict[Term, set[object]] = {}
        truths: dict[Term, None] = {}
        for rule in rules:
            for atom in () if rule.condition is None else _atoms(rule.condition):
                quantity = comparison(atom)
                if quantity is None:
                    truths[positive(atom)[0]] = None
                else:
                    compared.setdefault(quantity.quantity, set()).add(quantity.number)
        for term, values in compared.items():
            self._add(QUANTITY, term, quantity_cells(term, values))
        for term in truths:
            self._add(TRUTH, term, (False, True))
        self.implied = self._implied(rules)

    @property
    def whole(self) -> Box:
        """The box of everything."""
        return tuple(d.all for d in self.dimensions)

    def at(self, kind: str, name: object) -> int:
        """Where a dimension stands in a box."""
        return self.index[kind, name]

    def within(self, box: Box, at: int, cells: int) -> Box | None:
        """The part of a box with these cells of one dimension alone, and what follows for others; None for nothing."""
        left = list(box)
        waiting = [(at, cells)]
        while waiting:
            at, cells = waiting.pop()
            rest = left[at] & cells
            if not rest:
                return None
            if rest != left[at]:
                left[at] = rest
                waiting += self.implied.get((at, rest), ())
        return tuple(left)

    def relaxed(self, box: Box) -> Box:
        """A box without what follows from the rest of it: of boxes that say the same, one."""
        left = list(box)
        for at, cells in enumerate(box):
            for other, follows in self.implied.get((at, cells), ()) if cells == OPEN else ():
                if follows == CLOSED and left[other] == CLOSED:
                    left[other] = self.dimensions[other].all
        return tuple(left)

    def _add(self, kind: str, name: object, cells: tuple[object, ...]) -> None:
        if (kind, name) not in self.index:
            self.index[kind, name] = len(self.dimensions)
            self.dimensions.append(Dimension(kind, name, cells))

    def _implied(self, rules: Iterable[Rule]) -> Mapping[tuple[int, int], list[tuple[int, int]]]:
        """What an open or closed interval says of the others: those open with it, and those of other phases."""
        patterns = {r.interval: self.at(INTERVAL, (r.interval.start, r.interval.until)) for r in rules if r.interval}
        found: dict[tuple[int, int], list[tuple[int, int]]] = {}
        for one, here in patterns.items():
            for other, there in patterns.items():
                if here == there:
                    continue
                if phases_exclude(one, other):
                    found.setdefault((here, OPEN), []).append((there, CLOSED))
                elif interval_implies(one, other):
                    found.setdefault((here, OPEN), []).append((there, OPEN))
                    found.setdefault((there, CLOSED), []).append((here, CLOSED))
        return found


# --- what is compared in guards -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Comparison:
    """`p95(tool.duration) else 5s > 20s`: a quantity, an operator, a number, and what counts while there is no data."""

    quantity: Term
    operator: str
    number: float
    fallback: float | None = None


def comparison(term: Term) -> Comparison | None:
    """A comparison of a quantity with a number; None for what is none. Of `READ else NUMBER` the quantity is what is
    read, so that two of them with other numbers are about one thing."""
    if not isinstance(term, Apply) or term.operator not in MIRRORED:
        return None
    left, right = term.operands
    operator = term.operator
    if isinstance(left, Constant):
        left, right, operator = right, left, MIRRORED[operator]
    number = _number(right)
    if number is None or isinstance(left, Constant):
        return None
    if isinstance(left, Apply) and left.operator == "else" and isinstance(left.operands[0], Read):
        fallback = _number(left.operands[1])
        if fallback is not None:
            return Comparison(left.operands[0], operator, number, fallback)
    return Comparison(left, operator, number)


def _number(term: Term) -> float | None:
    value = term.value if isinstance(term, Constant) else None
    return None if isinstance(value, bool | str) else value


def positive(term: Term) -> tuple[Term, bool]:
    """A term that no number is compared in, without `not`, and whether there was none."""
    if isinstance(term, Apply) and term.operator == "not":
        return term.operands[0], False
    return term, True


def _atoms(term: Term) -> Iterable[Term]:
    if isinstance(term, Apply) and term.operator in ("and", "or"):
        for part in sorted(parts(term, term.operator), key=repr):
            yield from _atoms(part)
    elif not isinstance(term, Constant):
        yield term


def _named(speaking: Iterable[Rule | Clamp]) -> dict[str, set[object]]:
    found: dict[str, set[object]] = {}
    for one in speaking:
        for match in one.matches:
            for attribute, _, values in match.conditions:
                found.setdefault(attribute, set()).update(values)
    return found
