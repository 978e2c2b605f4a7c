"""From the syntax tree to terms: names looked up, `let` and `with` replaced by what they stand for, constants folded.

Its input is what `check` has passed; what it meets all the same that has no meaning is raised as a PolicyFault.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kvpolicy import words
from kvpolicy.faults import Place, PolicyFault
from kvpolicy.language import syntax
from kvpolicy.language.codes import UNIT_MISMATCH, UNKNOWN_NAME, Code
from kvpolicy.policy.code import run_constant
from kvpolicy.policy.model import NEVER, EventPattern
from kvpolicy.policy.terms import Apply, Constant, Read, Term, size

_DEEPEST_LETS = 20  # names that stand for names
_LARGEST = 2000  # parts of one expression, names replaced

_WORD_VALUES: dict[str, float | bool] = {"yes": True, "no": False, "never": NEVER}


@dataclass(frozen=True, slots=True)
class Lets:
    """Every `let` of a file set, by group and name: what it stands for, and the group it was written in."""

    table: Mapping[tuple[str, str], tuple[syntax.Expression, str]] = field(default_factory=dict)
    settled: dict[tuple[str, ...], Term] = field(default_factory=dict, compare=False)

    def find(self, path: tuple[str, ...], group: str) -> tuple[syntax.Expression, str] | None:
        """The definition of a name as seen from a group, or None: `patience` there, `continuum.patience` anywhere."""
        inner = ".".join((*((group,) if group else ()), *path[:-1]))
        return self.table.get((inner, path[-1])) or self.table.get((".".join(path[:-1]), path[-1]))


def fault(code: Code, place: Place, message: str, fix: str | None = None) -> PolicyFault:
    """A PolicyFault of one diagnostic: what `check` should have refused before."""
    return PolicyFault((code.at(place, message, fix=fix),))


def event_pattern(event: syntax.Event, lets: Lets, group: str) -> EventPattern:
    """`tool_call[tool = grep]` with its conditions in a canonical order."""
    conditions = sorted(
        ((c.attribute, c.operator, condition_values(c, lets, group)) for c in event.conditions),
        key=lambda c: (c[0], c[1], tuple(map(repr, c[2]))),
    )
    return EventPattern(event.name, tuple(conditions))


def condition_values(condition: syntax.Condition, lets: Lets, group: str) -> tuple[object, ...]:
    """The values of a bracket condition: strings for string attributes, numbers in base units, truth values.

    A bare name is a string, except for an attribute that is a number, where it is a `let`.
    """
    kind = words.EVENT_ATTRIBUTES.get(condition.attribute, "string")
    found: list[object] = []
    for value in condition.values:
        if isinstance(value, syntax.Text):
            found.append(value.value)
        elif isinstance(value, syntax.Name):
            found.append(_named(value, kind, lets, group))
        elif kind in ("string", "status") and isinstance(value, syntax.Literal):
            found.append(value.text)
        else:
            found.append(_constant(value, lets, group))
    if condition.operator == "in":
        found = sorted(set(found), key=repr)
    return tuple(found)


def _named(name: syntax.Name, kind: str, lets: Lets, group: str) -> object:
    if kind == "bool":
        return _WORD_VALUES.get(name.path[0], name.path[0])
    if kind in ("string", "status"):
        return ".".join(name.path)
    return _constant(name, lets, group)


def _constant(value: syntax.Expression, lets: Lets, group: str) -> object:
    found = settle(value, lets, group)
    if not isinstance(found, Constant):
        raise fault(UNIT_MISMATCH, value.place, "a condition in brackets compares with a fixed value")
    return found.value


def settle(expression: syntax.Expression, lets: Lets, group: str, within: tuple[tuple[str, ...], ...] = ()) -> Term:
    """The term of an expression. Raises PolicyFault for a name that nothing defines or that defines itself."""
    match expression:
        case syntax.Literal():
            return Constant(expression.quantity.value)
        case syntax.Text():
            return Constant(expression.value)
        case syntax.Name(path=(word,)) if word in _WORD_VALUES:
            return Constant(_WORD_VALUES[word])
        case syntax.Name():
            return _let(expression, lets, group, within)
        case syntax.Call():
            return _call(expression, lets, group, within)
        case syntax.Unary():
            operand = settle(expression.operand, lets, group, within)
            return fold(Apply("not" if expression.operator == "not" else "neg", (operand,)))
        case syntax.Binary():
            left = settle(expression.left, lets, group, within)
            return fold(Apply(expression.operator, (left, settle(expression.right, lets, group, within))))
    raise AssertionError(expression)  # pragma: no cover


def _let(name: syntax.Name, lets: Lets, group: str, within: tuple[tuple[str, ...], ...]) -> Term:
    found = lets.find(name.path, group)
    written = ".".join(name.path)
    if found is None:
        raise fault(UNKNOWN_NAME, name.place, f"'{written}' is not defined", f"let {written} = …")
    definition, home = found
    mark = (home, *name.path)
    if mark in lets.settled:
        return lets.settled[mark]
    if mark in within:
        raise fault(UNKNOWN_NAME, name.place, f"'{written}' is defined by itself")
    if len(within) >= _DEEPEST_LETS:
        raise fault(UNIT_MISMATCH, name.place, f"'{written}' stands for more than {_DEEPEST_LETS} names in a row")
    term = settle(definition, lets, home, (*within, mark))
    if size(term, _LARGEST) > _LARGEST:
        raise fault(UNIT_MISMATCH, name.place, f"'{written}' stands for an expression too large to run")
    lets.settled[mark] = term
    return term


def _call(call: syntax.Call, lets: Lets, group: str, within: tuple[tuple[str, ...], ...]) -> Term:
    if call.function in ("min", "max", "clamp", "log2"):
        operands = tuple(settle(a, lets, group, within) for a in call.arguments)
        return fold(Apply(call.function, operands))
    limit = None if call.within is None else settle(call.within, lets, group, within)
    argument: str | EventPattern | None = None
    if call.arguments:
        first = call.arguments[0]
        argument = ".".join(first.path) if isinstance(first, syntax.Name) else str(getattr(first, "value", first))
        kinds = words.FUNCTIONS.get(call.function, ((), "", False))[0]
        if kinds == ("event",):
            argument = EventPattern(argument)
        elif kinds == ("tier",):
            argument = words.TIER_ALIASES.get(argument, argument)
    return Read(call.function, argument, limit)


def fold(term: Apply) -> Term:
    """An operator over constants is a constant, where the result is one."""
    if not all(isinstance(o, Constant) for o in term.operands):
        return term
    value = run_constant(term)
    return term if value is None else Constant(value)
