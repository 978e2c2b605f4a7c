"""Slips with a sentence of their own, word for word: what is said, where, and what to write instead."""

from __future__ import annotations

import pytest

from tests.language.language_texts import faults_of

SLIPS = (
    ("turn { priority: 3 } }", 22, "this '}' closes nothing", "remove it"),
    ('policy p "never ends', 10, "this string is not closed on its line", 'write the other "'),
    ("turn { priority: 3", 6, "this '{' is never closed", "write `}` where it ends"),
    ("turn { priority: 3; }", 19, "';' is not part of the language", "no ';' is needed: properties and statements "),
    ("turn[agent == a] { priority: 3 }", 12, "'==' is not part of the language", "write `=` for '=='"),
    ("turn[agent = my-agent] { priority: 3 }", 16, "'-' cannot stand in a name", 'write it as a string: "my-…"'),
    ("turn { tier: gpu cpu after 30s }", 18, "a comma is missing before 'cpu'", "write `, cpu`: the steps of "),
    ("turn { ttl: 5 minuts }", 13, "'minuts' is not a unit; the units are ms, s, min, ", "write 5min"),
    ("layer over { turn { priority: 3 } }", 7, "'over' is a word of the language", 'write another name, or "over"'),
)


@pytest.mark.parametrize(("text", "column", "message", "fix"), SLIPS, ids=[text for text, *_ in SLIPS])
def test_a_slip_is_told_in_its_own_words(text: str, column: int, message: str, fix: str) -> None:
    (fault,) = faults_of(text)
    assert (fault.place.line, fault.place.column) == (1, column)
    assert fault.message.startswith(message)
    assert (fault.fix or "").startswith(fix)


@pytest.mark.parametrize(("names", "told"), [(45, 0), (75, 1)])  # each name adds two levels: itself and the sum
def test_a_chain_of_names_has_a_depth_that_can_be_read(names: int, told: int) -> None:
    lets = ["let a0 = 1s", *(f"let a{i} = a{i - 1} + 1s" for i in range(1, names))]
    faults = faults_of("\n".join(lets) + "\nturn { priority: 80  ttl: a0 }")
    assert [fault.message.partition("' ")[2] for fault in faults] == [
        "stands for more than 2000 parts or 100 levels, all names written out"
    ] * told
