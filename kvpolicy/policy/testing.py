"""The test blocks of policies: run in a state made of their assumptions, reported row by row.

A row is one expected property of one span. A function that is reached while deciding an expected property must be
assumed, else the row is an error that names it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from kvpolicy import words
from kvpolicy.directive import Verdict
from kvpolicy.faults import Diagnostic, PolicyFault
from kvpolicy.language import syntax
from kvpolicy.policy.compiled import DEFAULT, Rule
from kvpolicy.policy.explain import explain
from kvpolicy.policy.model import Subject
from kvpolicy.policy.policy import Policy
from kvpolicy.policy.show import value_json, value_text
from kvpolicy.policy.snapshot import Snapshot
from kvpolicy.policy.values import compile_value


@dataclass(frozen=True, slots=True)
class Row:
    """One expectation. `got` and `expected` as JSON carries them; `error`: why it could not be decided."""

    span: str
    property: str
    expected: object
    got: object
    rule: str | None
    expected_rule: str | None
    line: int
    passed: bool
    error: str | None = None

    def as_json(self) -> dict[str, object]:
        """The row of `kvp test --format json`."""
        row: dict[str, object] = {
            "span": self.span,
            "property": self.property,
            "expected": self.expected,
            "got": self.got,
            "rule": self.rule,
            "line": self.line,
        }
        if self.expected_rule is not None:
            row["expected_rule"] = self.expected_rule
        if self.error is not None:
            row["error"] = self.error
        return row


@dataclass(frozen=True, slots=True)
class Outcome:
    """One test. `rows`: all of them; a report shows those that differ. `error`: the test itself cannot be run."""

    file: str
    name: str
    line: int
    rows: tuple[Row, ...]
    error: Diagnostic | None = None

    @property
    def passed(self) -> bool:
        """Whether everything expected came out, and something was expected."""
        return self.error is None and bool(self.rows) and all(r.passed for r in self.rows)

    def as_json(self) -> dict[str, object]:
        """The entry of `kvp test --format json`: only the rows that differ."""
        row: dict[str, object] = {
            "file": self.file,
            "name": self.name,
            "line": self.line,
            "passed": self.passed,
            "rows": [r.as_json() for r in self.rows if not r.passed],
        }
        if self.error is not None:
            row["error"] = self.error.message
        elif not self.rows:
            row["error"] = "this test expects nothing"
        return row


@dataclass(slots=True)
class Coverage:
    """Rule × property: which pairs decided at least once."""

    pairs: dict[str, None] = field(default_factory=dict)
    decided: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, policy: Policy) -> Coverage:
        """All pairs of a policy's rules."""
        return cls({f"{r.name}.{name}": None for r in policy.rules for name in r.values})

    def as_json(self) -> dict[str, object]:
        """`{"decided", "of", "never"}`."""
        never = [pair for pair in self.pairs if pair not in self.decided]
        return {"decided": len(self.pairs) - len(never), "of": len(self.pairs), "never": never}


@dataclass(frozen=True, slots=True)
class Results:
    """All tests of a run."""

    tests: tuple[Outcome, ...]
    coverage: Coverage

    @property
    def passed(self) -> int:
        """How many tests passed."""
        return sum(t.passed for t in self.tests)

    @property
    def failed(self) -> int:
        """How many did not."""
        return len(self.tests) - self.passed

    @property
    def fine(self) -> bool:
        """Whether there were tests and all passed: a run without tests has shown nothing."""
        return bool(self.tests) and not self.failed

    def as_json(self) -> dict[str, object]:
        """The document of `kvp test --format json`."""
        return {
            "tests": [t.as_json() for t in self.tests],
            "passed": self.passed,
            "failed": self.failed,
            "coverage": self.coverage.as_json(),
        }


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
        coverage.decided.add(f"{rule}.{name}")
    snapshot.missing.clear()
    got = DEFAULT if verdict is None else verdict.value
    same = type(got) is type(expected) and value_text(got) == value_text(expected)
    by_it = by is None or any(r.name == rule and by in _names(r) for r in policy.rules) or rule == by
    return Row(shown, name, value_json(expected), value_json(got), rule, by, line, same and by_it)


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
