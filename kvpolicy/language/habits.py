"""Habits from other languages: what was meant is plain, it is only written otherwise here.

`wording` asks these functions before it lists what could have stood in a place; the checks of words ask the tables.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from kvpolicy import words
from kvpolicy.faults import Diagnostic
from kvpolicy.language import codes
from kvpolicy.language.met import Fault, Piece, pieces

_KINDS = frozenset((*words.SPAN_KINDS, words.ANY_KIND))
_MEANT: Mapping[str, str] = {
    "pin": "retention: pin", "keep": "retention: pin", "protect": "retention: pin", "hold": "retention: hold 30s",
    "drop": "retention: drop", "evict": "retention: drop", "forget": "retention: drop", "normal": "retention: normal",
}  # fmt: skip
_WHEN = frozenset({"if", "when", "while", "during", "after", "before", "on", "upon", "until"})
_NUMBER = re.compile(r"\d")
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_DASHED = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:-[A-Za-z0-9_]+)+")


def retention_meant(word: str) -> str | None:
    """The declaration that a word used as a property stands for: `drop: true` means `retention: drop`."""
    return _MEANT.get(word)


def example(attribute: str) -> str:
    """A condition on an attribute in its brackets."""
    told = {"tokens": "> 4000", "int": "> 3", "number": "> 0.5", "bool": "= yes", "status": "= done"}
    return f"turn[{attribute} {told.get(words.ATTRIBUTES[attribute], '= NAME')}]"


def habit(fault: Fault, before: list[Piece]) -> Diagnostic | None:
    """The message for a habit; None where it is none of them. before: the words in front, last first."""
    if str(fault.token) == "when" and fault.at_line_start(fault.start):
        return _when_first(fault)
    if not before:
        return None
    for tell in (
        _over_behind,
        _comma,
        _time_of_pin,
        _bare_word,
        _or_in_brackets,
        _dashed,
        _expectation,
        _condition,
        _verb,
    ):
        told = tell(fault, before)
        if told is not None:
            return told
    return None


def _over_behind(fault: Fault, before: list[Piece]) -> Diagnostic | None:
    """`turn when C over y { … }`."""
    if str(fault.token) != "over" or fault.block not in {"file", "layer", "on"} or "LBRACE" not in fault.accepted:
        return None
    begin = max(fault.text.rfind(sign, 0, fault.start) for sign in "{}") + 1
    if all(piece.text != "when" for piece in pieces(fault.text, begin, fault.start)):
        return None
    named = pieces(fault.text, fault.start + 4, min(len(fault.text), fault.start + 80))[:1]
    message = "`over` stands before the condition of a rule, not behind it"
    fix = f"write `over {named[0].text if named else 'RULE'} when …`"
    return codes.SYNTAX.at(fault.place(fault.start, 4), message, fix=fix)


def _comma(fault: Fault, before: list[Piece]) -> Diagnostic | None:
    """`{ priority: 90, ttl: 1h }`."""
    if fault.block != "body":
        return None
    if str(fault.token) == ":" and len(before) > 1 and before[0].text in words.PROPERTIES and before[1].text == ",":
        comma = before[1].start
        fault.swallowed_at = before[0].start
    elif str(fault.token) == "}" and before[0].text == ",":
        comma = before[0].start
    else:
        return None
    begin = fault.opening.start_pos or 0 if fault.opening is not None else 0
    named = list(re.finditer(r"([A-Za-z_]\w*)\s*:", fault.text[begin:comma]))
    if not named or (str(fault.token) == "}" and named[-1].group(1) == "tier"):
        return None
    fault.misread_at = begin + named[-1].start()
    message = "no comma stands between properties: they stand side by side"
    return codes.SYNTAX.at(fault.place(comma), message, fix="remove the `,`")


def _time_of_pin(fault: Fault, before: list[Piece]) -> Diagnostic | None:
    """`retention: pin 30s`, `retention: keep 30s`, `retention: hold for 30s`."""
    if fault.block != "body" or _NUMBER.match(str(fault.token)) is None or len(before) < 3:
        return None
    value = before[1] if before[0].text == "for" and before[1].text == "hold" else before[0]
    if [piece.text for piece in before[before.index(value) + 1 :][:2]] != [":", "retention"]:
        return None
    known = value.text in (*words.RETENTIONS, "hold")
    message = f"'{value.text}' takes no time" if known else f"there is no retention '{value.text}'"
    if value.text == "hold":
        message = "no `for` stands before the time of a hold"
    fault_place = fault.place(value.start, len(value.text))
    return codes.SYNTAX.at(fault_place, message, fix=f"write `retention: hold {fault.token}`")


def _bare_word(fault: Fault, before: list[Piece]) -> Diagnostic | None:
    """`scratchpad { drop }`."""
    word = before[0]
    if fault.block != "body" or "COLON" not in fault.accepted or word.text not in _MEANT or str(fault.token) == "at":
        return None
    message = f"'{word.text}' is a value of `retention`, not a property"
    if _MEANT[word.text].split()[1] != word.text:
        message = f"there is no property '{word.text}'"
    return codes.SYNTAX.at(fault.place(word.start, len(word.text)), message, fix=f"write `{_MEANT[word.text]}`")


def _or_in_brackets(fault: Fault, before: list[Piece]) -> Diagnostic | None:
    """`[tool = grep or tool = ls]`, `[agent = a and tool = ls]`."""
    word = str(fault.token)
    if fault.opening != "[" or word not in {"or", "and"}:
        return None
    place = fault.place(fault.start, len(word))
    if word == "and":
        return codes.SYNTAX.at(place, "in brackets `,` says 'and'", fix="write `,` for `and`")
    fix = "write two matches, such as `turn[agent = a], turn[tool = b]`"
    rest = pieces(fault.text, fault.start + 2, min(len(fault.text), fault.start + 200))[:3]
    if len(before) > 2 and before[1].text == "=":
        attribute, one = before[2].text, before[0].text
        same = len(rest) == 3 and rest[0].text == attribute and rest[1].text == "="
        other = rest[2].text if same else rest[0].text if rest and rest[0].text not in words.ATTRIBUTES else None
        if other is not None:
            fix = f"write `{attribute} in {{{one}, {other}}}`"
    return codes.SYNTAX.at(place, "no `or` stands in brackets", fix=fix)


def _dashed(fault: Fault, before: list[Piece]) -> Diagnostic | None:
    """`policy my-agents`."""
    name = before[0]
    found = _DASHED.match(fault.text, name.start)
    if str(fault.token) != "-" or found is None or fault.block == "body" or fault.start != name.start + len(name.text):
        return None
    if fault.opening == "[":
        return None  # a value: there only quotes help
    whole = found.group()
    fault.passed_at = found.end()  # what stands behind the dash begins nothing, be it a word of the language
    fix = f'write `{whole.replace("-", "_")}`, or the string "{whole}"'
    return codes.SYNTAX.at(fault.place(fault.start), "'-' cannot stand in a name that is not quoted", fix=fix)


def _expectation(fault: Fault, before: list[Piece]) -> Diagnostic | None:
    """A span and its properties in a test, without `expect`."""
    kind = str(fault.token)
    if fault.block != "test" or kind not in _KINDS or "EXPECT" not in fault.accepted:
        return None
    message = "what a test expects of a span begins with `expect`"
    return codes.SYNTAX.at(fault.place(fault.start, len(kind)), message, fix=f"write `expect {kind} {{ … }}`")


def _condition(fault: Fault, before: list[Piece]) -> Diagnostic | None:
    """`if tool_call { … }`, `scratchpad after turn_end { … }`."""
    if fault.block not in {"file", "layer", "on"}:
        return None
    token, last = str(fault.token), before[0]
    if last.text in _WHEN - {"when", "on", "until"} and "COLON" in fault.accepted and _WORD.fullmatch(token):
        event = _event(token)
        if event is None:
            return codes.SYNTAX.at(fault.place(last.start, len(last.text)), f"no rule begins with `{last.text}`",
                                   fix="write the condition behind the span: `turn when … { … }`")  # fmt: skip
        return codes.SYNTAX.at(fault.place(last.start, len(last.text)), f"'{last.text}' opens no interval",
                               fix=f"write `on {event} {{ … }}`")  # fmt: skip
    if token in _WHEN and token != "when" and last.text in _KINDS:
        follows = pieces(fault.text, fault.start + len(token), min(len(fault.text), fault.start + 80))[:1]
        event = _event(follows[0].text) if follows else None
        place = fault.place(fault.start, len(token))
        if event is None and token == "after" and follows and follows[0].text[:1].isdigit():
            message = "how long a span is idle is asked for by `idle()`"
            fix = f"write `{last.text} when idle() > {follows[0].text} {{ … }}`"
            return codes.SYNTAX.at(place, message, fix=fix)
        if event is None:
            return codes.SYNTAX.at(place, f"a condition of a span begins with `when`, not `{token}`",
                                   fix=f"write `{last.text} when … {{ … }}`")  # fmt: skip
        message = "the event stands in front, with the spans in its braces"
        return codes.SYNTAX.at(place, message, fix=f"write `on {event} {{ {last.text} {{ … }} }}`")
    return None


def _when_first(fault: Fault) -> Diagnostic | None:
    """`when tool_call { … }`."""
    follows = pieces(fault.text, fault.start + 4, min(len(fault.text), fault.start + 80))[:1]
    event = _event(follows[0].text) if follows else None
    if fault.block not in {"file", "layer", "on"}:
        return None
    if event is None and fault.opening is None and not (follows and follows[0].text == ":"):
        message = "no rule begins with `when`"
        fix = "write the condition behind the span: `turn when … { … }`"
        return codes.SYNTAX.at(fault.place(fault.start, 4), message, fix=fix)
    if event is None:
        return None
    return codes.SYNTAX.at(fault.place(fault.start, 4), "'when' opens no interval", fix=f"write `on {event} {{ … }}`")


def _verb(fault: Fault, before: list[Piece]) -> Diagnostic | None:
    """`pin system`."""
    verb, kind = before[0], str(fault.token)
    if fault.block not in {"file", "layer", "on"} or verb.text not in _MEANT or kind not in _KINDS:
        return None
    place = fault.place(verb.start, len(verb.text))
    message = "a rule begins with the spans it is about; what happens to them stands in its braces"
    return codes.SYNTAX.at(place, message, fix=f"write `{kind} {{ {_MEANT[verb.text]} }}`")


def _event(word: str) -> str | None:
    return word if word in words.EVENTS else words.EVENT_ALIASES.get(word)
