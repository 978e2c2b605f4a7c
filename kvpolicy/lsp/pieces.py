"""A text cut into words and signs, however broken it is; `reader` walks along them.

Nothing is ever refused here: what is no word of the language is a sign of one letter.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

WORD, STRING, NUMBER, SIGN, CURSOR, END = "word", "string", "number", "sign", "cursor", "end"
_PIECE = re.compile(
    r"(?P<comment>#[^\n]*)"
    r'|(?P<string>"(?:[^"\\\n]|\\.)*"?)'
    r"|(?P<number>\d+(?:\.\d+)?(?:[A-Za-z_%][A-Za-z0-9_%]*"
    r"|[ \t]+(?:ms|s|min|m|h|d|KiB|MiB|GiB|TiB|%)(?![A-Za-z0-9_%])(?![ \t]*:))?)"
    r"|(?P<word>[A-Za-z_][A-Za-z0-9_]*)"
    r"|(?P<sign>->|[<>!]=|\S)"
)
_TYPED = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


@dataclass(frozen=True, slots=True)
class Piece:
    """A word, string, number or sign. `first`: whether it is the first of its line."""

    kind: str
    text: str
    start: int
    end: int
    first: bool


def pieces(text: str, begin: int = 0) -> list[Piece]:
    """All pieces of a text from an offset on, comments left out, with an END behind them."""
    found: list[Piece] = []
    last = begin
    for match in _PIECE.finditer(text, begin):
        kind = match.lastgroup or SIGN
        if kind != "comment":
            first = not found or "\n" in text[last : match.start()]
            found.append(Piece(kind, match.group(), match.start(), match.end(), first))
            last = match.end()
    found.append(Piece(END, "", len(text), len(text), True))
    return found


def up_to_cursor(text: str, cursor: int) -> tuple[list[Piece], int] | None:
    """The pieces in front of a cursor, what is being typed replaced by a CURSOR piece, and where that begins; None in
    a comment or a string."""
    typed = _TYPED.search(text, max(0, cursor - 100), cursor)
    begin = typed.start() if typed else cursor
    line = text.rfind("\n", 0, cursor) + 1
    inside = [match for match in _PIECE.finditer(text, line, cursor) if match.lastgroup in {"comment", "string"}]
    if inside and inside[-1].end() == cursor and _open(inside[-1].group()):
        return None
    found = pieces(text[:begin], _home(text, begin))
    at_start = not text[line:begin].strip()
    found.insert(-1, Piece(CURSOR, text[begin:cursor], begin, cursor, at_start))
    return found, begin


def _open(text: str) -> bool:
    return text.startswith("#") or len(text) == 1 or not text.endswith('"') or text.endswith('\\"')


_LARGE = 30_000  # letters from which not the whole text in front of the cursor is read
_HOME = re.compile(r'^[A-Za-z_"\[]', re.M)


def _home(text: str, before: int) -> int:
    """Where a statement begins in front of an offset: the start of a small text, of a large one a line that is not
    set in, for in a large text, which programs write, those are the statements."""
    if before < _LARGE:
        return 0
    starts = [match.start() for match in _HOME.finditer(text, before - _LARGE, before)]
    return starts[0] if starts else max(0, before - _LARGE)
