"""What can be wrong, as values.

Inside, a fault is a `Diagnostic`, collected and returned. Only the edge (command line, service, the public
Python face) raises. The exception tree:

    KvpError                 everything this package raises on purpose
      PolicyFault            a policy that does not parse or does not pass its checks; carries the diagnostics
      InputFault             a file, a trace, a request or a call that cannot be used
"""

from __future__ import annotations

from dataclasses import dataclass, field

ERROR, WARNING, NOTICE = "error", "warning", "notice"


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """A point in a text: file as the author named it, line and column from 1; the end is exclusive."""

    file: str
    line: int
    column: int
    end_line: int = 0
    end_column: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


@dataclass(frozen=True, slots=True)
class Note:
    """A second place that belongs to a fault."""

    place: Place
    message: str


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One fault of a policy: one message in the author's words, and what to write instead."""

    code: str  # KVP101
    name: str  # unknown-name
    severity: str  # ERROR, WARNING or NOTICE
    place: Place
    message: str
    notes: tuple[Note, ...] = ()
    witness: dict[str, object] | None = None  # a span (kind and attributes) that shows the fault
    fix: str | None = None

    def as_json(self) -> dict[str, object]:
        """The row of `kvp check --format json`."""
        row: dict[str, object] = {
            "code": self.code,
            "name": self.name,
            "severity": self.severity,
            "line": self.place.line,
            "column": self.place.column,
            "message": self.message,
            "notes": [
                {"file": n.place.file, "line": n.place.line, "column": n.place.column, "message": n.message}
                for n in self.notes
            ],
        }
        if self.witness is not None:
            row["witness"] = self.witness
        if self.fix is not None:
            row["fix"] = self.fix
        return row


@dataclass(frozen=True, slots=True)
class Notice:
    """Something the caller should know about a result that stands: a code of `words.NOTICES` and a sentence."""

    code: str
    message: str
    details: dict[str, object] = field(default_factory=dict)

    def as_json(self) -> dict[str, object]:
        """`{"code", "message", …}`."""
        return {"code": self.code, "message": self.message, **self.details}


class KvpError(Exception):
    """Everything this package raises on purpose."""


class PolicyFault(KvpError):
    """A policy that does not parse or does not pass its checks."""

    def __init__(self, diagnostics: tuple[Diagnostic, ...]) -> None:
        self.diagnostics = diagnostics
        first = diagnostics[0]
        more = f" (and {len(diagnostics) - 1} more)" if len(diagnostics) > 1 else ""
        super().__init__(f"{first.place}: {first.message}{more}")


class InputFault(KvpError):
    """A file, a trace, a request or a call that cannot be used. The message names the place and the mend."""


def install(extra: str) -> str:
    """How an extra is installed, as faults say it: from a checkout too, where the package came from no registry."""
    return f"pip install 'kvpolicy[{extra}]', or in a checkout pip install -e '.[{extra}]'"
