"""Slips in a `workflow` block: probabilities, bounds, sub-agents and inner workflows written as elsewhere.

`wording` asks here before it lists what could have stood in a place.
"""

from __future__ import annotations

import re
from itertools import pairwise

from kvpolicy import words
from kvpolicy.faults import Diagnostic
from kvpolicy.language import codes
from kvpolicy.language.met import Fault, Piece, is_nested, pieces

_SHARE = re.compile(r"(?:\[|\(|:|=|-|if|when|with|by|at)?\s*(?:[A-Za-z]\w*\s*[=:]\s*)?(\d+(?:\.\d+)?[ \t]*%?)")
_PER_CENT = re.compile(r"per_?cent|pct|pc", re.IGNORECASE)
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_NAME = re.compile(r'[A-Za-z_]\w*|"(?:[^"\\\n]|\\.)*"')
_CALLS = frozenset({"call", "calls", "uses", "invokes", "spawns"})
_BOUNDS = frozenset({"max", "maximum", "limit", "upto", "times"})
_SIGNS = frozenset({"[", "(", ":", "=", "-", "if", "when", "with", "by"})


def flow_slip(fault: Fault, before: list[Piece]) -> Diagnostic | None:
    """The message for a slip; None outside a workflow block, and for what is none of them."""
    if fault.block != "workflow" or not before:
        return None
    for tell in (_inner_block, _comma, _order, _bound, _called, _share):
        told = tell(fault, before)
        if told is not None:
            return told
    return None


def _inner_block(fault: Fault, before: list[Piece]) -> Diagnostic | None:
    """`workflow NAME {` set further in than the block that it stands in."""
    opening = fault.opening
    if str(fault.token) != "workflow" or opening is None or opening.start_pos is None:
        return None
    if is_nested(fault.text, fault.start):
        return None
    if not fault.at_line_start(fault.start) or _set_in(fault.text, fault.start) <= _set_in(
        fault.text, opening.start_pos
    ):
        return None
    name = _NAME.match(fault.text[fault.start + len("workflow") :].lstrip())
    fault.passed_at = fault.start + len("workflow")
    called = name.group() if name else "NAME"
    message = "the text of a workflow cannot stand within another"
    fix = f"write the whole block beside this one, and `workflow {called}` here"
    return codes.SYNTAX.at(fault.place(fault.start, len("workflow")), message, fix=fix)


def _set_in(text: str, position: int) -> int:
    line = text[text.rfind("\n", 0, position) + 1 : position]
    return len(line) - len(line.lstrip())


def _comma(fault: Fault, before: list[Piece]) -> Diagnostic | None:
    """`agent a b`: of the second name the parser thinks that a way begins there."""
    name = before[0]
    if fault.accepted & {"ARROW"} == set() or len(before) < 2 or not _NAME.fullmatch(name.text):
        return None
    begin = fault.text.rfind("\n", 0, name.start) + 1
    begin = max(begin, fault.text.rfind("{", 0, name.start) + 1)
    on_line = pieces(fault.text, begin, name.start)
    declares = [place for place, piece in enumerate(on_line) if piece.text in words.WORKFLOW_WORDS]
    if not declares or on_line[declares[-1]].text == "loop" or declares[-1] == len(on_line) - 1:
        return None
    last = on_line[-1].text
    if not _NAME.fullmatch(last) or any(piece.text == "->" for piece in on_line[declares[-1] :]):
        return None
    place = fault.place(name.start, len(name.text))
    message = f"a comma is missing before '{name.text}'"
    fix = f"write `{last}, {name.text}`: nodes that are declared together are separated by commas"
    return codes.SYNTAX.at(place, message, fix=fix)


def _order(fault: Fault, before: list[Piece]) -> Diagnostic | None:
    """`b 30% * n`, `b at most 3 30%`."""
    count = fault.token == "*" and fault.text[: fault.start].rstrip().endswith("%")
    share = fault.token.type == "QUANTITY" and len(before) > 1 and before[1].text == "most"
    if not count and not share:
        return None
    message = "what is said of a way stands in this order: how many, how likely, how often at most"
    return codes.SYNTAX.at(fault.place(fault.start), message, fix="write `-> NODE * n 30% at most 3`")


def _bound(fault: Fault, before: list[Piece]) -> Diagnostic | None:
    """`max 3`, `at most 30%`, `at most 2.5`, `* 1.5`."""
    if fault.token == "." and len(before) > 1 and before[1].text in {"*", "most"}:
        what = "how many there are" if before[1].text == "*" else "how often a way may be taken"
        mend = f"{'at most' if before[1].text == 'most' else '*'} {before[0].text}"
        place = fault.place(before[0].start, fault.start - before[0].start + 1)
        return codes.SYNTAX.at(place, f"{what} is a whole number", fix=f"write `{mend}`")
    if fault.token == "%" and len(before) > 1 and before[1].text == "most":
        message = "how often a way may be taken is a whole number"
        fix = f"write `at most {before[0].text}`, or how likely it is in front: `-> NODE {before[0].text}%`"
        return codes.SYNTAX.at(fault.place(fault.start), message, fix=fix)
    if before[0].text in _BOUNDS and fault.token.type == "QUANTITY":
        place = fault.place(before[0].start, len(before[0].text))
        return codes.SYNTAX.at(place, f"'{before[0].text}' bounds no way", fix=f"write `at most {fault.token}`")
    return None


def _called(fault: Fault, before: list[Piece]) -> Diagnostic | None:
    """`writer calls checker`."""
    if str(fault.token) not in _CALLS or not _NAME.fullmatch(before[0].text):
        return None
    name = _NAME.match(fault.text[fault.start + len(fault.token) :].lstrip())
    message = "a sub-agent is declared with the node that calls it"
    fix = f"write `agent {name.group() if name else 'NAME'} of {before[0].text}` instead"
    return codes.SYNTAX.at(fault.place(fault.start, len(fault.token)), message, fix=fix)


def _share(fault: Fault, before: list[Piece]) -> Diagnostic | None:
    """`-> b [30%]`, `-> b p = 0.3`, `-> b when 30%`, `-> b at 30%`, `-30%-> b`, `-> b 30 percent`."""
    if _PER_CENT.fullmatch(before[0].text) and len(before) > 1 and _NUMBER.fullmatch(before[1].text):
        place = fault.place(before[1].start, before[0].start + len(before[0].text) - before[1].start)
        return codes.UNIT_MISMATCH.at(place, f"'{before[0].text}' is not a unit", fix=f"write {before[1].text}%")
    sign, end = str(fault.token), fault.text.find("\n", fault.start)
    if sign not in _SIGNS and before[0].text != "at":
        return None
    share = _SHARE.match(fault.text, fault.start, len(fault.text) if end < 0 else end)
    if share is None:
        return None
    number = "".join(share.group(1).split())
    nodes = [b.text for b, a in pairwise(before) if a.text == "->" and _NAME.fullmatch(b.text)]
    message = "how likely a way is stands behind the node that it leads to"
    fix = f"write `-> {nodes[0] if nodes else 'NODE'} {number}`"
    return codes.SYNTAX.at(fault.place(fault.start, len(sign)), message, fix=fix)
