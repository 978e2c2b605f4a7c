"""Texts that are deep, long or full of huge numbers: told or read in the time of an ordinary file, never a crash."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvpolicy.faults import InputFault
from tests.language.language_texts import faults_of

GUARD = "turn when {} {{ priority: 40 }}\n"
VALUE = "turn {{ priority: {} }}\n"
NESTS = {
    "parentheses": GUARD.format("(" * 5000 + "idle() < 5s" + ")" * 5000),
    "some parentheses": GUARD.format("(" * 900 + "idle() < 5s" + ")" * 900),
    "not": GUARD.format("not " * 5000 + "idle() < 5s"),
    "minus": VALUE.format("- " * 5000 + "5"),
    "sum": VALUE.format("1 + " * 5000 + "5"),
    "else": VALUE.format("steps_to_next_use() else " * 3000 + "5"),
    "calls": VALUE.format("min(1, " * 900 + "2" + ")" * 900),
    "lets": "let a0 = 2\n" + "".join(f"let a{i} = a{i - 1}\n" for i in range(1, 2000)) + "turn { priority: a1999 }\n",
    "doubling": "let a0 = 2\n"
    + "".join(f"let a{i} = a{i - 1} * a{i - 1}\n" for i in range(1, 60))
    + VALUE.format("a59"),
    "braces": "{" * 5000,
    "brackets": "turn" + "[" * 5000,
}


@pytest.mark.parametrize("text", NESTS.values(), ids=NESTS)
def test_what_is_nested_deep_is_told(text: str) -> None:
    faults = faults_of(text)
    assert faults
    assert all(fault.code == "KVP100" for fault in faults)


@pytest.mark.parametrize(
    ("text", "codes"),
    [
        (VALUE.format("9" * 10_000), ["KVP105"]),
        (VALUE.format("-" + "9" * 10_000), ["KVP105"]),
        ("turn { priority: 40  ttl: " + "9" * 5000 + "d }\n", ["KVP108"]),
        ("turn { priority: 40  ttl: 1." + "9" * 10_000 + "s }\n", []),
        ("turn[depth > " + "9" * 5000 + "] { priority: 40 }\n", ["KVP105"]),
        ("turn[tokens >= " + "9" * 400 + "k] { priority: 40 }\n", ["KVP105"]),
        ("turn { priority: " + " * ".join(["1000000"] * 90) + " }\n", []),
        ("turn { priority: 1 / 0 }\n", ["KVP211"]),
        ("workflow w { agent a  loop a -> a at most " + "9" * 5000 + " }\n" + VALUE.format(40), None),
        ("turn { replicas: " + "9" * 5000 + " }\n", ["KVP105"]),
        ("language " + "9" * 5000 + "\n" + VALUE.format(40), ["KVP111"]),
    ],
)
def test_huge_numbers_are_told_or_capped(text: str, codes: list[str] | None) -> None:
    found = [fault.code for fault in faults_of(text)]
    assert found == codes or (codes is None and found)
    assert all(len(fault.message) < 300 for fault in faults_of(text))


def test_selectors_and_brackets_have_an_end() -> None:
    """Each match is compared with every other rule's: of thousands only their number is told, at the first too many."""
    matches = ", ".join(f"turn[agent = a{i}]" for i in range(300)) + " { priority: 40 }\n"
    conditions = "turn[" + ", ".join(f"agent != a{i}" for i in range(101)) + "] { priority: 40 }\n"
    limit = "turn { priority: 40 }\nlimit " + ", ".join(f"turn[depth = {i}]" for i in range(257))
    for text, at_most in ((matches, "256"), (conditions, "100"), (limit + " { priority: at most 3 }\n", "256")):
        (fault,) = faults_of(text)
        assert fault.code == "KVP105"
        assert at_most in fault.message
        assert "in {" in (fault.fix or "")
    names = ", ".join(f"a{i}" for i in range(5000))
    assert faults_of(f"turn[agent in {{{names}}}] {{ priority: 40 }}\n") == ()
    assert faults_of(", ".join(f"turn[agent = a{i}]" for i in range(256)) + " { priority: 40 }\n") == ()


def test_of_many_crossed_limits_a_hundred_are_told() -> None:
    rows = [
        f"limit turn[depth > {i}] {{ priority: at least {i % 50 + 50}  priority: at most {i % 50} }}" for i in range(60)
    ]
    faults = faults_of("any { priority: 50 }\nsystem { priority: 90 }\n" + "\n".join(rows) + "\n")
    assert [fault.code for fault in faults] == ["KVP208"] * 100


ATOMS = (
    *[
        "turn",
        "any",
        "{",
        "}",
        "[",
        "]",
        "(",
        ")",
        ",",
        ":",
        "priority",
        "ttl",
        "hold",
        "until",
        "on",
        "when",
        "not",
        "else",
        "over",
        "1e9",
        "0.5",
        "30s",
        "5min",
        "40%",
        "limit",
        "at",
        "most",
    ],
    *["let", "=", "!=", "<", "and", "layer", "use", "test", '"x"', "#", "é", "idle()", "retention", "drop"],
    *("9" * 400, "language 1", "language 2", "\n", "\0"),
)


@settings(max_examples=150)
@given(st.lists(st.tuples(st.sampled_from(ATOMS), st.sampled_from((1, 1, 1, 2, 40))), max_size=40))
def test_any_pile_of_words_is_told_or_read(words: list[tuple[str, int]]) -> None:
    text = " ".join(" ".join([word] * times) for word, times in words)
    try:
        faults = faults_of(text)
    except InputFault:
        return
    assert all(fault.message and fault.place.line >= 1 for fault in faults)
