"""Tokens in a row: blanks between them, line breaks where a row is too long, comments wherever they stand.

`format_layout` lays out blocks with it; what it gives are lines of text.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from lark import Token, Tree

from kvpolicy.language.format_tree import Comment, Node, Source

WIDTH = 100  # of a line, comments aside
STEP = 2  # columns that a block stands further in
HANG = 4  # columns that the rest of a long row stands further in
_TIGHT_BEFORE = frozenset({"COMMA", "RSQB", "RPAR", "COLON", "DOT"})
_TIGHT_AFTER = frozenset({"LSQB", "LPAR", "DOT"})
_BREAKS = frozenset({"WHEN", "OVER", "UNTIL", "AND", "OR", "ARROW", "WITH", "BY"})


@dataclass(frozen=True, slots=True)
class Piece:
    """A token to be written. tight: no blank in front; breaks: a line may end in front of it; comments: those that
    stand in front of it."""

    text: str
    tight: bool
    breaks: bool
    comments: tuple[Comment, ...]


def pieces(source: Source, parts: Iterable[Node | Token | None]) -> list[Piece]:
    """The tokens of some parts in a row."""
    found: list[Piece] = []
    before: Token | None = None
    held = False  # the token before holds the next one close
    depth = 0
    for token, parent, first in _walk(parts):
        kind, inside = token.type, parent == "attr_in"
        tight = (
            held
            or kind in _TIGHT_BEFORE
            or (kind == "LPAR" and parent in {"call", "call_within"})
            or (kind == "LSQB" and not first and before is not None and before.type == "NAME")
            or (kind == "RBRACE" and inside)
        )
        breaks = depth == 0 and (kind in _BREAKS or (before is not None and before.type == "COMMA"))
        found.append(Piece(source.text(token), tight or not found, breaks, source.gap(token).comments))
        depth += (kind in {"LSQB", "LPAR"}) - (kind in {"RSQB", "RPAR"})
        held = (
            kind in _TIGHT_AFTER or (kind == "LBRACE" and inside) or (kind == "MINUS" and parent in {"unary", "value"})
        )
        before = token
    return found


def _walk(parts: Iterable[Node | Token | None]) -> Iterable[tuple[Token, str, bool]]:
    """Every token with its rule, and whether it is the first of a match."""
    waiting: list[tuple[Node | Token | None, str, bool]] = [(part, "", False) for part in reversed(list(parts))]
    while waiting:
        part, parent, first = waiting.pop()
        if isinstance(part, Token):
            yield part, parent, first
        elif isinstance(part, Tree):
            data = str(part.data)
            for index in range(len(part.children) - 1, -1, -1):
                leads = index == 0 and (data == "match" or (first and data == "attrs"))
                waiting.append((part.children[index], data, leads))


def commented(row: Iterable[Piece]) -> bool:
    """Whether a comment stands within a row; those in front of it are the row's own."""
    return any(piece.comments for piece in list(row)[1:])


def line_of(row: Iterable[Piece]) -> str:
    """A row on one line."""
    return "".join(piece.text if piece.tight else f" {piece.text}" for piece in row)


def lines_of(row: list[Piece], indent: int, lead: str = "") -> list[str]:
    """A row from a column on, on as many lines as it needs. lead: stands in front of it on the first line."""
    lines: list[str] = []
    current = " " * indent + lead
    fresh = True  # nothing but indentation and `lead` stands on the line
    for number, piece in enumerate(row):
        for comment in piece.comments if number else ():
            if comment.own_line and not fresh:
                lines.append(current.rstrip())
                current, fresh = " " * (indent + HANG), True
            current += ("" if fresh else "  ") + comment.text
            lines.append(current.rstrip())
            current, fresh = " " * (indent + HANG), True
        blank = "" if fresh or piece.tight else " "
        if piece.breaks and not fresh and len(current) + len(blank) + _word(row, number) > WIDTH:
            lines.append(current.rstrip())
            current, blank = " " * (indent + HANG), ""
        current += blank + piece.text
        fresh = False
    return [*lines, current.rstrip()]


def _word(row: list[Piece], number: int) -> int:
    """How long what stands until the next place for a break is, a closing comma included."""
    length = len(row[number].text)
    for piece in row[number + 1 :]:
        if piece.breaks or piece.comments:
            break
        length += len(piece.text) + (not piece.tight)
    return length
