"""Another name for a rule, a `let` or a layer, everywhere that it is used; refused where it would change a meaning.

The edits are tried before they are given: the sets are loaded with them, and every name must stand for what it stood
for, and every check must say what it said.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass

from kvpolicy import words
from kvpolicy.faults import InputFault
from kvpolicy.language.highlighting import CONSTANT, FUNCTION, KEYWORD, WORDS
from kvpolicy.language.reading import identity_of
from kvpolicy.language.scope import home_layer
from kvpolicy.lsp import roles
from kvpolicy.lsp.completion import quoted
from kvpolicy.lsp.names import Symbol, symbol, targets, uses, views
from kvpolicy.lsp.project import Part, Project, View
from kvpolicy.lsp.roles import Occurrence

_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_CAN = {roles.RULE: "rule", roles.LET: "let", roles.LAYER: "layer"}
_MANY = 2_000  # rules of a set beyond which only names are compared, not what the checks say
_OTHERS = {
    roles.WORKFLOW: "requests name a workflow, so another name would need other requests",
    roles.NODE: "requests name agents and tools, so another name would need other requests",
    roles.VALUE: "this is what requests say, not a name that the policy gives",
    roles.USED: "this is the name of a used policy; change it in its `use … as NAME`",
    roles.POLICY: "the policy's name is what others use it by; change it there, too",
}
_NO_LETS = WORDS[CONSTANT] | WORDS[KEYWORD] | WORDS[FUNCTION] | frozenset({"nothing", "tool", "tools", "human", "step"})


class Refused(Exception):
    """Why a name is not changed, as a sentence."""


@dataclass(frozen=True, slots=True)
class Edit:
    """A stretch of a file, and what is to stand there."""

    part: Part
    start: int
    end: int
    text: str


def renameable(view: View, offset: int) -> tuple[Occurrence, Symbol]:
    """The name at an offset of the view's own file. Raises Refused where none can be changed there."""
    part = view.main
    one = part.reading.at(offset) if part is not None else None
    if part is None or one is None:
        raise Refused("no name stands here")
    if one.role == roles.LAYER and one.of == "layers" and not any(t.one for t in targets(view, part, one)):
        raise Refused(_OTHERS[roles.USED])
    if one.role not in _CAN:
        told = _OTHERS.get(one.role) or f"'{one.name}' is a word of the language"
        if one.role == roles.USED and (found := targets(view, part, one)) and found[0].one is not None:
            told = f"'{one.name}' is a layer here; change its name where it is given"
        raise Refused(told)
    found = targets(view, part, one)
    if not found or found[0].one is None:
        raise Refused(f"nothing gives the name '{one.name}'")
    if found[0].one.role == roles.POLICY:
        raise Refused(_OTHERS[roles.POLICY])
    if found[0].part.packaged:
        raise Refused(f"'{one.name}' belongs to a policy that comes with kvpolicy")
    meant = symbol(view, part, one)
    assert meant is not None
    return one, meant


def renamed(project: Project, view: View, offset: int, name: str) -> list[Edit]:
    """The edits that give the name at an offset another one. Raises Refused with a sentence where that cannot be."""
    one, meant = renameable(view, offset)
    main = view.main
    assert main is not None
    if name == one.name:
        return []
    _fit(one.role, name)
    edits: dict[tuple[str, int], Edit] = {}
    for _, part, place in uses(project, meant, (one.name,), main):
        outside = any(rule.layer is None for rule in part.file.rules)
        if one.role == roles.LAYER and outside and home_layer(part.file) == place.name:
            raise Refused(f"the layer '{one.name}' is also that of the rules outside any `layer` block")
        edits[identity_of(part.path), place.start] = Edit(part, place.start, place.end, quoted(name))
    found = list(edits.values())
    _same_meaning(project, view, found, (one.name, name))
    return found


def _fit(role: str, name: str) -> None:
    """Whether a name can be one of that kind at all."""
    if not name.strip() or any(not letter.isprintable() for letter in name) or len(name) > 200:
        raise Refused("a name is a text of one line")
    if role != roles.LET:
        return
    if not _WORD.fullmatch(name):
        raise Refused(f"'{name}' cannot name a value: letters, digits and `_`, no digit first")
    if name in words.RESERVED or name in _NO_LETS:
        raise Refused(f"'{name}' is a word of the language and cannot name a value")


# --- what must not change -----------------------------------------------------------------------------------


def _same_meaning(project: Project, view: View, edits: list[Edit], names: tuple[str, str]) -> None:
    """Load every set that holds the old name or the new one, with the edits and without: names stand for the same, and
    the checks say the same."""
    main = view.main
    assert main is not None
    changed = edited_texts(edits)
    before = project.documents.texts()
    after = {**before, **changed}
    name = names[1]
    listed = re.compile("|".join(re.escape(word) for word in names))
    moved = {identity: sorted((e.start, e.end, len(e.text)) for e in edits if identity_of(e.part.path) == identity)
             for identity in changed}  # fmt: skip
    for one in views(project, main, listed):
        root = one.parts[-1].path if one.main is None else one.main.path
        try:
            now = project.view(root, after)
        except InputFault:
            continue
        if _bindings(now, {}) != _bindings(one, moved):
            raise Refused(f"'{name}' already stands for something else in {root.name}")
        if sum(len(p.file.rules) for p in one.parts) > _MANY:
            continue
        if Counter(d.code for d in one.checked.diagnostics) != Counter(d.code for d in now.checked.diagnostics):
            fault = next((d for d in now.checked.diagnostics if d not in one.checked.diagnostics), None)
            said = f": {fault.message}" if fault else ""
            raise Refused(f"with the name '{name}', {root.name} would no longer be what it is{said}")


def edited_texts(edits: list[Edit]) -> dict[str, str]:
    """The texts of the files with the edits made, by identity."""
    found: dict[str, str] = {}
    for edit in sorted(edits, key=lambda e: -e.start):
        identity = identity_of(edit.part.path)
        text = found.get(identity, edit.part.file.text)
        found[identity] = text[: edit.start] + edit.text + text[edit.end :]
    return found


def _bindings(view: View, moved: dict[str, list[tuple[int, int, int]]]) -> list[object]:
    """What every name stands for, by the number of the word; offsets as they are once `moved` has been done."""
    rows: list[object] = []
    for part in view.parts:
        for number, one in enumerate(part.reading.found):
            if one.role in roles.NAMES:
                meant = symbol(view, part, one)
                start = None if meant is None else _after(moved.get(meant.identity, []), meant.start)
                rows.append((part.file.name, number, one.role, None if meant is None else (meant.identity, start)))
    return rows


def _after(edits: list[tuple[int, int, int]], offset: int) -> int:
    """Where an offset is once the edits (start, end, new length) in front of it are made."""
    before = bisect_left(edits, (offset, 0, 0))
    return offset + sum(length - (end - start) for start, end, length in edits[:before])
