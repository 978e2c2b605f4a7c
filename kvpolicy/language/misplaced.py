"""What is meant stands in this place, and is written otherwise: a bound, a second condition, a time in two units.

`wording` asks here after `foreign`, before it lists what could have stood in a place.
"""

from __future__ import annotations

import re

from kvpolicy import words
from kvpolicy.faults import Diagnostic
from kvpolicy.language import codes
from kvpolicy.language.met import Fault, Piece, pieces
from kvpolicy.language.two_units import TIME, seconds

_WORD = re.compile(r'[A-Za-z_][A-Za-z0-9_]*|"(?:[^"\\\n]|\\.)*"')
_RULES = frozenset({"file", "layer", "on"})  # blocks in which rules stand


def misplaced(fault: Fault, before: list[Piece]) -> Diagnostic | None:
    """The message for such a form; None where it is none. before: the words in front, last first."""
    if not before:
        return None
    for tell in (
        _value,
        _pin_until,
        _two_times,
        _limit,
        _bound,
        _within,
        _nested,
        _let,
        _property,
        _brackets,
        _listed,
        _between,
    ):
        told = tell(fault, before)
        if told is not None:
            return told
    return None


def _two_times(fault: Fault, before: list[Piece]) -> Diagnostic | None:
    """`ttl: 1h 30min`."""
    first, second = before[0], str(fault.token)
    if not (TIME.fullmatch(first.text) and TIME.fullmatch(second) and fault.same_line(first.start, fault.start)):
        return None
    place = fault.place(first.start, fault.start + len(second) - first.start)
    fix = f"write {seconds(f'{first.text} {second}')}"
    return codes.SYNTAX.at(place, "a duration has one number and one unit", fix=fix)


def _value(fault: Fault, before: list[Piece]) -> Diagnostic | None:
    """`retention: hold`."""
    if fault.block != "body" or before[0].text != "hold" or str(fault.token) != "}" or len(before) < 2:
        return None
    if before[1].text != ":":
        return None
    place = fault.place(before[0].start, 4)
    return codes.SYNTAX.at(place, "a hold needs its time", fix="write `hold 30s`, or `hold until tool_result`")


def _pin_until(fault: Fault, before: list[Piece]) -> Diagnostic | None:
    """`retention: pin until session_end`."""
    if fault.block != "body" or before[0].text != "pin" or str(fault.token) != "until":
        return None
    follows = pieces(fault.text, fault.start + 5, min(len(fault.text), fault.start + 80))[:1]
    event = follows[0].text if follows else "EVENT"
    message = "a pin stands as long as the claim, and ends with no event"
    return codes.SYNTAX.at(fault.place(fault.start, 5), message, fix=f"write `hold until {event} at most 1h`")


def _limit(fault: Fault, before: list[Piece]) -> Diagnostic | None:
    """`limit { … }`, `limit any { hold at most … }`."""
    if str(fault.token) == "{" and before[0].text == "limit":
        place = fault.place(before[0].start, 5)
        return codes.SYNTAX.at(place, "a limit says which spans it bounds", fix="write `limit any { … }`")
    if str(fault.token) == "at" and fault.block == "body" and "COLON" in fault.accepted:
        place = fault.place(fault.start, 2)
        message = f"a colon is missing behind '{before[0].text}'"
        return codes.SYNTAX.at(place, message, fix=f"write `{before[0].text}: at most …`")
    return None


def _bound(fault: Fault, before: list[Piece]) -> Diagnostic | None:
    """`limit any { hold: <= 40% of gpu }`."""
    token = str(fault.token)
    if before[0].text != ":" or "AT" not in fault.accepted or "QUANTITY" in fault.accepted:
        return None
    word = {"<": "most", "<=": "most", ">": "least", ">=": "least"}.get(token)
    word = word or {"max": "most", "maximum": "most", "min": "least", "minimum": "least"}.get(token)
    if word is None:
        return None
    place = fault.place(fault.start, len(token))
    return codes.SYNTAX.at(place, f"a bound begins with `at {word}`", fix=f"write `at {word} …` for `{token}`")


