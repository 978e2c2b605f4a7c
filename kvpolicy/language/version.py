"""`language 1`: which version of the language a text is written in, and what is told where that cannot be read.

Looked at before the text is parsed, since what another version allows would only look like faults here. `parse` calls
it; what each version brought is told in docs/language-changes.md.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from kvpolicy import words
from kvpolicy.faults import Diagnostic, Place
from kvpolicy.language import codes, syntax

_LONG = 20
_HEAD = re.compile(r"(?:\s+|#[^\n]*)*")
_SAID = re.compile(r"language[ \t]+([\w.+\"-]+)")


def other_version(text: str, name: str) -> Diagnostic | None:
    """The diagnostic of a text whose first statement asks for a version that is not known here."""
    head = _HEAD.match(text)
    said = _SAID.match(text, head.end() if head else 0)
    if said is None or said[1] in map(str, words.LANGUAGES):
        return None
    begin = text.rfind("\n", 0, said.start()) + 1
    line, column = text.count("\n", 0, said.start(1)) + 1, said.start(1) - begin + 1
    place = Place(name, line, column, line, column + len(said[1]))
    newest = words.LANGUAGES[-1]
    known = f"{', '.join(map(str, words.LANGUAGES[:-1]))} and {newest}" if len(words.LANGUAGES) > 1 else str(newest)
    shown = said[1] if len(said[1]) <= _LONG else said[1][:_LONG] + "…"
    message = f"this file is written in language {shown}, and this kvpolicy reads language {known}"
    later = said[1].isdecimal() and len(said[1]) < 6 and int(said[1]) > newest
    fix = f"write `language {newest}`" + (", or install a later kvpolicy" if later else ": a version is a whole number")
    return codes.UNKNOWN_LANGUAGE.at(place, message, fix=fix)


def misplaced(said: Sequence[syntax.Language], text: str) -> list[Diagnostic]:
    """`language` where it is not the first statement, or more than once."""
    head = _HEAD.match(text)
    begin = head.end() if head else 0
    first = (text.count("\n", 0, begin) + 1, begin - text.rfind("\n", 0, begin))
    found = []
    for number, one in enumerate(said):
        if number:
            message = f"this file's language is already said in line {said[0].place.line}"
            found.append(codes.DEFINED_TWICE.at(one.place, message, fix="keep the first"))
        elif (one.place.line, one.place.column) != first:
            message = "`language` is the first statement of a file, for it says how the rest is read"
            found.append(codes.SYNTAX.at(one.place, message, fix="move it to the top"))
    return found
