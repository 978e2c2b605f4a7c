"""Forms that other languages have and this one says otherwise: `turn and system`, `priority: if …`, `rule a: turn`.

`wording` asks here after the `habits` and after what says that a brace is missing, before it lists what could have
stood in a place.
"""

from __future__ import annotations

import re

from kvpolicy import words
from kvpolicy.faults import Diagnostic
from kvpolicy.language import codes
from kvpolicy.language.met import Fault, Piece, pieces

_KINDS = frozenset((*words.SPAN_KINDS, words.ANY_KIND))
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TIME = re.compile(r"\d+(?:\.\d+)?(?:ms|s|min|m|h|d)")
_JOINS = frozenset({"and", "or", "|", "&", "+"})
_RULES = frozenset({"file", "layer", "on"})  # blocks in which rules stand
_NODES = {"agents": "agent", "node": "agent", "nodes": "agent", "tools": "tool", "barriers": "barrier"}


def foreign(fault: Fault, before: list[Piece]) -> Diagnostic | None:
    """The message for such a form; None where it is none. before: the words in front, last first."""
    if str(fault.token) == "*" and fault.block in _RULES and fault.opening is None and fault.at_line_start(fault.start):
        return codes.SYNTAX.at(fault.place(fault.start), "no sign stands for all spans", fix="write `any { … }`")
    if not before:
        return None
    for tell in (
        _several_events,
        _till,
        _joined,
        _used,
        _rule_word,
        _label,
        _colon_of_spans,
        _set_in,
        _if_value,
        _when_behind,
        _not_in_brackets,
        _pattern,
        _two_words,
        _time_in_test,
        _nodes,
    ):
        told = tell(fault, before)
        if told is not None:
            return told
    return None


def _following(fault: Fault, start: int, most: int) -> list[Piece]:
    return pieces(fault.text, start, min(len(fault.text), start + 120))[:most]


def _several_events(fault: Fault, before: list[Piece]) -> Diagnostic | None:
    """`on tool_call, turn_end {`."""
    if str(fault.token) not in {",", *_JOINS} or len(before) < 2 or before[1].text != "on":
        return None
    other = next((piece.text for piece in _following(fault, fault.start + len(fault.token), 1)), "EVENT")
    fix = f"write a block for each: `on {before[0].text} {{ … }}` and `on {other} {{ … }}`"
    return codes.SYNTAX.at(fault.place(fault.start, len(fault.token)), "`on` takes one event", fix=fix)


def _till(fault: Fault, before: list[Piece]) -> Diagnostic | None:
    """`on tool_call till tool_result {`."""
    token = str(fault.token)
    if token not in {"till", "to", "through", "->"} or len(before) < 2 or before[1].text != "on":
        return None
    fix = f"write `on {before[0].text} until … {{ … }}`"
    return codes.SYNTAX.at(fault.place(fault.start, len(token)), "the end of an interval begins with `until`", fix=fix)


def _joined(fault: Fault, before: list[Piece]) -> Diagnostic | None:
    """`turn and system {`, `turn | system {`, `[agent = a | agent = b]`."""
    token, first = str(fault.token), before[0].text
    if token not in _JOINS:
        return None
    length = 2 if fault.text[fault.start : fault.start + 2] in {"||", "&&"} else len(token)
    if fault.opening == "[" and token in {"|", "&"}:
        fix = (
            "write `,` for 'and'; for 'or' `agent in {a, b}`, or two matches, such as `turn[agent = a], turn[tool = b]`"
        )
        return codes.SYNTAX.at(fault.place(fault.start, length), "in brackets `,` says 'and'", fix=fix)
    if (
        fault.block not in _RULES
        or fault.opening == "["
        or first not in {*_KINDS, "]"}
        or "LBRACE" not in fault.accepted
    ):
        return None
    other = next((piece.text for piece in _following(fault, fault.start + length, 1)), "…")
    written = f"{first if first in _KINDS else 'turn[…]'}, {other}"
    message = "spans that a rule is about are listed with commas"
    return codes.SYNTAX.at(fault.place(fault.start, length), message, fix=f"write `{written} {{ … }}`")


def _used(fault: Fault, before: list[Piece]) -> Diagnostic | None:
    """`import base`."""
    word, token = before[0], str(fault.token)
    if fault.block != "file" or word.text not in {"import", "include", "require", "from", "extends"}:
        return None
    if not fault.at_line_start(word.start) or not (_WORD.fullmatch(token) or token.startswith('"')):
        return None
    place = fault.place(word.start, len(word.text))
    return codes.SYNTAX.at(place, "another policy is brought in by `use`", fix=f"write `use {token}`")


def _rule_word(fault: Fault, before: list[Piece]) -> Diagnostic | None:
    """`rule coder: turn {`."""
    word, token = before[0], str(fault.token)
    if fault.block not in _RULES or word.text not in {"rule", "rules", "selector"} or not _WORD.fullmatch(token):
        return None
    if not fault.at_line_start(word.start):
        return None
    message = "a rule begins with its label or its spans"
    return codes.SYNTAX.at(fault.place(word.start, len(word.text)), message, fix=f"remove `{word.text}`")


def _label(fault: Fault, before: list[Piece]) -> Diagnostic | None:
    """`coder turn {`."""
    word, token = before[0], str(fault.token)
    if fault.block not in _RULES or token not in _KINDS or "COLON" not in fault.accepted:
        return None
    if not _WORD.fullmatch(word.text) or word.text in _KINDS:
        return None
    place = fault.place(word.start, len(word.text))
    return codes.SYNTAX.at(place, "a colon is missing behind the rule's label", fix=f"write `{word.text}: {token} …`")


