"""Texts for highlighters: every word of the tables where it belongs, and the class that it has to have there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from kvpolicy import words
from kvpolicy.language import highlighting as shown

ROOT = Path(__file__).resolve().parents[3]
PACK = sorted((ROOT / "policies").glob("*.kvp"))


def placed() -> Iterator[tuple[str, str, str]]:
    """(text, word in it, class): the first time that the word stands there is meant."""
    for word in words.PROPERTIES:
        yield f"turn {{ {word}: 1 }}", word, shown.PROPERTY
    for word in words.SPAN_KINDS:
        yield f"{word} {{ }}", word, shown.KIND
    yield "any { }", "any", shown.KIND
    for word in words.FUNCTIONS:
        yield f"turn when 1 < {word}(x) {{ }}", word, shown.FUNCTION
    for word in (*words.EVENTS, *words.EVENT_ALIASES):
        if word not in words.WORKFLOW_WORDS:
            yield f"on {word} {{ }}", word, shown.EVENT
    for word in words.EVENT_ATTRIBUTES:
        yield f'document[{word} = "x"] {{ }}', word, shown.ATTRIBUTE
    for word in words.SERIES:
        yield f"turn {{ ttl: p95({word}) }}", word, shown.SERIES
    for word in (*words.STATEMENT_WORDS, *words.CLAUSE_WORDS, *words.TEST_WORDS, *words.WORKFLOW_WORDS):
        yield f"{word} x", word, shown.KEYWORD
    for word in (*words.RETENTIONS, *words.SHARES, *words.PLACES, *words.TIERS, *words.TIER_ALIASES, *words.STATUSES):
        if word not in words.TEST_WORDS:
            yield f"document[status = {word}] {{ }}", word, shown.CONSTANT
    for unit in (*words.DURATION_UNITS, *words.TOKEN_UNITS, *words.BYTE_UNITS, "%"):
        yield f"let x = 12.5{unit}", f"12.5{unit}", shown.QUANTITY
    yield "slow: turn { }", "slow", shown.LABEL
    yield "let a = 1 # why", "# why", shown.COMMENT
    yield 'policy x "A {text}"', '"A {text}"', shown.STRING


def known() -> frozenset[str]:
    """All words that no highlighter may leave plain."""
    return frozenset().union(*shown.WORDS.values())
