"""Diagnostics as SARIF 2.1.0, the form that code hosts and editors read.

`kvp check --format sarif` writes it; a test holds it against the official schema.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

from kvpolicy.faults import ERROR, NOTICE, WARNING, Diagnostic, Place
from kvpolicy.language.codes import CODES

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_LEVELS: Mapping[str, str] = {ERROR: "error", WARNING: "warning", NOTICE: "note"}


def as_sarif(diagnostics: Iterable[Diagnostic], version: str) -> dict[str, object]:
    """One run of `kvp check` with all its results; of the codes, those that were met. version: of the program."""
    found = list(diagnostics)
    codes = list(dict.fromkeys(d.code for d in found))
    names = {d.code: d for d in found}
    driver = {"name": "kvp", "semanticVersion": version, "rules": [_rule(names[code]) for code in codes]}
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "results": [_result(d, codes) for d in found],
    }
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def page_of(code: str) -> str:
    """The page of the documentation about a code."""
    return f"docs/codes/{code}.md"


def _rule(d: Diagnostic) -> dict[str, object]:
    row = CODES.get(d.code)
    page = page_of(d.code)
    return {
        "id": d.code,
        "name": d.name,
        "shortDescription": {"text": row.line if row is not None else d.name.replace("-", " ")},
        "help": {"text": f"See {page}.", "markdown": f"See [{d.code}]({page})."},
        "defaultConfiguration": {"level": _LEVELS[row.severity if row is not None else d.severity]},
    }


def _result(d: Diagnostic, codes: Sequence[str]) -> dict[str, object]:
    row: dict[str, object] = {
        "ruleId": d.code,
        "ruleIndex": codes.index(d.code),
        "level": _LEVELS[d.severity],
        "message": {"text": d.message if d.fix is None else f"{d.message}. Instead: {d.fix}"},
        "locations": [{"physicalLocation": _location(d.place)}],
    }
    if d.notes:
        row["relatedLocations"] = [
            {"id": i, "physicalLocation": _location(note.place), "message": {"text": note.message}}
            for i, note in enumerate(d.notes)
        ]
    if d.witness is not None:
        row["properties"] = {"witness": d.witness}
    return row


def _location(place: Place) -> dict[str, object]:
    region = {"startLine": max(1, place.line), "startColumn": max(1, place.column)}
    if (place.end_line, place.end_column) > (place.line, place.column):
        region |= {"endLine": place.end_line, "endColumn": place.end_column}
    return {"artifactLocation": {"uri": _uri(place.file)}, "region": region}


def _uri(name: str) -> str:
    """A path relative to where `kvp` was called, or a file URI."""
    path = Path(name)
    return path.as_uri() if path.is_absolute() else quote(path.as_posix(), errors="surrogateescape")