def _colon_of_spans(fault: Fault, before: list[Piece]) -> Diagnostic | None:
    """`system: { priority: 90 }`."""
    if str(fault.token) != "{" or len(before) < 2 or before[0].text != ":" or before[1].text not in _KINDS:
        return None
    if fault.block not in _RULES:
        return None
    message = "no colon stands between the spans and their properties"
    return codes.SYNTAX.at(fault.place(before[0].start), message, fix=f"write `{before[1].text} {{ … }}`")


def _set_in(fault: Fault, before: list[Piece]) -> Diagnostic | None:
    """Properties below their spans, set in instead of in braces."""
    if str(fault.token) != ":" or fault.block not in _RULES or len(before) < 3:
        return None
    named, colon, kind = before[:3]
    if named.text not in words.PROPERTIES or colon.text != ":" or kind.text not in _KINDS:
        return None
    fault.misread_at = kind.start  # it was taken for a label
    fix = f"write `{kind.text} {{ {named.text}: … }}`"
    return codes.SYNTAX.at(fault.place(named.start, len(named.text)), "properties stand in braces", fix=fix)


def _if_value(fault: Fault, before: list[Piece]) -> Diagnostic | None:
    """`priority: if pressure(gpu) > 90% then 5 else 10`."""
    if fault.block != "body" or len(before) < 3 or before[1].text != "if" or before[2].text != ":":
        return None
    fault.misread_at = before[1].start
    message = "a value has no `if`"
    fix = "write two rules, one of them with the condition behind its spans: `turn when … { … }`"
    return codes.SYNTAX.at(fault.place(before[1].start, 2), message, fix=fix)


def _when_behind(fault: Fault, before: list[Piece]) -> Diagnostic | None:
    """`turn { priority: 50 when pressure(gpu) > 90% }`."""
    token = str(fault.token)
    if fault.block != "body" or token not in {"when", "if", "unless", "while"} or "RBRACE" not in fault.accepted:
        return None
    if before[0].text in {*_KINDS, "]", "{", "}"}:  # a rule begins there, and a brace is missing in front of it
        return None
    message = "a condition stands in front of the braces, and is one of all properties in them"
    return codes.SYNTAX.at(fault.place(fault.start, len(token)), message, fix="write `turn when … { … }`")


def _not_in_brackets(fault: Fault, before: list[Piece]) -> Diagnostic | None:
    """`turn[not agent = a]`."""
    token = str(fault.token)
    if fault.opening != "[" or before[0].text != "not" or not _WORD.fullmatch(token):
        return None
    place = fault.place(before[0].start, 3)
    return codes.SYNTAX.at(place, "no `not` stands in brackets", fix=f"write `{token} != …`")


def _pattern(fault: Fault, before: list[Piece]) -> Diagnostic | None:
    """`turn[agent = coder*]`."""
    if fault.opening != "[" or str(fault.token) not in {"*", "?"}:
        return None
    attribute = before[2].text if len(before) > 2 and before[1].text == "=" else "agent"
    message = "there are no patterns of names"
    return codes.SYNTAX.at(fault.place(fault.start), message, fix=f"write the names: `{attribute} in {{a, b}}`")


def _two_words(fault: Fault, before: list[Piece]) -> Diagnostic | None:
    """`turn[agent = my agent]`."""
    token, first = str(fault.token), before[0]
    if fault.opening != "[" or len(before) < 2 or before[1].text != "=" or not _WORD.fullmatch(first.text):
        return None
    if not _WORD.fullmatch(token) or token in {"and", "or", "in", "not"}:
        return None
    follows = _following(fault, fault.start + len(token), 1)
    if follows and follows[0].text not in {"]", ","}:  # another condition, and the comma is missing
        return None
    if not fault.same_line(first.start, fault.start):
        return None
    place = fault.place(first.start, fault.start + len(token) - first.start)
    message = "a name with a blank in it is written in double quotes"
    return codes.SYNTAX.at(place, message, fix=f'write `"{first.text} {token}"`')


def _time_in_test(fault: Fault, before: list[Piece]) -> Diagnostic | None:
    """`after 5s` in a test."""
    token = str(fault.token)
    if fault.block != "test" or token not in {"after", "wait", "sleep", "advance"}:
        return None
    follows = _following(fault, fault.start + len(token), 1)
    if not follows or not _TIME.fullmatch(follows[0].text):
        return None
    place = fault.place(fault.start, len(token))
    return codes.SYNTAX.at(place, "time passes with `then`", fix=f"write `then {follows[0].text}`")


def _nodes(fault: Fault, before: list[Piece]) -> Diagnostic | None:
    """`agents a, b` in a workflow."""
    word = before[0]
    if fault.block != "workflow" or word.text not in _NODES or "ARROW" not in fault.accepted:
        return None
    name = str(fault.token)
    if not (_WORD.fullmatch(name) or name.startswith('"')) or not fault.same_line(word.start, fault.start):
        return None
    message = f"nodes are declared by `{_NODES[word.text]}`, not by `{word.text}`"
    place = fault.place(word.start, len(word.text))
    return codes.SYNTAX.at(place, message, fix=f"write `{_NODES[word.text]} {name}`")
