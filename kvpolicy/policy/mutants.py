"""A policy with one thing changed, in every way that ought to matter: what tests are tried against.

Takes a file set, gives others that differ from it in one rule, property, condition, number or limit of its own files.
`mutate` runs the tests on each.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from kvpolicy import units, words
from kvpolicy.faults import Place
from kvpolicy.language import syntax
from kvpolicy.language.phrase import phrase
from kvpolicy.units import Quantity, format_quantity

_WORDS: dict[str, tuple[str, ...]] = {
    "for": words.LIFETIMES,
    "place": words.PLACES,
    "share": words.SHARES,
    "retention": ("normal", "drop", "pin"),
}
_NOT_NOTHING = 3600.0  # in place of a 0
_MANY = 10  # counts above it are made one less: what is cut off at an end differs below it
_SKIPPED = frozenset({"text", "place", "over_places"})
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Mutant:
    """`change`: what was done, in words; `files`: the set with it."""

    place: Place
    change: str
    files: syntax.FileSet


def mutants(files: syntax.FileSet) -> Iterator[Mutant]:
    """Every mutant of the rules, limits and names of a set's own files."""
    own = [m for m in files.members if not m.group] or list(files.members)
    for member in own:
        file = member.file
        changed: list[tuple[Place, str, syntax.File]] = []
        for i, rule in enumerate(file.rules):
            name = f"'{rule.label}'" if rule.label else "the rule"
            changed.append((rule.place, f"{name} deleted", replace(file, rules=_without(file.rules, i))))
            for place, change, rules in _of_rule(rule):
                changed.append((place, f"{name}: {change}", replace(file, rules=_with(file.rules, i, rules))))
        for i, limit in enumerate(file.limits):
            changed.append((limit.place, "the limit deleted", replace(file, limits=_without(file.limits, i))))
            in_bounds = [(p, c, replace(limit, bounds=bounds)) for p, c, bounds in _numbers(limit.bounds)]
            for place, change, part in (*_conditions(limit), *in_bounds):
                changed.append((place, f"the limit: {change}", replace(file, limits=_with(file.limits, i, part))))
        for i, let in enumerate(file.lets):
            for place, change, named in _numbers(let):
                changed.append((place, f"let {let.name}: {change}", replace(file, lets=_with(file.lets, i, named))))
        for place, change, other in changed:
            members = tuple(replace(m, file=other) if m is member else m for m in files.members)
            yield Mutant(place, change, syntax.FileSet(members))


def _of_rule(rule: syntax.Rule) -> Iterator[tuple[Place, str, syntax.Rule]]:
    if rule.interval is not None:
        yield rule.interval.place, f"stands without `on {rule.interval.start.name}`", replace(rule, interval=None)
        for place, change, interval in (*_conditions_of_event(rule.interval), *_numbers(rule.interval)):
            yield place, change, replace(rule, interval=interval)
    if rule.guard is not None:
        yield rule.guard.place, f"without `when {phrase(rule.guard)}`", replace(rule, guard=None)
        for place, change, guard in _numbers(rule.guard):
            yield place, change, replace(rule, guard=guard)
    for i, path in enumerate(rule.over):
        yield rule.over_places[i], f"not over '{'.'.join(path)}'", _not_over(rule, i)
    yield from _conditions(rule)
    for i, declaration in enumerate(rule.declarations):
        name = declaration.property
        if len(rule.declarations) > 1:
            yield declaration.place, f"`{name}` deleted", replace(rule, declarations=_without(rule.declarations, i))
        for place, change, other in (*_numbers(declaration), *_other_word(declaration)):
            yield place, f"{name}: {change}", replace(rule, declarations=_with(rule.declarations, i, other))


def _not_over(rule: syntax.Rule, at: int) -> syntax.Rule:
    return replace(rule, over=_without(rule.over, at), over_places=_without(rule.over_places, at))


S = TypeVar("S", syntax.Rule, syntax.Limit)


def _conditions(part: S) -> Iterator[tuple[Place, str, S]]:
    """One match less, one condition less, another number in a condition."""
    for i, match in enumerate(part.selector):
        if len(part.selector) > 1:
            yield match.place, f"not for `{match.kind}`", replace(part, selector=_without(part.selector, i))
        for j, condition in enumerate(match.conditions):
            fewer = replace(match, conditions=_without(match.conditions, j))
            said = f"without `{condition.attribute} {condition.operator} …`"
            yield condition.place, said, replace(part, selector=_with(part.selector, i, fewer))
        for place, change, other in _numbers(match):
            yield place, change, replace(part, selector=_with(part.selector, i, other))


