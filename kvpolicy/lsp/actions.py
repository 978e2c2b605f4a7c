"""Changes that mend a fault: what its `fix` says to write, where that can be done by writing it.

A change is offered only after it was tried: the fault must be gone, and no other may have come. What the sentence
leaves to the author (another name, a narrower rule) is left to the author.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from kvpolicy.faults import Diagnostic, InputFault
from kvpolicy.language.reading import identity_of
from kvpolicy.lsp.project import Part, Project, View

_NEAR = re.compile(r'did you mean (?:`([^`]+)`|"([^"]+)")\?')
_QUOTED = re.compile(r"'([^']+)'")
_CODE = re.compile(r"`([^`…]+)`")
_BARE = re.compile(r"write ((?:-?\d[\w.%]*)(?:(?:, | or )-?\d[\w.%]*)*)")
_INSERT = re.compile(r"write `([\]})])` (there|where it ends|before `[^`]*`)")
_OVER = re.compile(r"for `([^`]+)` write `([^`…]*) over ([A-Za-z_]\w*(?:\.\w+)*|\"[^\"]*\") \{ … \}` in line (\d+)")
_STRING = re.compile(r'another name, or ("[^"]+")')
_MOST = 4  # faults that are tried at once


@dataclass(frozen=True, slots=True)
class Mend:
    """One change: what it is called, the fault that it mends, and what is to stand from `start` to `end`."""

    title: str
    fault: Diagnostic
    start: int
    end: int
    text: str


def mends(project: Project, view: View, start: int, end: int) -> list[Mend]:
    """The changes that mend faults of the view's own file between two offsets."""
    part = view.main
    if part is None:
        return []
    found: list[Mend] = []
    near = [fault for fault in view.own_faults() if fault.fix and _touches(part, fault, start, end)]
    for fault in near[:_MOST]:
        tried: set[tuple[int, int, str]] = set()
        for mend in _candidates(part, fault):
            key = (mend.start, mend.end, mend.text)
            if key not in tried and mend.text != part.file.text[mend.start : mend.end]:
                tried.add(key)
                if _mended(project, view, part, mend):
                    found.append(mend)
    return found


def _touches(part: Part, fault: Diagnostic, start: int, end: int) -> bool:
    begins, ends = part.lines.of_place(fault.place)
    line_end = part.file.text.find("\n", ends)
    return begins <= end and start <= max(ends, line_end if begins == ends else ends)


def _candidates(part: Part, fault: Diagnostic) -> Iterator[Mend]:
    """What the fix may mean as a change, most telling first."""
    fix, text = fault.fix or "", part.file.text
    start, end = part.lines.of_place(fault.place)
    near = _NEAR.search(fix)
    if near:
        yield from _instead(part, fault, start, near[1] or near[2])
        return
    over = list(_OVER.finditer(fix))
    for one in over:
        yield from _over(part, fault, one)
    insert = _INSERT.match(fix)
    if insert:
        before = insert[2].startswith("before")
        at = part.lines.of_place(fault.notes[0].place)[0] if before and fault.notes else start
        yield Mend(f"write `{insert[1]}`", fault, at, at, insert[1] + ("\n" if before else ""))
        if insert[2] == "where it ends":
            yield Mend("write `}` at the end", fault, len(text), len(text), insert[1] + "\n")
        return
    bare = _BARE.match(fix)
    if bare:
        for number in re.findall(r"-?\d[\w.%]*", bare[1]):
            yield Mend(f"write {number}", fault, start, end, number)
        return
    string = _STRING.search(fix)
    if string:
        yield Mend(f"write {string[1]}", fault, start, end, string[1])
    if over or "such as" in fix:  # an example is not what the author meant to write
        return
    for written in _CODE.findall(fix):
        yield Mend(f"write `{written}`", fault, start, end, written)
        yield Mend(f"write `{written}`", fault, end, end, written)
        if fault.code == "KVP207":  # the order of layers stands in front of all rules
            line = text.rfind("\n", 0, start) + 1
            after = text.find("\n", end)
            at = after + 1 if after >= 0 else len(text)
            yield Mend(f"write `{written}`", fault, at if line or at else 0, at, f"{written}\n")
    if fix.startswith("remove"):
        yield Mend("remove it", fault, start, end, "")


def _instead(part: Part, fault: Diagnostic, start: int, near: str) -> Iterator[Mend]:
    """The word that was meant, where the wrong one stands: at the place of the fault or behind it."""
    for wrong in reversed(_QUOTED.findall(fault.message)):
        at = part.file.text.find(wrong, start)
        if 0 <= at < start + 500:
            yield Mend(f"change '{wrong}' to '{near}'", fault, at, at + len(wrong), near)
            if near.startswith("use "):
                yield Mend(f"write `{near}`", fault, *part.lines.of_place(fault.place), near)


def _over(part: Part, fault: Diagnostic, one: re.Match[str]) -> Iterator[Mend]:
    """`over OTHER` behind the selector of the rule in that line."""
    line, loser = int(one[4]), one[3]
    rule = next((rule for rule in part.file.rules if rule.place.line == line), None)
    if rule is None:
        return
    title = f"for `{one[1]}`: write `over {loser}` in line {line}"
    if rule.over_places:
        at = part.lines.of_place(rule.over_places[-1])[1]
        yield Mend(title, fault, at, at, f", {loser}")
    else:
        at = part.lines.of_place(rule.selector[-1].place)[1]
        yield Mend(title, fault, at, at, f" over {loser}")


def _mended(project: Project, view: View, part: Part, mend: Mend) -> bool:
    """Whether the change takes this fault away and brings no other."""
    text = part.file.text[: mend.start] + mend.text + part.file.text[mend.end :]
    try:
        after = project.view(part.path, {**project.documents.texts(), identity_of(part.path): text})
    except InputFault:
        return False
    before = Counter(fault.code for fault in view.checked.diagnostics)
    now = Counter(fault.code for fault in after.checked.diagnostics)
    # A fault of words hides those of rules: these do not count against the change.
    hidden = {code for code in now if code >= "KVP200"} if not any(c >= "KVP200" for c in before) else set()
    gone = now[mend.fault.code] < before[mend.fault.code]
    return gone and all(count <= before[code] for code, count in now.items() if code not in hidden)
