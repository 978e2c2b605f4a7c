"""A compiled policy laid out for questions: rules by kind and property, values that can be compared.

Made once for an analysis from `compile`'s policy; every question reads it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import cast

from kvpolicy import words
from kvpolicy.language import syntax
from kvpolicy.language.phrase import phrase
from kvpolicy.policy.analysis.facets import FEW
from kvpolicy.policy.analysis.index import Index
from kvpolicy.policy.compiled import Rule
from kvpolicy.policy.matching import Matcher
from kvpolicy.policy.model import State, Subject
from kvpolicy.policy.policy import Policy

ALL_KINDS = tuple(words.SPAN_KINDS)
_COMPUTED = object()


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """`written`: the declarations behind a compiled rule, by its identity. `index`: how the rules stand to each other;
    `setting`: per property the rules that set it, as a set of the index."""

    policy: Policy
    written: dict[int, syntax.Rule]
    by_property: dict[str, tuple[Rule, ...]]
    index: Index
    setting: dict[str, int]

    def same_value(self, name: str, one: Rule, other: Rule) -> bool:
        """Whether two rules provably set a property to one value, in every state."""
        left, right = one.values[name], other.values[name]
        if left.fixed and right.fixed:
            return fixed_value(one, name) == fixed_value(other, name)
        return (
            left.fixed == right.fixed
            and left.terms == right.terms
            and self._shape(name, one) == self._shape(name, other)
        )

    def value_key(self, name: str, rule: Rule) -> Hashable:
        """What is equal for two rules exactly where `same_value` says so."""
        value = rule.values[name]
        return fixed_value(rule, name) if value.fixed else (_COMPUTED, value.terms, self._shape(name, rule))

    def _shape(self, name: str, rule: Rule) -> Hashable:
        """What a value is besides its expressions."""
        written = next(d.value for d in self.written[id(rule)].declarations if d.property == name)
        match written:
            case syntax.Hold():
                return ("hold", written.until.name if written.until else None, written.at_most is None)
            case syntax.Lasting():
                return ("lasting", written.fixed)
            case syntax.Ladder():
                return tuple((words.TIER_ALIASES.get(r.tier, r.tier), r.after is None) for r in written.rungs)
        return None

    def written_value(self, name: str, rule: Rule) -> str:
        """A property's value as its author wrote it."""
        found = next((d for d in self.written[id(rule)].declarations if d.property == name), None)
        return shown_value(found.value) if found is not None else ""


def view_of(policy: Policy, few: int = FEW) -> View:
    """Lay out a policy. `compile` keeps rules in the order of the files, which ties them to what was written."""
    sources = [rule for member in policy.files.members for rule in member.file.rules]
    written = {id(rule): source for rule, source in zip(policy.rules, sources, strict=True)}
    by_property: dict[str, list[Rule]] = {}
    for rule in policy.rules:
        for name in rule.values:
            by_property.setdefault(name, []).append(rule)
    index = Index(policy.rules, policy.order, few)
    setting = {name: index.bits(rules) for name, rules in by_property.items()}
    return View(policy, written, {name: tuple(rules) for name, rules in by_property.items()}, index, setting)


def fixed_value(rule: Rule, name: str) -> Hashable:
    """The value of a property that is the same in every state; None where it is computed or not set."""
    value = rule.values.get(name)
    if value is None or not value.fixed:
        return None
    found: Hashable = value.run(cast("Subject", None), cast("State", None))
    return found


def kinds_of(matches: Iterable[Matcher]) -> tuple[str, ...]:
    """The kinds that some matches reach."""
    named = {match.kind for match in matches}
    return ALL_KINDS if words.ANY_KIND in named else tuple(kind for kind in ALL_KINDS if kind in named)


def shown_value(value: syntax.PropertyValue) -> str:
    """A value in words."""
    match value:
        case syntax.Hold(duration=duration) if duration is not None:
            return f"hold {phrase(duration)}"
        case syntax.Hold(until=until) if until is not None:
            return f"hold until {until.name}"
        case syntax.Lasting():
            return phrase(value.duration) + (" fixed" if value.fixed else "")
        case syntax.Ladder():
            return ", ".join(r.tier + (f" after {phrase(r.after)}" if r.after else "") for r in value.rungs)
        case syntax.Hold():
            return "hold"
    return phrase(value)


def called(rule: Rule) -> str:
    """A rule as messages name it."""
    return f"'{rule.name}'" if rule.label else f"the rule at {rule.name}"
