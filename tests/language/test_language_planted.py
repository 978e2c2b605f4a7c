"""Faults planted by a generator in every sound text there is: so many messages, at their places, with the right word.

A slip is planted in up to five places, each in a statement of its own; what stands around is whatever a real policy has
there: limits, tests, workflows, layers, comments.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lark import Token, Tree

from kvpolicy import words
from kvpolicy.language.format_tree import read
from tests.language.language_texts import faults_of

ROOT = Path(__file__).resolve().parents[2]
KNOWN = sorted((*(ROOT / "tests" / "corpus" / "good").glob("*.kvp"), *(ROOT / "policies").glob("*.kvp")))
# A test file that names layers of its policy is read together with it, never alone.
FILES = [file for file in KNOWN if not faults_of(file.read_text(encoding="utf-8"), file.name, file.parent)]
STATEMENTS = {"rule", "limit", "interval", "expect", "given", "at", "assume", "let", "then"}


@dataclass(frozen=True)
class Slip:
    """A place for a slip: what stands at [start, end) and what is to stand there; the code and the word to be told."""

    kind: str
    start: int
    end: int
    text: str
    code: str
    meant: str | None
    owner: int  # the statement it is in


def misspelt(word: str) -> str:
    """Two letters of it swapped, or the last one lost."""
    return word[:1] + word[2] + word[1] + word[3:] if len(word) > 4 and word[1] != word[2] else word[:-1]


@cache
def sites(file: Path) -> tuple[str, tuple[Slip, ...]]:
    """A file's text, and every place for a slip."""
    text = file.read_text(encoding="utf-8")
    found: list[Slip] = []
    waiting: list[tuple[Tree[Token], int]] = [(read(text).tree, 0)]
    while waiting:
        node, owner = waiting.pop()
        data = str(node.data)
        owner = id(node) if data in STATEMENTS else owner
        children = node.children
        for index, child in enumerate(children):
            if isinstance(child, Tree):
                waiting.append((child, owner))
            elif isinstance(child, Token):
                found += slips(data, index, child, children, owner)
    return text, tuple(found)


def slips(data: str, index: int, token: Token, children: list[object], owner: int) -> list[Slip]:
    start, end = token.start_pos or 0, token.end_pos or 0

    def slip(kind: str, text: str, code: str, meant: str | None = None) -> Slip:
        return Slip(kind, start, end, text, code, meant, owner)

    word = str(token)
    known = {
        ("decl", 0): words.PROPERTIES, ("expected", 0): words.PROPERTIES, ("match", 0): words.SPAN_KINDS,
        ("event", 0): words.EVENTS, ("call", 0): words.FUNCTIONS, ("attr", 0): words.ATTRIBUTES,
    }.get((data, index), {})  # fmt: skip
    found = []
    if word in known and len(word) > 4:
        found.append(slip("misspelt", misspelt(word), "KVP101", word))
    if data == "decl" and token.type == "COLON":
        found.append(slip("no colon", "", "KVP100"))
    if token.type == "QUANTITY" and data == "literal":
        found.append(slip("no such unit", f"{re.match(r'[0-9.]+', word)[0]}parsecs", "KVP102"))  # type: ignore[index]
    if data == "decl" and index == 0:
        value = children[2]
        plain = value.children[0] if isinstance(value, Tree) and value.data == "literal" else None
        if word == "priority" and isinstance(plain, Token):
            found.append(Slip("too much", plain.start_pos or 0, plain.end_pos or 0, "900", "KVP105", None, owner))
        if word == "ttl" and isinstance(plain, Token):
            found.append(Slip("no unit", plain.start_pos or 0, plain.end_pos or 0, "300", "KVP103", None, owner))
        found.append(Slip("semicolon", start, start, "; ", "KVP100", None, owner))
    if data == "attrs" and token.type == "RSQB":
        found.append(slip("no bracket", "", "KVP100"))
    if data in {"attr"} and token.type == "EQ":
        found.append(slip("two signs", "==", "KVP100"))
    return found


def plant(text: str, planted: list[Slip]) -> tuple[str, list[int]]:
    """The text with the slips, and the line of each."""
    lines = [text.count("\n", 0, slip.start) + 1 for slip in planted]
    for slip in sorted(planted, key=lambda one: -one.start):
        text = text[: slip.start] + slip.text + text[slip.end :]
    return text, lines


def check(file: Path, text: str, planted: list[Slip]) -> None:
    planted = sorted(planted, key=lambda slip: slip.start)
    faulty, lines = plant(text, planted)
    told = faults_of(faulty, file.name, file.parent)
    shown = [f"{fault.place}: {fault.code} {fault.message}" for fault in told]
    assert len(told) == len(planted), (shown, planted, faulty)
    for fault, slip, line in zip(told, planted, lines, strict=True):
        # A bracket that is missing at the end of a line is told where the next one begins.
        assert fault.place.line - line in ({0, 1} if slip.kind == "no bracket" else {0}), (shown, slip)
        assert fault.code == slip.code, (shown, slip)
        assert slip.meant is None or f"`{slip.meant}`" in (fault.fix or ""), (shown, slip)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_every_single_slip_is_told_once(file: Path) -> None:
    text, found = sites(file)
    seen: dict[tuple[str, str | None], int] = {}
    for slip in found:
        key = (slip.kind, slip.meant)
        seen[key] = seen.get(key, 0) + 1
        if seen[key] <= 2:
            check(file, text, [slip])


@settings(max_examples=120)
@given(st.data())
def test_n_slips_in_any_text_give_n_messages(data: st.DataObject) -> None:
    file = data.draw(st.sampled_from(FILES))
    text, found = sites(file)
    planted: list[Slip] = []
    for _ in range(data.draw(st.integers(1, 5))):
        lines = {text.count("\n", 0, slip.start) for slip in planted}
        left = [
            slip
            for slip in found
            if slip.owner not in {one.owner for one in planted} and text.count("\n", 0, slip.start) not in lines
        ]
        if left:
            planted.append(data.draw(st.sampled_from(left)))
    check(file, text, planted)


def test_there_are_places_of_every_kind() -> None:
    kinds = {slip.kind for file in FILES for slip in sites(file)[1]}
    assert kinds == {
        "misspelt", "no colon", "no such unit", "too much", "no unit", "semicolon", "no bracket", "two signs",
    }  # fmt: skip
