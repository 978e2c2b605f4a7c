"""What the parser met where it could not go on: the word, where it stands, and what could have stood there.

`recover` makes a `Fault` of what lark reports; `wording` and `expected` make one message of it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from lark import Token

from kvpolicy.faults import Place
from kvpolicy.language.grammar import terminal

_PIECE = re.compile(r'#[^\n]*|"(?:[^"\\\n]|\\.)*"|\d+(?:\.\d+)?[A-Za-z_%]*|[A-Za-z_][A-Za-z0-9_]*|->|[<>!]=|\S')


@dataclass(slots=True)
class Piece:
    """A word or sign of the text, by where it stands."""

    text: str
    start: int


@dataclass(slots=True)
class Fault:
    """What the parser met. `accepted`: names of what could have stood there. `unclosed_at`: set by `describe` where a
    `}` is missing, to the position that it is missing before; `swallowed_at`: where a statement without its end has
    taken the first word of the next, to that word; `misread_at`: where what was built from the text until here says
    nothing, to where that begins; `passed_at`: where a block that cannot stand here is passed over, to behind its first
    word."""

    text: str
    file: str
    token: Token
    start: int
    accepted: frozenset[str]
    block: str
    opening: Token | None
    unclosed_at: int | None = field(default=None)
    swallowed_at: int | None = field(default=None)
    misread_at: int | None = field(default=None)
    passed_at: int | None = field(default=None)

    def before(self) -> list[Piece]:
        """The words and signs in front, last first, at most six, from this line and the few above it."""
        begin = self.start
        for _ in range(6):
            begin = max(0, self.text.rfind("\n", 0, max(0, begin)))
        return [piece for piece in pieces(self.text, begin, self.start) if not piece.text.startswith("#")][:-7:-1]

    def place(self, start: int, length: int = 1) -> Place:
        """The place of a stretch of the text."""
        line = self.text.count("\n", 0, start) + 1
        column = start - (self.text.rfind("\n", 0, start) + 1) + 1
        return Place(self.file, line, column, line, column + length)

    def at_line_start(self, start: int) -> bool:
        """Whether nothing but blanks stands in front on its line."""
        return not self.text[self.text.rfind("\n", 0, start) + 1 : start].strip()

    def same_line(self, one: int, other: int) -> bool:
        """Whether no line ends between the two positions."""
        return "\n" not in self.text[min(one, other) : max(one, other)]


def is_nested(text: str, position: int) -> bool:
    """Whether `workflow` stands at a position and names a node, rather than begin a block."""
    return terminal("NESTED").match(text, position) is not None


def pieces(text: str, begin: int, end: int) -> list[Piece]:
    """The words and signs of a stretch of a text, comments among them."""
    return [Piece(found.group(), found.start()) for found in _PIECE.finditer(text, begin, end)]
