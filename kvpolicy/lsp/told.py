"""Faults as an editor shows them: the diagnostics of `kvp check` with ranges, and links to the other places.

What stands in a used file is told at the `use` that brings it in, so that no fault is lost and each file shows its own.
"""

from __future__ import annotations

from lsprotocol import types

from kvpolicy.faults import ERROR, NOTICE, WARNING, Diagnostic, Place
from kvpolicy.lsp.lines import Lines
from kvpolicy.lsp.names import brought_in
from kvpolicy.lsp.project import Part, View

SOURCE = "kvp"
_SEVERITY = {
    ERROR: types.DiagnosticSeverity.Error,
    WARNING: types.DiagnosticSeverity.Warning,
    NOTICE: types.DiagnosticSeverity.Information,
}
MOST = 500  # faults of one file that are shown


def told(view: View, text: Lines, faults: tuple[Diagnostic, ...]) -> list[types.Diagnostic]:
    """The diagnostics of the view's own file. text: its lines, also where it could not be read."""
    rows = [_row(view, text, fault) for fault in faults if fault.place.file == view.own]
    rows += _of_used(view, text, [fault for fault in faults if fault.place.file != view.own])
    return rows[:MOST]


def _row(view: View, text: Lines, fault: Diagnostic) -> types.Diagnostic:
    start, end = text.of_place(fault.place)
    if end == start:  # a place without an end, such as that of a whole file: its word
        end = _end_of_word(text.text, start)
    message = fault.message + (f"\nfix: {fault.fix}" if fault.fix else "")
    links = [_link(view, note.place, note.message) for note in fault.notes]
    return types.Diagnostic(
        range=text.range(start, end),
        message=message,
        severity=_SEVERITY[fault.severity],
        code=fault.code,
        source=SOURCE,
        related_information=[link for link in links if link is not None] or None,
        data={"name": fault.name},
    )


def _end_of_word(text: str, start: int) -> int:
    end = start
    while end < len(text) and (text[end].isalnum() or text[end] == "_"):
        end += 1
    return max(end, min(start + 1, len(text)))


def _link(view: View, place: Place, message: str) -> types.DiagnosticRelatedInformation | None:
    part = view.part(place.file)
    if part is None:
        return None
    return types.DiagnosticRelatedInformation(location_of(part, *part.lines.of_place(place)), message)


def location_of(part: Part, start: int, end: int) -> types.Location:
    """A stretch of a file of a set."""
    return types.Location(part.path.absolute().as_uri(), part.lines.range(start, end))


def _of_used(view: View, text: Lines, faults: list[Diagnostic]) -> list[types.Diagnostic]:
    """One row a used file that has faults, at the `use` that leads to it; faults of the policy that is tested beside
    a file of tests are told in that policy."""
    main = view.main
    rows: list[types.Diagnostic] = []
    for use in main.file.uses if main is not None else ():
        part = brought_in(view, use)
        inside = [fault for fault in faults if part is not None and fault.place.file == part.file.name]
        worst = next((fault for fault in inside if fault.severity == ERROR), inside[0] if inside else None)
        if worst is None or part is None:
            continue
        more = f" (and {len(inside) - 1} more)" if len(inside) > 1 else ""
        link = _link(view, worst.place, worst.message)
        rows.append(
            types.Diagnostic(
                range=text.range(*text.of_place(use.place)),
                message=f"{worst.place}: {worst.message}{more}",
                severity=_SEVERITY[worst.severity],
                code=worst.code,
                source=SOURCE,
                related_information=[link] if link else None,
            )
        )
    return rows
