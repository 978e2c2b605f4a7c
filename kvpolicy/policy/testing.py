"""The test blocks of policies: run in a state made of their assumptions, reported row by row.

A row is one expected property of one span. A function that is reached while deciding an expected property must be
assumed, else the row is an error that names it.
"""

from __future__ import annotations

from collections.abc import Iterable

from kvpolicy import words
from kvpolicy.directive import Verdict
from kvpolicy.faults import PolicyFault
from kvpolicy.language import syntax
from kvpolicy.policy.compiled import DEFAULT, Rule
from kvpolicy.policy.explain import explain
from kvpolicy.policy.model import Subject
from kvpolicy.policy.passed import remarks, unheeded
from kvpolicy.policy.policy import Policy
from kvpolicy.policy.results import Coverage, Outcome, Results, Row, pair
from kvpolicy.policy.show import value_json, value_text
from kvpolicy.policy.snapshot import Snapshot
from kvpolicy.policy.values import compile_value


def run_tests(policy: Policy) -> Results:
    """Run every test block of the policy's own files (not those of the policies it uses)."""
    coverage = Coverage.of(policy)
    own = [m for m in policy.files.members if not m.group] or list(policy.files.members)
    outcomes = [_run(policy, member, test, coverage) for member in own for test in member.file.tests]
    return Results(tuple(outcomes), coverage)


def _run(policy: Policy, member: syntax.Member, test: syntax.Test, coverage: Coverage) -> Outcome:
    snapshot = Snapshot(policy.lets, member.group)
    spans: list[tuple[syntax.Match, Subject]] = []
    rows: list[Row] = []
    try:
        for step in test.steps:
            match step:
                case syntax.Given():
                    spans.append((step.span, snapshot.span(step.span, len(spans))))
                case syntax.Assume():
                    snapshot.assume(step.call, step.value, step.span)
                case syntax.At():
                    snapshot.happen(step.event)
                case syntax.Then():
                    snapshot.wait(step.duration)
                case syntax.Expect():
                    rows += _expect(policy, snapshot, member, step, spans, coverage)
    except PolicyFault as fault:
        return Outcome(member.file.name, test.name, test.place.line, tuple(rows), fault.diagnostics[0])
    return Outcome(member.file.name, test.name, test.place.line, tuple(rows))


def _expect(
    policy: Policy,
    snapshot: Snapshot,
    member: syntax.Member,
    step: syntax.Expect,
    spans: list[tuple[syntax.Match, Subject]],
    coverage: Coverage,
) -> Iterable[Row]:
    reached = snapshot.compiled(step.span)
    subjects = [s for _, s in spans if reached.matches(s.kind, s.attributes)]
    shown = span_text(step.span)
    if not subjects:
        kinds = {s.kind for _, s in spans}
        if step.span.kind in kinds or step.span.kind == words.ANY_KIND:
            message = f"no given span is {shown}"
            for declaration in step.declarations:
                yield Row(shown, declaration.property, None, None, None, None, declaration.place.line, False, message)
            return
        subjects = [snapshot.span(step.span, len(spans))]  # what is expected of a span not given is said of it alone
    for subject in subjects:
        for declaration in step.declarations:
            yield _row(policy, snapshot, member, shown, subject, declaration, coverage)


def _row(
    policy: Policy,
    snapshot: Snapshot,
    member: syntax.Member,
    shown: str,
    subject: Subject,
    declaration: syntax.Declaration,
    coverage: Coverage,
) -> Row:
    name, line = declaration.property, declaration.place.line
    expected = compile_value(declaration, policy.lets, member.group).run(subject, snapshot)
    by = None if declaration.by is None else ".".join(declaration.by)
    snapshot.missing.clear()
    verdict = policy.decide(name, subject, snapshot)
    asked = tuple(snapshot.missing)
    snapshot.missing.clear()
    if asked:
        calls = ", ".join(asked)
        error = f"{name} of {shown} depends on {calls}, which this test does not assume; add `assume {asked[0]} = …`"
        return Row(shown, name, value_json(expected), None, None, by, line, False, error)
    rule = _deciding(policy, subject, snapshot, name, verdict)
    if rule is not None:
        coverage.decided.add(pair(rule, name))
    snapshot.missing.clear()
    got = DEFAULT if verdict is None else verdict.value
    same = type(got) is type(expected) and value_text(got) == value_text(expected)
    by_it = by is None or any(r.name == rule and by in _names(r) for r in policy.rules) or rule == by
    fits = same and by_it
    notes = () if fits else _notes(policy, subject, snapshot, rule, verdict)
    return Row(shown, name, value_json(expected), value_json(got), rule, by, line, fits, None, notes)


def _notes(
    policy: Policy, subject: Subject, snapshot: Snapshot, rule: str | None, verdict: Verdict | None
) -> tuple[str, ...]:
    """What helps where another value came out than expected."""
    deciding = next((one for one in policy.rules if one.name == rule), None)
    return (*remarks(verdict, deciding, subject, snapshot), *unheeded(snapshot.events, subject))


def _names(rule: Rule) -> set[str]:
    """How a test may name a rule: LABEL, GROUP.LABEL, LAYER.LABEL, GROUP.LAYER.LABEL, or FILE:LINE."""
    if rule.label is None:
        return {rule.name}
    return {rule.name, rule.label, f"{rule.layer[1]}.{rule.label}", f"{rule.layer_name}.{rule.label}"}


def _deciding(policy: Policy, subject: Subject, snapshot: Snapshot, name: str, verdict: Verdict | None) -> str | None:
    if verdict is not None:
        return verdict.rule
    decided = explain(policy, subject, snapshot, (name,)).properties
    return decided[0].rule.name if decided and decided[0].rule is not None else None


def span_text(match: syntax.Match) -> str:
    """A match as written, without needless parts: `turn`, `turn[agent = coder]`."""
    conditions = []
    for condition in match.conditions:
        values = [_value_text(v) for v in condition.values]
        value = "{" + ", ".join(values) + "}" if condition.operator == "in" else "".join(values)
        conditions.append(f"{condition.attribute} {condition.operator} {value}")
    return match.kind + (f"[{', '.join(conditions)}]" if conditions else "")


def _value_text(value: syntax.Expression) -> str:
    match value:
        case syntax.Literal():
            return value.text
        case syntax.Text():
            return f'"{value.value}"'
        case syntax.Name():
            return ".".join(value.path)
    return "…"
