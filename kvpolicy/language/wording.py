"""What went wrong, in the author's words: slips that have a sentence of their own, most telling first.

Takes the `Fault` that `recover` makes of what the parser reports; what no sentence here knows is told by `expected`.
The sentences speak of rules, properties, tiers and units, never of the grammar.
"""

from __future__ import annotations

import re

from kvpolicy import words
from kvpolicy.faults import Diagnostic, Note
from kvpolicy.language import codes
from kvpolicy.language.build_expressions import unit_fault
from kvpolicy.language.build_names import reserved
from kvpolicy.language.expected import HARD, expected, instead, listed
from kvpolicy.language.flow_slips import flow_slip
from kvpolicy.language.foreign import foreign
from kvpolicy.language.habits import habit
from kvpolicy.language.met import Fault, Piece, is_nested, pieces
from kvpolicy.language.misplaced import misplaced

_AFTER_KIND = frozenset({"{", "[", ",", "when", "over"})
_BARE_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# After these a name is being given or asked for.
_BEFORE_NAMES = {"let", "layer", "layers", "policy", "use", "as", "with", "workflow", "agent", "tool", "barrier"} | {
    "loop", "over", "->", "by",
}  # fmt: skip
_INSTEAD = {
    ";": "no ';' is needed: properties and statements stand side by side",
    "'": "a string is written with double quotes",
    "“": "a string is written with straight double quotes",
    "”": "a string is written with straight double quotes",
    "&": "write `and` for '&&'",
    "|": "write `or` for '||'",
    "!": "write `not` for '!'",
    "==": "write `=` for '=='",
    "//": "a comment starts with `#`",
    "/*": "a comment starts with `#`",
}


def describe(fault: Fault) -> Diagnostic:
    """The one message of a fault. Sets `fault.unclosed_at` where a `}` is missing."""
    before = fault.before()
    for tell in (
        _unclosed_string,
        _end_of_text,
        habit,
        flow_slip,
        _unit,
        _unclosed,
        _swallowed,
        foreign,
        misplaced,
        _reserved,
        _foreign,
        _stray,
        _ladder,
    ):
        told = tell(fault, before)
        if told is not None:
            return told
    return expected(fault, before)


# --- special faults, most telling first ---------------------------------------------------------------------


def _unclosed_string(fault: Fault, before: list[Piece]) -> Diagnostic | None:
    if fault.token.type == "CHARACTER" and fault.token == '"':
        return codes.SYNTAX.at(
            fault.place(fault.start), "this string is not closed on its line", fix='write the other "'
        )
    return None


def _end_of_text(fault: Fault, before: list[Piece]) -> Diagnostic | None:
    if fault.token.type != "$END":
        return None
    if fault.opening is not None:
        sign, other = str(fault.opening), {"{": "}", "[": "]", "(": ")"}[str(fault.opening)]
        place = fault.place(fault.opening.start_pos or 0)
        return codes.SYNTAX.at(place, f"this '{sign}' is never closed", fix=f"write `{other}` where it ends")
    last = before[0] if before else Piece("", 0)
    place = fault.place(last.start, max(1, len(last.text)))
    return codes.SYNTAX.at(place, f"the text ends after '{last.text}'; expected {listed(fault)}", fix=instead(fault))


def _unit(fault: Fault, before: list[Piece]) -> Diagnostic | None:
    """`5 minuts`: a number and a word that is no unit."""
    number = word = None
    if len(before) > 1 and "COLON" in fault.accepted and _BARE_NUMBER.fullmatch(before[1].text):
        number, word = before[1], before[0]
    elif before and _BARE_NUMBER.fullmatch(before[0].text) and _WORD.fullmatch(str(fault.token)):
        number, word = before[0], Piece(str(fault.token), fault.start)
    if (
        number is None
        or word is None
        or not _WORD.fullmatch(word.text)
        or not fault.same_line(number.start, word.start)
    ):
        return None
    if word.text in words.PROPERTIES or word.text in HARD or word.text in words.SPAN_KINDS:
        return None
    if word.start < fault.start:
        fault.swallowed_at = fault.start  # what was met is no part of it
    place = fault.place(number.start, word.start + len(word.text) - number.start)
    known = ", ".join((*words.DURATION_UNITS, *words.TOKEN_UNITS, *words.BYTE_UNITS, words.PERCENT_UNIT))
    return unit_fault(place, number.text + word.text, f"'{word.text}' is not a unit; the units are {known}")


def _unclosed(fault: Fault, before: list[Piece]) -> Diagnostic | None:
    """A statement or a rule begins although the braces in front are still open."""
    opening = fault.opening
    if opening is None or fault.block == "file":
        return None
    missing: int | None = None
    token = str(fault.token)
    within = fault.block == "workflow" and is_nested(fault.text, fault.start)
    if token in words.STATEMENT_WORDS and token != "until" and not within and fault.at_line_start(fault.start):
        missing = fault.start
    elif opening == "{" and fault.block == "body" and token in _AFTER_KIND:
        missing = _rule_head(fault)
    if missing is None:
        return None
    fault.unclosed_at = missing
    sign, other = str(opening), {"{": "}", "[": "]", "(": ")"}[str(opening)]
    opened = fault.place(opening.start_pos or 0)
    rest = fault.text[missing:].partition("\n")[0]
    word = next((piece.text for piece in pieces(rest, 0, len(rest))), "")
    return codes.SYNTAX.at(
        opened,
        f"this '{sign}' is not closed before '{word}' in line {fault.place(missing).line}",
        notes=(Note(fault.place(missing, len(word)), f"'{word}' begins something new here"),),
        fix=f"write `{other}` before `{word}`",
    )


