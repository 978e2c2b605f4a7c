"""The canonical layout of a text: what `kvp fmt` writes.

Takes a text without faults of syntax, gives another that says the same, with the same comments in the same order.
INVARIANT: formatting what is formatted changes nothing, and no text is given whose words are not those that came in.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from lark.exceptions import UnexpectedInput

from kvpolicy.faults import Diagnostic, InputFault, Place
from kvpolicy.language import codes, syntax
from kvpolicy.language.format_layout import Layout
from kvpolicy.language.format_tree import comments, read, shape
from kvpolicy.language.parse import parse

_BY_LINE = re.compile(r".*:(\d+)")


@dataclass(frozen=True, slots=True)
class Formatted:
    """`text` is None where the text has faults of syntax, or where another layout would change what it says."""

    text: str | None
    diagnostics: tuple[Diagnostic, ...] = ()


def format_text(text: str, name: str) -> Formatted:
    """Lay out one text; `name` stands in the places of faults. Line ends become `\\n`."""
    text = text.replace("\r\n", "\n")
    parsed = parse(text, name)
    if parsed.file is None or any(fault.code == codes.UNUSABLE.code for fault in parsed.diagnostics):
        return Formatted(None, parsed.diagnostics)
    try:
        source = read(text)
    except UnexpectedInput:
        return Formatted(None, parsed.diagnostics)
    written = "\n".join(Layout(source).file()) + "\n"
    told = _named_by_line(parsed.file, parse(written, name).file)
    if told is not None:
        return Formatted(None, (told,))
    again = read(written)
    if shape(again) != shape(source) or comments(again) != comments(source):
        raise InputFault(f"{name}: cannot be laid out without changing it; this is a fault of fmt, please report it")
    return Formatted(written)


def _named_by_line(old: syntax.File, new: syntax.File | None) -> Diagnostic | None:
    """A rule without a label is called `FILE:LINE`. Where something names one so, and the line would be another, the
    name would mean another rule."""
    assert new is not None
    named: list[tuple[str, Place]] = []
    for rule in old.rules:
        named += [(path[-1], place) for path, place in zip(rule.over, rule.over_places, strict=True)]
    for test in old.tests:
        for step in test.steps:
            if isinstance(step, syntax.Expect):
                named += [(d.by[-1], d.place) for d in step.declarations if d.by is not None]
    moved = {str(a.place.line) for a, b in zip(old.rules, new.rules, strict=True) if a.place.line != b.place.line}
    for name, place in named:
        line = _BY_LINE.fullmatch(name)
        if line is not None and line[1] in moved:
            message = f"'{name}' names a rule by its line, and the layout would move it"
            return codes.UNKNOWN_NAME.at(place, message, fix="give that rule a label, and name it by that")
    return None