def _conditions_of_event(interval: syntax.Interval) -> Iterator[tuple[Place, str, syntax.Interval]]:
    for i, condition in enumerate(interval.start.conditions):
        event = replace(interval.start, conditions=_without(interval.start.conditions, i))
        yield condition.place, f"without `{condition.attribute} {condition.operator} …`", replace(interval, start=event)


def _numbers(node: T) -> Iterator[tuple[Place, str, T]]:
    """A part of the tree with one of its numbers changed."""
    if isinstance(node, syntax.Literal):
        other = _other(node.quantity)
        text = format_quantity(other.value, other.unit)
        changed: Any = syntax.Literal(other, text, node.place)
        yield node.place, f"{text} for {node.text}", changed
        return
    if isinstance(node, tuple):
        for i, one in enumerate(node):
            for place, change, part in _numbers(one):
                several: Any = _with(node, i, part)
                yield place, change, several
        return
    if not dataclasses.is_dataclass(node) or isinstance(node, type | Place | Quantity):
        return
    for field in dataclasses.fields(node):
        if field.name not in _SKIPPED:
            for place, change, part in _numbers(getattr(node, field.name)):
                whole: Any = replace(node, **{field.name: part})
                yield place, change, whole


def _other(quantity: Quantity) -> Quantity:
    """A near one of a count, half of a share, twice of anything else; an hour for no time."""
    value, unit = quantity.value, quantity.unit
    if unit == units.COUNT:
        step = 1 if quantity.whole else max(abs(value) * 0.1, 0.001)
        return Quantity(value - step if value > _MANY else value + step, unit, quantity.whole)
    if unit == units.PERCENT:
        return Quantity(value / 2 or 0.5, unit, quantity.whole)
    return Quantity(value * 2 or _NOT_NOTHING, unit, quantity.whole)


def _other_word(declaration: syntax.Declaration) -> Iterator[tuple[Place, str, syntax.Declaration]]:
    """Another word for a value that is one; a ladder without its last step; a hold that is none."""
    name, value = declaration.property, declaration.value
    other: syntax.PropertyValue | None = None
    text = ""
    if isinstance(value, syntax.Name) and len(value.path) == 1:
        word = value.path[0]
        known = _WORDS.get(name, ())
        if word in known:
            text = known[(known.index(word) + 1) % len(known)]
        elif word in ("yes", "no"):
            text = "no" if word == "yes" else "yes"
        elif word == "default" and name == "priority":
            text = str(words.DEFAULT_PRIORITY + 1)
            quantity = Quantity(float(words.DEFAULT_PRIORITY + 1), units.COUNT)
            other = syntax.Literal(quantity, text, value.place)
        if text and other is None:
            other = syntax.Name((text,), value.place)
        text = f"{text} for {word}"
    elif isinstance(value, syntax.Hold):
        other, text = syntax.Name(("normal",), value.place), "normal for the hold"
    elif isinstance(value, syntax.Ladder) and len(value.rungs) > 1:
        other, text = replace(value, rungs=value.rungs[:-1]), f"without its step {value.rungs[-1].tier}"
    elif isinstance(value, syntax.Ladder) and value.rungs:
        tier = words.TIER_ALIASES.get(value.rungs[0].tier, value.rungs[0].tier)
        lower = words.TIERS[(words.TIERS.index(tier) + 1) % len(words.TIERS)] if tier in words.TIERS else "cpu"
        other = replace(value, rungs=(replace(value.rungs[0], tier=lower),))
        text = f"{lower} for {value.rungs[0].tier}"
    elif isinstance(value, syntax.Lasting):
        other, text = replace(value, fixed=not value.fixed), "not fixed" if value.fixed else "fixed"
    if other is not None:
        yield declaration.place, text, replace(declaration, value=other)


def _without(row: tuple[T, ...], at: int) -> tuple[T, ...]:
    return (*row[:at], *row[at + 1 :])


def _with(row: tuple[T, ...], at: int, other: T) -> tuple[T, ...]:
    return (*row[:at], other, *row[at + 1 :])
