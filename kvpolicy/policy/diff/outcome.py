"""What comes out for one property: values that can be compared across policies, limits applied.

A value that is fixed is compared as what it is, a computed one by its expression with every `let` written out. Made
of the rules that are left unbeaten in a box; `regions` compares the outcomes of two policies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import cast

from kvpolicy import words
from kvpolicy.directive import HOLD, PIN, Retention
from kvpolicy.language import syntax
from kvpolicy.language.phrase import phrase
from kvpolicy.policy.compiled import DEFAULT, Clamp, Rule
from kvpolicy.policy.limits import apply_clamps
from kvpolicy.policy.model import State, Subject
from kvpolicy.policy.policy import Policy
from kvpolicy.policy.settle import Lets
from kvpolicy.policy.show import value_text
from kvpolicy.policy.terms import Constant

_NOBODY = cast("Subject", None), cast("State", None)
UNSET = "not set"


@dataclass(frozen=True, slots=True)
class Outcome:
    """key: equal where two outcomes are the same in every state. text: the value; of a computed one, its expression.
    rule: who decides, None where nobody does; `limited`: the limits that bear on it."""

    key: object
    text: str = field(compare=False)
    rule: Rule | None = field(compare=False)
    limited: tuple[str, ...] = field(compare=False, default=())


class Values:
    """The values of one policy's rules for one property."""

    def __init__(self, policy: Policy, property: str) -> None:
        self.property = property
        sources = [(member, rule) for member in policy.files.members for rule in member.file.rules]
        self._written: dict[int, tuple[syntax.Declaration, str]] = {}
        for rule, (member, source) in zip(policy.rules, sources, strict=True):
            for declaration in source.declarations:
                if declaration.property == property:
                    self._written[id(rule)] = (declaration, member.group)
        self._lets = policy.lets
        self._keys: dict[int, object] = {}

    def key(self, rule: Rule) -> object:
        """What a rule sets the property to, comparable across policies; UNSET for `default`."""
        if id(rule) not in self._keys:
            self._keys[id(rule)] = self._key(rule)
        return self._keys[id(rule)]

    def _key(self, rule: Rule) -> object:
        value = rule.values[self.property]
        found: object
        if value.fixed:
            found = value.run(*_NOBODY)
            if found is DEFAULT:
                return UNSET
            protects = isinstance(found, Retention) and found.mode in (HOLD, PIN)
        else:
            declaration, _ = self._written[id(rule)]
            found = ("computed", _shape(declaration.value), value.terms)
            protects = self.property == "retention"
        if protects and rule.interval is not None:  # it counts from the event, and ends with the interval's bound
            return (found, rule.interval.start.name, rule.interval.at_most)
        return found

    def outcome(self, unbeaten: Sequence[Rule], clamps: Iterable[Clamp]) -> Outcome:
        """What several rules that agree, or nobody, and these limits give."""
        rule = min(unbeaten, key=lambda r: (str(self.key(r)), r.name), default=None)
        bearing = [c for c in clamps if rule is not None or self.property == "priority"]
        key = UNSET if rule is None else self.key(rule)
        fixed = rule is None or rule.values[self.property].fixed
        if not fixed or not all(isinstance(c.term, Constant) for c in bearing):
            limits = frozenset((c.side, c.term) for c in bearing)
            text = UNSET if rule is None else self.text(rule)
            return Outcome((key, limits) if limits else key, text, rule, tuple(sorted({c.name for c in bearing})))
        value = None if rule is None or key is UNSET else rule.values[self.property].run(*_NOBODY)
        limited, by = apply_clamps(self.property, value, bearing, *_NOBODY)
        if limited is None:
            return Outcome(UNSET, UNSET, rule)
        if by is not None:
            place = key[1:] if isinstance(key, tuple) and isinstance(limited, Retention) else ()
            key = (limited, *place) if place else limited
        return Outcome(key, value_text(limited), rule, () if by is None else (by,))

    def text(self, rule: Rule) -> str:
        """A rule's value, a computed one as written, with what its names stand for."""
        value = rule.values[self.property]
        if value.fixed:
            found = value.run(*_NOBODY)
            return UNSET if found is DEFAULT else value_text(found)
        declaration, group = self._written[id(rule)]
        return _shown(declaration.value, lambda e: phrase(written_out(e, self._lets, group)))


def _shape(value: syntax.PropertyValue) -> object:
    """What a value is besides its expressions."""
    match value:
        case syntax.Hold():
            return ("hold", value.until.name if value.until else None, value.at_most is None)
        case syntax.Lasting():
            return ("lasting", value.fixed)
        case syntax.Ladder():
            return tuple((words.TIER_ALIASES.get(r.tier, r.tier), r.after is None) for r in value.rungs)
    return None


def _shown(value: syntax.PropertyValue, show: Callable[[syntax.Expression], str]) -> str:
    match value:
        case syntax.Hold():
            start = f"hold until {value.until.name}" if value.until else "hold"
            start += f" {show(value.duration)}" if value.duration else ""
            return start + (f" at most {show(value.at_most)}" if value.at_most else "")
        case syntax.Lasting():
            return f"{show(value.duration)}{' fixed' if value.fixed else ''}"
        case syntax.Ladder():
            rungs = (r.tier + (f" after {show(r.after)}" if r.after else "") for r in value.rungs)
            return ", ".join(rungs)
    return show(value)


def written_out(node: syntax.Expression, lets: Lets, group: str, depth: int = 0) -> syntax.Expression:
    """An expression with what its names stand for in their place."""
    if depth > 20:
        return node
    match node:
        case syntax.Name():
            found = lets.find(node.path, group)
            return node if found is None else written_out(found[0], lets, found[1], depth + 1)
        case syntax.Unary():
            return syntax.Unary(node.operator, written_out(node.operand, lets, group, depth + 1), node.place)
        case syntax.Binary():
            left = written_out(node.left, lets, group, depth + 1)
            return syntax.Binary(node.operator, left, written_out(node.right, lets, group, depth + 1), node.place)
        case syntax.Call():
            inner = tuple(written_out(a, lets, group, depth + 1) for a in node.arguments)
            inner = inner if node.function in ("min", "max", "clamp", "log2") else node.arguments
            return syntax.Call(node.function, inner, node.within, node.place)
    return node
