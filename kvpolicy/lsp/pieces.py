"""A text cut into words and signs, however broken it is; `reader` walks along them.

Nothing is ever refused here: what is no word of the language is a sign of one letter.
"""

from __future__ import annotations

import re
from typing import NamedTuple

WORD, STRING, NUMBER, SIGN, CURSOR, END = "word", "string", "number", "sign", "cursor", "end"
_PIECE = re.compile(
    r"(?P<comment>#[^\n]*)"
    r'|(?P<string>"(?:[^"\\\n]|\\.)*"?)'
    r"|(?P<number>\d+(?:\.\d+)?(?:[A-Za-z_%][A-Za-z0-9_%]*"
    r"|[ \t]+(?:ms|s|min|m|h|d|k|M|Ki|Mi|KiB|MiB|GiB|TiB|%)(?![A-Za-z0-9_%])(?![ \t]*:))?)"
    r"|(?P<word>[A-Za-z_][A-Za-z0-9_]*)"
    r"|(?P<sign>->|[<>!]=|\S)"
)
_TYPED = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


class Piece(NamedTuple):  # a tuple: thousands are made for a keystroke
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


_LARGE = 30_000  # letters in front of the cursor that are looked at, at most
# Statements that stand in no block, at the start of a line: nothing in front of one tells what may stand behind it.
# `workflow` without a `{` may stand in another one.
_HOME = re.compile(r'^(?:(?:layers?|let|limit|policy|test|use)[ \t]+[A-Za-z_"\[]|workflow[ \t]+[^\n{]*\{)', re.M)
_LINE = re.compile(r'^[A-Za-z_"\[]', re.M)


def _home(text: str, before: int) -> int:
    """Where to begin reading for a cursor: at the statement that it is in; in a text without one, at its start, or in
    a large one at a line that is not set in, for programs write those."""
    begin = max(0, before - _LARGE)
    line = text.rfind("\n", 0, before) + 1
    statements = [match.start() for match in _HOME.finditer(text, begin, line)]
    if statements or not begin:
        return statements[-1] if statements else 0
    return next((match.start() for match in _LINE.finditer(text, begin, line)), line)
