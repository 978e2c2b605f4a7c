"""Expressions in messages say what the text says: read again, they are the same."""

from __future__ import annotations

import pytest

from kvpolicy.language.parse import parse
from kvpolicy.language.phrase import phrase
from kvpolicy.language.syntax import Expression


def read(text: str) -> Expression:
    file = parse(f"turn when {text} {{ priority: 3 }}", "a.kvp").file
    assert file is not None
    guard = file.rules[0].guard
    assert guard is not None
    return guard


@pytest.mark.parametrize(
    "text",
    [
        "(a + b) * c > 1",
        "a + b * c > 1",
        "a - (b - c) > 1",
        "a - b - c > 1",
        "not (a or b) and c",
        "(a or b) and not c",
        "(a else b) else c > 1",
        "a else b else c > 1",
        "-(a + b) < -a",
        "a * (b / c) else d = 1",
        "(a * b) else d = 1",
        "not not a",
    ],
)
def test_an_expression_keeps_its_parentheses_where_it_needs_them(text: str) -> None:
    assert read(phrase(read(text))) == read(text)