def _swallowed(fault: Fault, before: list[Piece]) -> Diagnostic | None:
    """`let patience =`, and on the next line `turn {`: the end of the first is missing, not one of the second."""
    if fault.block not in {"file", "layer", "on"} or str(fault.token) not in {*_AFTER_KIND, ":"} or not before:
        return None
    begin = fault.text.rfind("\n", 0, fault.start) + 1
    on_line = [piece for piece in before if piece.start >= begin]
    earlier = [piece for piece in before if piece.start < begin]
    head = on_line[-1] if on_line else None
    if head is None or not earlier or earlier[0].text not in {"=", ",", "as", "with", "over", "let", "use"}:
        return None
    fault.swallowed_at = head.start
    last = earlier[0]
    what = "a value" if last.text == "=" else "a name"
    place = fault.place(last.start, len(last.text))
    return codes.SYNTAX.at(
        place, f"expected {what} after '{last.text}', found the end of the line", fix=f"write {what} there"
    )


def _rule_head(fault: Fault) -> int | None:
    """The start of the fault's line where a rule begins on it: a kind, or a label and a kind."""
    begin = fault.text.rfind("\n", 0, fault.start) + 1
    on_line = pieces(fault.text, begin, fault.start)
    kinds = {*words.SPAN_KINDS, words.ANY_KIND}
    if not on_line or (fault.opening is not None and (fault.opening.start_pos or 0) >= begin):
        return None
    labelled = len(on_line) > 2 and on_line[1].text == ":" and on_line[0].text not in words.PROPERTIES
    head = on_line[2] if labelled else on_line[0]
    return on_line[0].start if head.text in kinds else None


def _reserved(fault: Fault, before: list[Piece]) -> Diagnostic | None:
    token = str(fault.token)
    last = before[0] if before else None
    if token in {":", "="} and last is not None and last.text in HARD:
        return reserved(last.text, fault.place(last.start, len(last.text)), quotable=token == ":")
    if token in HARD and fault.block in {"file", "layer", "on"}:
        follows = fault.text[fault.start + len(token) :].lstrip(" \t")[:1]
        if follows == ":":
            return reserved(token, fault.place(fault.start, len(token)))
    if token not in HARD or last is None or not fault.same_line(last.start, fault.start):
        return None
    if "NAME" in fault.accepted and last.text in _BEFORE_NAMES:
        return reserved(token, fault.place(fault.start, len(token)), quotable="STRING" in fault.accepted)
    return None


def _foreign(fault: Fault, before: list[Piece]) -> Diagnostic | None:
    """Signs of other languages."""
    start, sign = fault.start, fault.text[fault.start : fault.start + 1]
    pair = fault.text[fault.start : fault.start + 2]
    if sign in {"=", "/", "*"} and before and before[0].text in {"=", "/"} and before[0].start == start - 1:
        start, pair = start - 1, fault.text[start - 1 : start + 1]
    told = _INSTEAD.get(pair) or (_INSTEAD.get(sign) if fault.token.type == "CHARACTER" else None)
    if told is not None:
        return codes.SYNTAX.at(
            fault.place(start), f"'{pair if pair in _INSTEAD else sign}' is not part of the language", fix=told
        )
    if fault.token.type == "CHARACTER":
        shown = sign if sign.isprintable() else f"U+{ord(sign):04X}"
        return codes.SYNTAX.at(
            fault.place(start),
            f"'{shown}' is not part of the language",
            fix=f'text with "{shown}" in it is written as a string' if sign.isprintable() else None,
        )
    if sign in {"-", "/", "."} and fault.opening == "[" and before and _WORD.fullmatch(before[0].text):
        message = f"'{sign}' cannot stand in a name that is not quoted"
        return codes.SYNTAX.at(fault.place(start), message, fix=f'write it as a string: "{before[0].text}{sign}…"')
    return None


def _stray(fault: Fault, before: list[Piece]) -> Diagnostic | None:
    if fault.token.type == "RBRACE" and fault.block == "file" and fault.opening is None and "POLICY" in fault.accepted:
        return codes.SYNTAX.at(fault.place(fault.start), "this '}' closes nothing", fix="remove it")
    return None


def _ladder(fault: Fault, before: list[Piece]) -> Diagnostic | None:
    """`gpu cpu after 30s`: a comma is missing between tiers."""
    tiers = (*words.TIERS, *words.TIER_ALIASES)
    if len(before) > 1 and before[0].text in tiers and before[1].text not in {":", ","} and "COLON" in fault.accepted:
        place = fault.place(before[0].start, len(before[0].text))
        message = f"a comma is missing before '{before[0].text}'"
        return codes.SYNTAX.at(
            place, message, fix=f"write `, {before[0].text}`: the steps of a ladder are separated by commas"
        )
    return None
