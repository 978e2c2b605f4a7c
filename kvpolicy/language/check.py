"""Words and types of a file set: every name exists, every unit fits, every value has data or an `else`.

Takes what `load` gathered, answers the diagnostics KVP101 to KVP112; what passes can be compiled. The passes are
functions in a visible tuple, each over one part of the language.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from kvpolicy.faults import ERROR, Diagnostic, Place
from kvpolicy.language import syntax
from kvpolicy.language.check_limits import check_limits
from kvpolicy.language.check_names import check_definitions, check_layers, check_over, check_uses
from kvpolicy.language.check_rules import check_rules
from kvpolicy.language.check_tests import check_tests
from kvpolicy.language.check_workflows import check_workflows
from kvpolicy.language.lets import check_lets
from kvpolicy.language.load import LoadResult
from kvpolicy.language.scope import scope_of
from kvpolicy.language.typer import Typer

_VALUE_START = re.compile(r"[A-Za-z_]\w*[ \t]*:[ \t]*")
Pass = Callable[[syntax.FileSet, Typer], None]

PASSES: tuple[Pass, ...] = (
    check_definitions,
    check_uses,
    check_layers,
    check_over,
    check_workflows,
    check_rules,
    check_limits,
    check_tests,
)


def check(files: syntax.FileSet, skipped: Iterable[str] = ()) -> tuple[Diagnostic, ...]:
    """Every fault of words and types, by place. `skipped`: text passed over by the parser; names that may have been
    defined in it are not called unknown."""
    faults: list[Diagnostic] = []
    scope = scope_of(files, skipped)
    typer = Typer(scope, faults)
    check_lets(scope, typer, faults)
    for one in PASSES:
        one(files, typer)
    return tuple(sorted(_once(faults), key=lambda fault: fault.place))


def examine(loaded: LoadResult) -> tuple[Diagnostic, ...]:
    """The diagnostics of loading and of `check` together: also a file with faults of syntax has its words checked."""
    texts = {member.file.name: member.file.text for member in loaded.partial.members}
    told = [_reach(fault.place, texts.get(fault.place.file, "")) for fault in loaded.diagnostics]
    found = [fault for fault in check(loaded.partial, loaded.skipped) if not any(_within(fault.place, p) for p in told)]
    return tuple(sorted((*loaded.diagnostics, *found), key=lambda fault: (fault.place, fault.code)))


def _reach(place: Place, text: str) -> Place:
    """A fault of syntax with what stands in front of it in the same value: cut short, that says nothing more."""
    lines = text.split("\n")
    if not 0 < place.line <= len(lines):
        return place
    front = lines[place.line - 1][: place.column - 1]
    begin = max((found.end() for found in _VALUE_START.finditer(front)), default=place.column - 1)
    return Place(place.file, place.line, begin + 1, place.end_line or place.line, place.end_column)


def _within(place: Place, told: Place) -> bool:
    """Whether a place begins inside one that a fault of syntax was told at."""
    begins = (place.line, place.column)
    return place.file == told.file and (told.line, told.column) <= begins < (told.end_line, told.end_column)


def faulty(diagnostics: Iterable[Diagnostic]) -> bool:
    """Whether one of them is an error."""
    return any(fault.severity == ERROR for fault in diagnostics)


def _once(faults: list[Diagnostic]) -> list[Diagnostic]:
    """One message for one fault at one place."""
    seen: dict[tuple[object, str, str], Diagnostic] = {}
    for fault in faults:
        seen.setdefault((fault.place, fault.code, fault.message), fault)
    return list(seen.values())
