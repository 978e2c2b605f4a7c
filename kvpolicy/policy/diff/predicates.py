"""When a rule or limit counts, as a formula over the cells of a `Space`: asked of a box it is yes, no, or not yet sure.

Made of compiled rules; `regions` asks it while it cuts boxes smaller.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kvpolicy import words
from kvpolicy.policy.compiled import Clamp, Rule
from kvpolicy.policy.diff.space import (
    ATTRIBUTE,
    INTERVAL,
    KIND,
    OPEN,
    QUANTITY,
    TRUTH,
    Box,
    Space,
    comparison,
    positive,
)
from kvpolicy.policy.matching import Matcher, holds
from kvpolicy.policy.terms import Apply, Constant, Term


@dataclass(frozen=True, slots=True)
class Lit:
    """That one dimension lies in a set of cells."""

    at: int
    cells: int


@dataclass(frozen=True, slots=True)
class All:
    """Every part; without parts, always."""

    of: tuple[Formula, ...]


@dataclass(frozen=True, slots=True)
class Any:
    """One part at least; without parts, never."""

    of: tuple[Formula, ...]


Formula = Lit | All | Any


def of_rule(rule: Rule, space: Space) -> Formula:
    """When a rule is a candidate: selector, interval and guard."""
    found: list[Formula] = [_selector(rule.matches, space)]
    if rule.interval is not None:
        found.append(Lit(space.at(INTERVAL, (rule.interval.start, rule.interval.until)), OPEN))
    if rule.condition is not None:
        found.append(_guard(rule.condition, space))
    return All(tuple(found))


def of_clamp(clamp: Clamp, space: Space) -> Formula:
    """When a limit bounds a span."""
    return _selector(clamp.matches, space)


def _selector(matches: Iterable[Matcher], space: Space) -> Formula:
    return Any(tuple(_match(match, space) for match in matches))


def _match(match: Matcher, space: Space) -> Formula:
    found: list[Formula] = []
    if match.kind != words.ANY_KIND:
        at = space.at(KIND, None)
        found.append(Lit(at, space.dimensions[at].where("=", (match.kind,))))
    for attribute, operator, values in match.conditions:
        at = space.at(ATTRIBUTE, attribute)
        found.append(Lit(at, space.dimensions[at].where(operator, values)))
    return All(tuple(found))


def _guard(term: Term, space: Space) -> Formula:
    if isinstance(term, Constant):
        return All(()) if term.value is True else Any(())
    if isinstance(term, Apply) and term.operator in ("and", "or"):
        of = tuple(_guard(part, space) for part in term.operands)
        return All(of) if term.operator == "and" else Any(of)
    quantity = comparison(term)
    if quantity is not None:
        at = space.at(QUANTITY, quantity.quantity)
        dimension = space.dimensions[at]
        cells = dimension.where(quantity.operator, (quantity.number,))
        if dimension.cells[0] is None and holds(quantity.fallback, quantity.operator, (quantity.number,)):
            cells |= 1  # while there is no data
        return Lit(at, cells)
    asked, plain = positive(term)
    at = space.at(TRUTH, asked)
    return Lit(at, OPEN if plain else space.dimensions[at].all & ~OPEN)


def within(formula: Formula, box: Box) -> bool | Formula:
    """Whether it holds in all of a box or in none; else what is still to be asked there. Of formulas that ask the same
    there, one."""
    if isinstance(formula, Lit):
        left = box[formula.at] & formula.cells
        if not left:
            return False
        return True if left == box[formula.at] else Lit(formula.at, left)
    decisive = isinstance(formula, Any)
    rest: dict[Formula, None] = {}
    for part in formula.of:
        found = within(part, box)
        if found is decisive:
            return decisive
        if not isinstance(found, bool):
            rest[found] = None
    if not rest:
        return not decisive
    if len(rest) == 1:
        return next(iter(rest))
    of = tuple(sorted(rest, key=repr))
    return Any(of) if decisive else All(of)


def first(formula: Formula) -> Lit:
    """A question that is still open in what `within` has left."""
    while not isinstance(formula, Lit):
        formula = min(formula.of, key=_depth)
    return formula


def _depth(formula: Formula) -> tuple[int, int]:
    """Kinds and attributes first, guards last: regions read best so."""
    return (1, 0) if not isinstance(formula, Lit) else (0, formula.at)
