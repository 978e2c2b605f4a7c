"""Positions in a text: offsets (of code points), lines and columns of diagnostics, and what editors count in.

Editors count UTF-16 code units unless both sides agree on others; a line ends with `\\n`, `\\r\\n` or `\\r` and nothing
else, so what Python calls a line does not do here.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass, field

from lsprotocol import types

from kvpolicy.faults import Place

UTF8, UTF16, UTF32 = "utf-8", "utf-16", "utf-32"
_END = re.compile(r"\r\n|\n|\r")


@dataclass(slots=True)
class Lines:
    """A text by its lines. `encoding`: what the editor counts columns in."""

    text: str
    encoding: str = UTF16
    starts: list[int] = field(init=False)
    _feeds: list[int] = field(init=False)  # places count lines by `\n` alone

    def __post_init__(self) -> None:
        self.starts = [0, *(end.end() for end in _END.finditer(self.text))]
        self._feeds = self.starts
        if "\r" in self.text:
            self._feeds = [0, *(end.end() for end in re.finditer("\n", self.text))]

    def line(self, number: int) -> str:
        """A line without its end; lines count from 0."""
        end = self.starts[number + 1] if number + 1 < len(self.starts) else len(self.text)
        return self.text[self.starts[number] : end].rstrip("\r\n")

    def offset(self, position: types.Position) -> int:
        """Where a position of the editor is; one behind the end of a line or of the text is that end."""
        if position.line >= len(self.starts):
            return len(self.text)
        line = self.line(position.line)
        return self.starts[position.line] + _points(line, position.character, self.encoding)

    def position(self, offset: int) -> types.Position:
        """What the editor calls an offset."""
        number = bisect_right(self.starts, offset) - 1
        before = self.text[self.starts[number] : offset]
        return types.Position(number, _units(before, self.encoding))

    def range(self, start: int, end: int) -> types.Range:
        """What the editor calls a stretch of the text."""
        return types.Range(self.position(start), self.position(end))

    def of_place(self, place: Place) -> tuple[int, int]:
        """The stretch that a place means; at least where it begins."""
        start = self._at(place.line, place.column)
        return start, max(start, self._at(place.end_line, place.end_column)) if place.end_line else start

    def _at(self, line: int, column: int) -> int:
        if line > len(self._feeds):
            return len(self.text)
        start = self._feeds[max(0, line - 1)]
        end = self._feeds[line] - 1 if line < len(self._feeds) else len(self.text)
        return min(start + max(0, column - 1), end)


def _units(text: str, encoding: str) -> int:
    """How many units a text has for the editor."""
    if encoding == UTF32 or text.isascii():
        return len(text)
    if encoding == UTF8:
        return len(text.encode("utf-8", "surrogatepass"))
    return len(text) + sum(letter > "\uffff" for letter in text)


def _points(line: str, units: int, encoding: str) -> int:
    """How many code points so many units of a line are; one in the middle of a letter is before it."""
    if encoding == UTF32 or line.isascii():
        return min(units, len(line))
    seen = 0
    for number, letter in enumerate(line):
        seen += _units(letter, encoding)
        if seen > units:
            return number
    return len(line)
