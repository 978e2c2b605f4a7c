"""What stands in brackets: kinds, events, attributes, and values that fit them. Used by the passes of `check`."""

from __future__ import annotations

from kvpolicy import units, words
from kvpolicy.language import codes, syntax
from kvpolicy.language.build_expressions import BROKEN
from kvpolicy.language.check_names import unknown
from kvpolicy.language.phrase import phrase
from kvpolicy.language.typer import Typer
from kvpolicy.language.types import spoken, unit_missing

MOST_MATCHES, MOST_CONDITIONS = 256, 100  # of a selector, of a pair of brackets
_ORDERED = frozenset({"<", "<=", ">", ">="})
_ADVICE = {
    "int": "a whole number",
    "tokens": "a token count, such as 8k",
    "number": "a number",
    "bool": "yes or no",
    "duration": "a duration, such as 30s",
    "string": "a name or a text in quotes",
}
# What a `let` or a literal may be for an attribute of a type.
_FITS: dict[str, frozenset[str]] = {
    "int": frozenset({"int"}),
    "tokens": frozenset({"int", "tokens"}),
    "number": frozenset({"int", "number", "ratio", "probability"}),
    "duration": frozenset({"duration"}),
}


def check_selector(selector: tuple[syntax.Match, ...], group: str, typer: Typer) -> None:
    """The matches of a rule or limit. Of very many, only that they are too many is told: each would be compared with
    those of every other rule."""
    if len(selector) > MOST_MATCHES:
        message = f"a selector has at most {MOST_MATCHES} matches, and this one has {len(selector):,}"
        fix = "write one match for many names, such as `turn[agent in {a, b}]`"
        typer.faults.append(codes.OUT_OF_RANGE.at(selector[MOST_MATCHES].place, message, fix=fix))
        return
    for match in selector:
        check_match(match, group, typer)


def check_match(match: syntax.Match, group: str, typer: Typer) -> None:
    """A kind that exists, and its conditions."""
    if match.kind not in words.SPAN_KINDS and match.kind != words.ANY_KIND:
        known = (*words.SPAN_KINDS, words.ANY_KIND)
        typer.faults.append(unknown("span kind", match.kind, match.place, known))
    _check_all(match.conditions, words.ATTRIBUTES, "attribute", group, typer)


def check_event(event: syntax.Event, group: str, typer: Typer) -> None:
    """An event that exists, and its conditions."""
    if event.name not in words.EVENTS:
        meant = words.EVENT_ALIASES.get(event.name)
        known = words.EVENTS if meant is None else {meant: ""}
        leads = [of for of, phase in words.PHASE_AFTER.items() if phase == event.name]
        if leads:
            message = f"'{event.name}' is a phase, not an event; what leads to it: {', '.join(leads)}"
            typer.faults.append(codes.UNKNOWN_NAME.at(event.place, message, fix=f"write `{leads[0]}`"))
            return
        typer.faults.append(unknown("event", event.name, event.place, known, meant and f"write `{meant}`"))
    _check_all(event.conditions, words.EVENT_ATTRIBUTES, "attribute of events", group, typer)


def _check_all(
    conditions: tuple[syntax.Condition, ...], table: dict[str, str], what: str, group: str, typer: Typer
) -> None:
    if len(conditions) > MOST_CONDITIONS:
        message = f"brackets hold at most {MOST_CONDITIONS} conditions, and these hold {len(conditions):,}"
        fix = "write one condition for many values, such as `agent in {a, b}`"
        typer.faults.append(codes.OUT_OF_RANGE.at(conditions[MOST_CONDITIONS].place, message, fix=fix))
        return
    for condition in conditions:
        check_condition(condition, table, what, group, typer)


def check_condition(condition: syntax.Condition, table: dict[str, str], what: str, group: str, typer: Typer) -> None:
    """An attribute that exists, a comparison that its type knows, and values of that type."""
    kind = table.get(condition.attribute)
    if kind is None:
        typer.faults.append(unknown(what, condition.attribute, condition.place, table))
        return
    if condition.operator in _ORDERED and kind in {"string", "status", "bool"}:
        message = f"'{condition.attribute}' knows no `{condition.operator}`: it is {_what(kind)}"
        fix = "compare it with `=`, `!=` or `in {…}`"
        typer.faults.append(codes.UNIT_MISMATCH.at(condition.place, message, fix=fix))
        return
    for value in condition.values:
        _value(condition.attribute, kind, value, group, typer)


def _what(kind: str) -> str:
    return {"string": "a name", "status": "one of a few words", "bool": "yes or no"}.get(kind, kind)


def _value(attribute: str, kind: str, value: syntax.Expression, group: str, typer: Typer) -> None:
    if isinstance(value, syntax.Name) and value.path == BROKEN:
        return
    if kind == "string":
        if isinstance(value, syntax.Literal):
            message = f"'{attribute}' is a name, and {value.text} is a number"
            typer.faults.append(codes.UNIT_MISMATCH.at(value.place, message, fix=f'write "{value.text}"'))
    elif kind == "status":
        written = value.path[0] if isinstance(value, syntax.Name) else phrase(value).strip('"')
        if written not in words.STATUSES:
            typer.faults.append(unknown("status", written, value.place, words.STATUSES))
    elif kind == "bool":
        if not (isinstance(value, syntax.Name) and value.path in {("yes",), ("no",)}):
            _refuse(attribute, kind, value, typer)
    elif isinstance(value, syntax.Literal):
        _number(attribute, kind, value, typer)
    elif isinstance(value, syntax.Name):
        _named(attribute, kind, value, group, typer)
    else:
        _refuse(attribute, kind, value, typer)


def _named(attribute: str, kind: str, value: syntax.Name, group: str, typer: Typer) -> None:
    """A `let` in brackets."""
    key = typer.scope.find_let(value.path, group)
    if key is None:
        if value.path[-1] not in typer.scope.lost:
            _refuse(attribute, kind, value, typer)
        return
    found = typer.let(key)
    if found.kind != "?" and (found.kind not in _FITS[kind] or found.maybe):
        message = f"'{attribute}' is compared with {_ADVICE[kind]}, and '{value.path[0]}' is {spoken(found.kind)}"
        typer.faults.append(codes.UNIT_MISMATCH.at(value.place, message))


def _number(attribute: str, kind: str, value: syntax.Literal, typer: Typer) -> None:
    quantity = value.quantity
    wanted = {"tokens": {units.TOKENS, units.COUNT}, "duration": {units.DURATION}}.get(kind, {units.COUNT})
    if quantity.unit not in wanted:
        if kind == "duration" and quantity.unit == units.COUNT:
            typer.faults.append(unit_missing(value, "duration", f"'{attribute}'"))
        else:
            _refuse(attribute, kind, value, typer)
    elif kind in {"int", "tokens"} and quantity.value != int(quantity.value):
        message = f"'{attribute}' counts in whole numbers, and this is {value.text}"
        typer.faults.append(codes.UNIT_MISMATCH.at(value.place, message, fix="write a whole number"))
    elif kind in {"tokens", "duration"} and quantity.value < 0:
        message = f"'{attribute}' is never negative, and this is {value.text}"
        typer.faults.append(codes.OUT_OF_RANGE.at(value.place, message, fix="write 0 or more"))


def _refuse(attribute: str, kind: str, value: syntax.Expression, typer: Typer) -> None:
    message = f"'{attribute}' is compared with {_ADVICE[kind]}, not with '{phrase(value)}'"
    typer.faults.append(codes.UNIT_MISMATCH.at(value.place, message, fix=f"write {_ADVICE[kind]}"))
