"""Test blocks: spans and events stated as facts, functions that exist, properties and rules that exist."""

from __future__ import annotations

from kvpolicy import words
from kvpolicy.language import codes, syntax
from kvpolicy.language.check_conditions import check_event, check_match
from kvpolicy.language.check_names import rule_known, twice_in, unknown
from kvpolicy.language.check_values import check_value
from kvpolicy.language.phrase import phrase
from kvpolicy.language.typer import Typer
from kvpolicy.language.types import INT, PARTS, PLAIN

_NOTHING = frozenset({("nothing",), ("never",)})


def check_tests(files: syntax.FileSet, typer: Typer) -> None:
    """Every test of every file."""
    for member in files.members:
        for test in member.file.tests:
            for step in test.steps:
                _step(step, member.group, typer)


def _step(step: syntax.TestStep, group: str, typer: Typer) -> None:
    match step:
        case syntax.Given(span=span):
            check_match(span, group, typer)
            if span.kind == words.ANY_KIND:
                message = "a span of a test has one kind"
                typer.faults.append(codes.UNIT_MISMATCH.at(span.place, message, fix="write a kind, such as `turn`"))
            _facts(span.conditions, typer)
        case syntax.Assume():
            _assume(step, group, typer)
        case syntax.At(event=event):
            check_event(event, group, typer)
            _facts(event.conditions, typer)
        case syntax.Then(duration=duration):
            typer.duration(duration, group, "the time that passes")
        case syntax.Expect():
            check_match(step.span, group, typer)
            _expect(step, group, typer)


def _facts(conditions: tuple[syntax.Condition, ...], typer: Typer) -> None:
    """What is given is so: `agent = coder`, no comparison."""
    for condition in conditions:
        if condition.operator != "=":
            message = f"a test states that '{condition.attribute}' is something, not `{condition.operator}`"
            fix = f"write `{condition.attribute} = …`"
            typer.faults.append(codes.UNIT_MISMATCH.at(condition.place, message, fix=fix))


def _assume(step: syntax.Assume, group: str, typer: Typer) -> None:
    if step.span is not None:
        check_match(step.span, group, typer)
    if step.call.function in {"min", "max", "clamp"}:
        message = f"{step.call.function} is worked out, never assumed"
        typer.faults.append(codes.UNIT_MISMATCH.at(step.call.place, message, fix="assume what it works on"))
        return
    wanted = typer.infer(step.call, group)
    if isinstance(step.value, syntax.Name) and step.value.path in _NOTHING:
        return
    found = typer.solid(step.value, group)
    if "?" in (wanted.kind, found.kind) or wanted.kind == found.kind:
        return
    if wanted.kind in PLAIN and found.kind in PLAIN and wanted.kind != INT:
        return
    if wanted.kind in PARTS and found.kind in PARTS:
        return
    typer.needs(step.value, group, f"'{phrase(step.call)}'", wanted.kind, lambda kind: False)


def _expect(step: syntax.Expect, group: str, typer: Typer) -> None:
    twice_in(step.declarations, typer.faults)
    for declaration in step.declarations:
        if declaration.property not in words.PROPERTIES:
            typer.faults.append(unknown("property", declaration.property, declaration.place, words.PROPERTIES))
            continue
        _expected_value(declaration, group, typer)
        by = declaration.by
        if by is not None and not rule_known(by, group, typer.scope) and ".".join(by) not in typer.scope.places:
            known = (*typer.scope.rule_names(group), *sorted(typer.scope.places))
            typer.faults.append(unknown("rule", ".".join(by), declaration.place, known, told=len(typer.faults)))


def _expected_value(declaration: syntax.Declaration, group: str, typer: Typer) -> None:
    """What is expected is a value of the property; `prefetch` and `admit` come out as yes, no or a time."""
    check_value(declaration.property, declaration.value, group, typer)
