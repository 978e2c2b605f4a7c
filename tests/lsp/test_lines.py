"""Positions as editors count them, against Python's own encoders."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lsprotocol import types

from kvpolicy.faults import Place
from kvpolicy.lsp.documents import Documents, normal
from kvpolicy.lsp.lines import UTF8, UTF16, UTF32, Lines

_WIDTH = {UTF8: ("utf-8", 1), UTF16: ("utf-16-le", 2), UTF32: ("utf-32-le", 4)}
_TEXTS = st.text(st.sampled_from("ab\n\r\t{}é€🙂𝒳\u2028\u0085\x0b\x0c"), max_size=40)


def _by_hand(text: str, offset: int, encoding: str) -> types.Position:
    """Lines end with CRLF, LF or CR; columns are what the encoder needs."""
    front = text[:offset]
    if text[offset - 1 : offset + 1] == "\r\n" and offset:  # in the middle of an end of line: before it
        front = text[: offset - 1]
    lines = front.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    codec, width = _WIDTH[encoding]
    return types.Position(len(lines) - 1, len(lines[-1].encode(codec)) // width)


@given(_TEXTS, st.sampled_from([UTF8, UTF16, UTF32]))
def test_positions_are_those_of_the_encoder(text: str, encoding: str) -> None:
    lines = Lines(text, encoding)
    for offset in range(len(text) + 1):
        if text[offset - 1 : offset + 1] == "\r\n" and offset:
            continue
        position = lines.position(offset)
        assert position == _by_hand(text, offset, encoding)
        assert lines.offset(position) == offset


@given(_TEXTS, st.integers(0, 60), st.integers(0, 60), st.sampled_from([UTF8, UTF16, UTF32]))
def test_any_position_is_somewhere_in_the_text(text: str, line: int, character: int, encoding: str) -> None:
    lines = Lines(text, encoding)
    offset = lines.offset(types.Position(line, character))
    assert 0 <= offset <= len(text)
    back = lines.position(offset)
    assert (back.line, back.character) <= (line, character)


def test_a_position_behind_the_line_is_its_end() -> None:
    lines = Lines("ab\r\ncd")
    assert lines.offset(types.Position(0, 99)) == 2
    assert lines.offset(types.Position(1, 99)) == 6
    assert lines.offset(types.Position(9, 0)) == 6
    assert Lines("🙂x").offset(types.Position(0, 1)) == 0  # in the middle of a letter


@given(_TEXTS)
def test_places_are_found_again(text: str) -> None:
    text = normal(text)
    lines = Lines(text)
    for offset in range(len(text) + 1):
        line = text.count("\n", 0, offset) + 1
        column = offset - (text.rfind("\n", 0, offset) + 1) + 1
        assert lines.of_place(Place("x", line, column))[0] == offset


@given(_TEXTS, st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 9), _TEXTS), max_size=6))
def test_changes_are_those_of_a_plain_text(text: str, edits: list[tuple[int, int, int, str]]) -> None:
    documents = Documents()
    document = documents.put("file:///a.kvp", 1, text)
    for line, first, more, put in edits:
        lines = Lines(text)
        start = types.Position(line, first)
        end = types.Position(line, first + more)
        document = documents.change(  # type: ignore[assignment]
            "file:///a.kvp", 2, [types.TextDocumentContentChangePartial(types.Range(start, end), put)]
        )
        text = text[: lines.offset(start)] + put + text[lines.offset(end) :]
        assert document.text == text


@pytest.mark.parametrize(
    "uri", ["untitled:Untitled-1", "vscode-notebook:/x%00y", "file:///a%00b.kvp", "x", "://", "[", ""]
)
def test_uris_that_are_no_files(uri: str) -> None:
    document = Documents().put(uri, 1, "turn { priority: 1 }")
    assert document.path.name.endswith(".kvp")
    assert "\0" not in str(document.path)
