"""Several faults in one text: each gives one message, at its place, in the author's words."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvpolicy.language.grammar import parser
from kvpolicy.language.parse import parse
from tests.language.language_texts import faults_of

# Statements with one planted fault each, and what stands around them.
FAULTY = {
    "colon": "system { priority 80 }",
    "comma": "turn { tier: gpu cpu after 30s }",
    "value": "turn { priority: }",
    "guard": "turn when { priority: 5 }",
    "let": "let patience 20s",
    "let value": "let patience =",
    "unit": "document { ttl: 5 minuts }",
    "unit at once": "document { ttl: 5minuts }",
    "reserved let": "let on = 5s",
    "reserved label": "over: turn { priority: 3 }",
    "character": "turn { priority: 5; }",
    "quote": "turn[agent = 'coder'] { priority: 5 }",
    "bracket": "turn[agent = coder { priority: 5 }",
    "attribute": "turn[agent coder] { priority: 5 }",
    "operator": "turn when idle() == 5s { priority: 5 }",
    "tail": "turn when idle() > { priority: 5 }",
    "over": "late: turn over { priority: 5 }",
    "use": "use base as",
    "layers": "layers base,",
    "limit": "limit any { priority: most 5 }",
    "bound": "limit any { priority: at 5 }",
    "hold": "turn { retention: hold }",
    "until": "on tool_call until { turn { priority: 5 } }",
    "event": "on { turn { priority: 5 } }",
    "edge": "workflow w { a -> }",
    "loop": "workflow w { loop a b }",
    "test": "test { at tool_call }",
    "assume": 'test "x" { assume idle() 5s }',
    "expect": 'test "x" { expect turn priority: 5 }',
    "parenthesis": "turn { priority: (5 + 3 }",
    "stray": "system { priority: 5 } }",
    "hyphen": "turn[agent = my-agent] { priority: 5 }",
    "property": "turn { 80 }",
    "two values": "turn { priority: 80 60 }",
    "unclosed rule": "turn { priority: 5",
    "string": 'use "limits.kvp',
}
SOUND = (
    "scratchpad { priority: 30 }",
    "layer work {\n  on turn_end { turn { priority: 4  ttl: 5min } }\n}",
    "let wait = 5s",
    'test "t" {\n  given turn\n  expect turn { priority: 3 }\n}',
    "limit any { priority: at most 90 }",
    "workflow w {\n  agent a, b\n  a -> b\n}",
    "fine: tool_result when idle() > 5s {\n  priority: 4\n  tier: gpu, cpu after 5s\n}",
)
GRAMMAR_WORDS = {t.name for t in parser()[0].terminals} | {"token", "terminal", "NAME", "parser", "$END"}


@pytest.mark.parametrize("fault", FAULTY, ids=str)
def test_one_fault_one_message(fault: str) -> None:
    (told,) = parse(FAULTY[fault] + "\n", "a.kvp").diagnostics
    assert told.place.line == 1
    assert told.message
    assert told.fix


@pytest.mark.parametrize("fault", FAULTY, ids=str)
@pytest.mark.parametrize("around", SOUND)
def test_what_stands_around_a_fault_is_read(fault: str, around: str) -> None:
    sound = parse(around, "a.kvp")
    assert sound.diagnostics == ()
    result = parse(f"{around}\n{FAULTY[fault]}\n{around}\n", "a.kvp")
    assert len(result.diagnostics) == 1, [str(told.place) + told.message for told in result.diagnostics]
    assert sound.file is not None
    assert result.file is not None
    for part in ("rules", "lets", "limits", "tests", "workflows"):
        assert len(getattr(result.file, part)) >= 2 * len(getattr(sound.file, part)), part


@settings(max_examples=150)
@given(st.lists(st.sampled_from(sorted(FAULTY)), min_size=1, max_size=5), st.data())
def test_n_planted_faults_give_n_messages(planted: list[str], data: st.DataObject) -> None:
    lines: list[str] = []
    expected: list[int] = []
    for name in planted:
        lines += data.draw(st.sampled_from(SOUND)).split("\n")
        expected.append(len(lines) + 1)
        lines.append(FAULTY[name])
        if name in {"use", "layers", "let value"}:
            lines.append("turn { priority: 3 }")
    lines += SOUND[0].split("\n")
    told = parse("\n".join(lines) + "\n", "a.kvp").diagnostics
    assert len(told) == len(planted), [(str(t.place), t.message) for t in told]
    # A statement that misses its end is told where the next one begins.
    assert all(0 <= t.place.line - line <= 1 for t, line in zip(told, expected, strict=True))


@pytest.mark.parametrize("fault", FAULTY, ids=str)
def test_no_word_of_the_grammar_reaches_the_author(fault: str) -> None:
    for told in parse(f"{SOUND[0]}\n{FAULTY[fault]}\n{SOUND[1]}\n", "a.kvp").diagnostics:
        spoken = f"{told.message} {told.fix}"
        assert not set(re.findall(r"[$_A-Z]{2,}", spoken)) & GRAMMAR_WORDS, spoken


def test_two_faults_in_one_rule() -> None:
    told = parse("turn {\n  priority: 10 20\n  ttl: 5 minuts\n  tier: gpu cpu after 3s\n}\n", "a.kvp").diagnostics
    assert [fault.place.line for fault in told] == [2, 3, 4]


def test_a_faulty_statement_defines_its_names_all_the_same() -> None:
    lets = "let patience 20s\nturn { ttl: patience  priority: 50 }\n"
    text = lets + "slow: turn { priority 3 }\ntools over slow { priority: 4 }\n"
    assert [fault.place.line for fault in faults_of(text)] == [1, 3]


def test_faults_of_syntax_and_of_words_are_told_together() -> None:
    text = "tools { priority 90 }\nturn { priorty: 50 }\ndocument { ttl: 300 }\n"
    assert [(fault.place.line, fault.code) for fault in faults_of(text)] == [
        (1, "KVP100"),
        (2, "KVP101"),
        (3, "KVP103"),
    ]


def test_a_text_of_nothing_but_faults_ends() -> None:
    for text in (
        "}" * 3000,
        "{" * 3000,
        "[" * 3000,
        "let " * 3000,
        "turn { " * 2000,
        '"' * 3000,
        "@ " * 3000,
        ": = -> " * 900,
    ):
        told = parse(text, "a.kvp").diagnostics
        assert 1 <= len(told) <= 51
