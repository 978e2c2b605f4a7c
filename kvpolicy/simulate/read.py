"""A trace file of any known form: the first line tells which.

`FileTrace` is the one face of all readers; it streams and may be read again.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from kvpolicy.faults import InputFault
from kvpolicy.simulate import bailian, decision_log, mooncake, own, sessions
from kvpolicy.simulate.fields import Row
from kvpolicy.simulate.interleaving import Interleaving
from kvpolicy.simulate.lines import rows, sha256_of
from kvpolicy.simulate.trace import Call, Facts, Progress

FORMS = (
    "Mooncake (timestamp, input_length, hash_ids), Bailian (chat_id, …), Claude Code sessions (id, requests), "
    "kvpolicy's own"
)

_Calls = Callable[[Path, Iterator[tuple[int, Row]], tuple[int, Row], Facts], Iterator[Call]]
_FORMS: tuple[tuple[str, Callable[[Row], bool], _Calls], ...] = (
    ("kvpolicy", own.fits, own.calls),
    ("bailian", bailian.fits, bailian.calls),
    ("decision log", decision_log.fits, decision_log.calls),
    ("mooncake", mooncake.fits, mooncake.calls),
)


@dataclass(frozen=True, slots=True)
class FileTrace:
    """A trace on disk. `interleaving` is used by sessions only, which carry no start times."""

    path: Path
    name: str
    interleaving: Interleaving = field(default_factory=Interleaving)
    label: str = "file"

    def calls(self, facts: Facts, progress: Progress | None = None) -> Iterator[Call]:
        """Calls in order of time; fills `facts`. Raises InputFault with file and line."""
        path = self.path
        facts.label = self.label
        if facts.sha256 is None:
            facts.sha256 = sha256_of(path)
        lines = rows(path, progress)
        first = next(lines, None)
        if first is None:
            raise InputFault(f"{path}: only blank lines; a trace has one JSON object a line")
        line, row = first
        if sessions.fits(row):
            lines.close()  # type: ignore[attr-defined]
            facts.form = "claude-code sessions"
            facts.label = f"{self.label}; {self.interleaving.describe()}"
            return sessions.calls(path, self.interleaving, facts, progress)
        everything = itertools.chain([first], lines)
        for form, fits, calls in _FORMS:
            if fits(row):
                facts.form = form
                return calls(path, everything, first, facts)
        raise InputFault(f"{path}:{line}: no form of trace that is known here; known are {FORMS}")
