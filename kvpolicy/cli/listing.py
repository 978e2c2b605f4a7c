"""Diagnostics as a person reads them and as `kvp check --format json` gives them.

Reads `Diagnostic`s and, where it has them, the texts they point into; writes strings. A text is somebody's file,
so nothing of it reaches a terminal raw.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from kvpolicy.cli.colour import Paint, plain
from kvpolicy.faults import ERROR, WARNING, Diagnostic, Place
from kvpolicy.language.sarif import page_of

_LARGEST = 4 * 1024 * 1024  # bytes of a file that is read again for its lines
WIDEST = 110  # of a source line shown; a longer one is cut around the place


def as_text(diagnostics: Iterable[Diagnostic], texts: Mapping[str, str], paint: Paint = plain) -> str:
    """Every diagnostic: `file:line:col: severity CODE name: message`, source line, notes, what to write instead; at the
    end the pages about their codes.

    texts: file as named in the places -> its text; a file that is not there is shown without its line.
    """
    found = list(diagnostics)
    lines = [line for d in found for line in _lines(d, texts, paint)]
    if found:
        lines.append(f"more about it: {', '.join(dict.fromkeys(page_of(d.code) for d in found))}")
    return "\n".join(lines)


def texts_of(diagnostics: Iterable[Diagnostic]) -> dict[str, str]:
    """The texts that the places point into, as far as they are regular files that can be read again."""
    texts: dict[str, str] = {}
    for name in {place.file for d in diagnostics for place in (d.place, *(note.place for note in d.notes))}:
        if os.path.isfile(name) and os.path.getsize(name) <= _LARGEST:
            with suppress(OSError):
                texts[name] = Path(name).read_text(encoding="utf-8-sig", errors="replace")
    return texts


def summary(diagnostics: Iterable[Diagnostic]) -> str:
    """`2 errors, 1 warning`."""
    severities = [d.severity for d in diagnostics]
    errors, warnings = severities.count(ERROR), severities.count(WARNING)
    return f"{errors} error{'s' * (errors != 1)}, {warnings} warning{'s' * (warnings != 1)}"


def as_document(files: Iterable[str], diagnostics: Iterable[Diagnostic]) -> dict[str, object]:
    """The JSON document of `kvp check`: a row for every file asked for, and for used ones that have faults."""
    found = list(diagnostics)
    rows: dict[str, list[dict[str, object]]] = {name: [] for name in files}
    for d in found:
        rows.setdefault(d.place.file, []).append({**d.as_json(), "page": page_of(d.code)})
    return {
        "files": [{"file": name, "diagnostics": row} for name, row in rows.items()],
        "errors": sum(d.severity == ERROR for d in found),
        "warnings": sum(d.severity == WARNING for d in found),
    }


def _lines(d: Diagnostic, texts: Mapping[str, str], paint: Paint) -> Iterable[str]:
    place, severity = paint("place", as_words(f"{d.place}:")), paint(d.severity, f"{d.severity} {d.code}")
    name = "" if d.name == d.code else f" {d.name}"  # a notice has one word for both
    yield f"{place} {severity}{as_words(f'{name}: {d.message}')}"
    yield from _source(d.place, texts, paint, d.severity)
    for note in d.notes:
        yield f"  {paint('place', as_words(f'{note.place}:'))} note: {as_words(note.message)}"
        yield from _source(note.place, texts, paint, "notice")
    if d.witness:
        pairs = ", ".join(f"{k} = {v}" for k, v in d.witness.items() if k != "kind")
        yield as_words(f"  for example: {d.witness.get('kind', 'any')}{f'[{pairs}]' if pairs else ''}")
    if d.fix:
        yield paint("instead", as_words(f"  instead: {d.fix}"))


def _source(place: Place, texts: Mapping[str, str], paint: Paint, severity: str) -> Iterable[str]:
    """The line of the place, and a caret under it."""
    lines = texts.get(place.file, "").split("\n")
    if not 1 <= place.line <= len(lines) or not lines[place.line - 1].strip():
        return
    line, column = as_words(lines[place.line - 1]), max(place.column - 1, 0)
    if len(line) > WIDEST:
        start = max(0, min(column - WIDEST // 2, len(line) - WIDEST))
        line, column = line[start : start + WIDEST], column - start
    width = place.end_column - place.column if place.end_line == place.line else 1
    number = str(place.line)
    carets = "^" * max(1, min(width, len(line) - column))
    yield f"{paint('line', f'  {number} |')} {line.rstrip()}"
    yield f"{paint('line', f'  {chr(32) * len(number)} |')} {' ' * column}{paint(severity, carets)}"


def as_words(text: str) -> str:
    """Text of somebody else's, one column a character, with nothing in it that a terminal would obey."""
    return "".join(c if c.isprintable() else " " for c in text)