def _within(fault: Fault, before: list[Piece]) -> Diagnostic | None:
    """`on A until B for 5min { … }`."""
    token = str(fault.token)
    if token not in {"for", "within", "max", "after"} or "AT" not in fault.accepted or "LBRACE" not in fault.accepted:
        return None
    follows = pieces(fault.text, fault.start + len(token), min(len(fault.text), fault.start + 80))[:1]
    if not follows or not TIME.fullmatch(follows[0].text):
        return None
    message = "how long an interval lasts at the longest begins with `at most`"
    return codes.SYNTAX.at(fault.place(fault.start, len(token)), message, fix=f"write `at most {follows[0].text}`")


def _nested(fault: Fault, before: list[Piece]) -> Diagnostic | None:
    """`on A { on B { … } }`."""
    if fault.block != "on" or str(fault.token) != "on":
        return None
    message = "no interval stands in another"
    fix = "write the two side by side, and what one rule needs of the other after `when`"
    return codes.SYNTAX.at(fault.place(fault.start, 2), message, fix=fix)


def _let(fault: Fault, before: list[Piece]) -> Diagnostic | None:
    """`patience = 5s`, `const patience = 5s`."""
    if fault.block not in _RULES:
        return None
    name = before[0]
    if name.text in {"const", "var", "set", "define", "def"} and _WORD.fullmatch(str(fault.token)):
        place = fault.place(name.start, len(name.text))
        return codes.SYNTAX.at(place, "a value gets its name by `let`", fix=f"write `let {fault.token} = …`")
    if str(fault.token) != "=" or "COLON" not in fault.accepted or not fault.at_line_start(name.start):
        return None
    place = fault.place(name.start, len(name.text))
    return codes.SYNTAX.at(place, "a value gets its name by `let`", fix=f"write `let {name.text} = …`")


def _property(fault: Fault, before: list[Piece]) -> Diagnostic | None:
    """`priority: 50` outside of any rule."""
    if fault.block not in _RULES or len(before) < 2 or before[0].text != ":" or before[1].text not in words.PROPERTIES:
        return None
    fault.misread_at = before[1].start  # it was taken for a label
    place = fault.place(before[1].start, len(before[1].text))
    fix = f"write `turn {{ {before[1].text}: … }}`, with the spans that are meant"
    return codes.SYNTAX.at(place, "a property stands in the braces of a rule", fix=fix)


def _brackets(fault: Fault, before: list[Piece]) -> Diagnostic | None:
    """`turn[agent = a][tool = b]`."""
    if str(fault.token) != "[" or before[0].text != "]" or fault.block not in _RULES:
        return None
    message = "a span has one pair of brackets"
    return codes.SYNTAX.at(fault.place(fault.start), message, fix="write `,` between the conditions: `turn[…, …]`")


def _listed(fault: Fault, before: list[Piece]) -> Diagnostic | None:
    """`turn[agent = a, b]`."""
    if fault.opening != "[" or str(fault.token) not in {"]", ","} or len(before) < 5:
        return None
    last, comma, one, sign, attribute = before[:5]
    if comma.text != "," or sign.text != "=" or not _WORD.fullmatch(last.text) or last.text in words.ATTRIBUTES:
        return None
    place = fault.place(one.start, last.start + len(last.text) - one.start)
    fix = f"write `{attribute.text} in {{{one.text}, {last.text}}}`"
    return codes.SYNTAX.at(place, "several values of an attribute stand behind `in`", fix=fix)


def _between(fault: Fault, before: list[Piece]) -> Diagnostic | None:
    """`turn[depth between 1 and 5]`, `turn[1 < depth < 5]`."""
    if fault.opening != "[":
        return None
    name = before[0].text
    if str(fault.token) == "between":
        follows = pieces(fault.text, fault.start + 7, min(len(fault.text), fault.start + 80))[:3]
        low, high = (follows[0].text, follows[2].text) if len(follows) == 3 else ("LOW", "HIGH")
    elif name == "[" and fault.token.type in {"QUANTITY", "CHARACTER", "INT"} and str(fault.token)[:1].isdigit():
        follows = pieces(fault.text, fault.start, min(len(fault.text), fault.start + 80))[:5]
        if len(follows) < 5 or follows[2].text not in words.ATTRIBUTES or follows[4].text == "]":
            return None
        low, name, high = follows[0].text, follows[2].text, follows[4].text
    else:
        return None
    message = "a range is two conditions"
    fix = f"write `{name} >= {low}, {name} <= {high}`"
    return codes.SYNTAX.at(fault.place(fault.start, len(str(fault.token))), message, fix=fix)
