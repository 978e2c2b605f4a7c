"""What came of a policy's tests: rows, tests, and which rule decided what. Made by `testing`, shown by `kvp test`."""

from __future__ import annotations

from dataclasses import dataclass, field

from kvpolicy.faults import Diagnostic
from kvpolicy.policy.policy import Policy


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
    notes: tuple[str, ...] = ()  # on a row that differs: what of the decision is over already, or only lingers

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
        if self.notes:
            row["notes"] = list(self.notes)
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
    """Rule × property: which pairs decided at least once. `own`: of the rules in the files that were named; `used`: of
    the policies that these use, whose own tests are elsewhere."""

    own: tuple[str, ...]  # in the order of the files
    used: tuple[str, ...]
    decided: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, policy: Policy) -> Coverage:
        """All pairs of a policy's rules."""
        own: dict[str, None] = {}  # two rules without a label on one line have one name
        used: dict[str, None] = {}
        for rule in policy.rules:
            (used if rule.group else own).update((pair(rule.name, name), None) for name in rule.values)
        return cls(tuple(own), tuple(used))

    def as_json(self) -> dict[str, object]:
        """`{"decided", "of", "never", "used": {"decided", "of"}}`; `never` names pairs of the named files only."""
        never = [one for one in self.own if one not in self.decided]
        return {
            "decided": len(self.own) - len(never),
            "of": len(self.own),
            "never": never,
            "used": {"decided": sum(one in self.decided for one in self.used), "of": len(self.used)},
        }


def pair(rule: str, property: str) -> str:
    """`slow_tool.tier`."""
    return f"{rule}.{property}"


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
