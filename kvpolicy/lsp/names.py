"""What a name stands for: where it is given, and everywhere that it is used.

Names are looked up by the same scope that `check` uses. A `Symbol` is a name by the place where it is given, so it is
the same from whatever file it is seen.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from kvpolicy.faults import InputFault, Place
from kvpolicy.language import syntax
from kvpolicy.language.load import group_name
from kvpolicy.language.nesting import find
from kvpolicy.language.reading import identity_of
from kvpolicy.language.scope import home_layer
from kvpolicy.lsp import roles
from kvpolicy.lsp.project import Part, Project, View, text_of
from kvpolicy.lsp.roles import Occurrence

_BY_LINE = re.compile(r"(.+):(\d+)")
_NODE_ATTRIBUTES = frozenset({"agent", "node", "tool"})


@dataclass(frozen=True, slots=True)
class Symbol:
    """A name by where it is given: the file's identity and the offset in it."""

    role: str
    identity: str
    start: int


@dataclass(frozen=True, slots=True)
class Target:
    """Where a name is given, or a file (then `end` is 0 and `one` None)."""

    part: Part
    start: int
    end: int
    one: Occurrence | None

    @property
    def identity(self) -> str:
        """The file's."""
        return identity_of(self.part.path)


def targets(view: View, part: Part, one: Occurrence) -> list[Target]:
    """Everywhere that a name is given; empty where nothing gives it."""
    match one.role:
        case roles.RULE:
            return _rule(view, part, one)
        case roles.LET:
            return _let(view, part, one)
        case roles.LAYER:
            return _layer(view, part.group, one.name) or _group(view, part, one.name)
        case roles.USED if one.of in {"file", "packaged"} or one.gives:
            return _used(view, part, one)
        case roles.USED:
            return _group(view, part, ".".join(one.path)) or _layer(view, part.group, one.path[-1])
        case roles.NODE:
            return _given(part, roles.NODE, one.name, one.of)[:1] or _first_use(part, one)
        case roles.VALUE if one.of in _NODE_ATTRIBUTES:
            return [found for other in view.parts for found in _given(other, roles.NODE, one.name)]
        case roles.VALUE if one.of == "workflow":
            return [found for other in view.parts for found in _given(other, roles.WORKFLOW, one.name)]
        case roles.WORKFLOW | roles.POLICY if one.gives:
            return [Target(part, one.start, one.end, one)]
        case roles.WORKFLOW:
            return _workflow(view, part, one)
    return []


def symbol(view: View, part: Part, one: Occurrence) -> Symbol | None:
    """The symbol of a name; None where nothing gives it, or where it is a value that only happens to be alike."""
    if one.role not in roles.NAMES:
        return None
    found = targets(view, part, one)
    if not found:
        return None
    role = found[0].one.role if found[0].one is not None else roles.USED
    return Symbol(role, found[0].identity, found[0].start)


def uses(
    project: Project, meant: Symbol, names: Iterable[str], beside: Part
) -> Iterator[tuple[View, Part, Occurrence]]:
    """Every place where a symbol is given or used, in every policy of the folders and in all open texts. names: a file
    that holds none of them as a word is passed over."""
    words = re.compile("|".join(re.escape(name) for name in names) or r"(?!)")
    seen: set[tuple[str, int]] = set()
    for view in views(project, beside, words):
        for part in view.parts:
            if part.packaged or not words.search(part.file.text):
                continue
            identity = identity_of(part.path)
            for one in part.reading.found:
                if one.role in roles.NAMES and (identity, one.start) not in seen and symbol(view, part, one) == meant:
                    seen.add((identity, one.start))
                    yield view, part, one


def views(project: Project, beside: Part, words: re.Pattern[str]) -> Iterator[View]:
    """The view of every policy that holds one of the words; not of a file of which nothing can be read."""
    texts = project.documents.texts()
    for path in project.files(beside.path):
        text = texts.get(identity_of(path)) or text_of(path)
        if text is None or not words.search(text):
            continue
        try:
            view = project.view(path)
        except InputFault:
            continue
        if view.parts:
            yield view


# --- one kind of name after the other ---------------------------------------------------------------------


def _at(view: View, place: Place, role: str) -> list[Target]:
    """The word that is given at a place."""
    part = view.part(place.file)
    if part is None:
        return []
    start = part.lines.of_place(place)[0]
    found = next((one for one in part.reading.found if one.start == start and one.role == role), None)
    return [Target(part, found.start, found.end, found)] if found else []


def _rule(view: View, part: Part, one: Occurrence) -> list[Target]:
    if one.gives:
        return [Target(part, one.start, one.end, one)]
    rule = view.scope.find_rule(one.path, part.group)
    if rule is not None:
        return _at(view, rule.place, roles.RULE)
    by_line = _BY_LINE.fullmatch(".".join(one.path))
    other = view.part(by_line[1]) if by_line else None
    if by_line is None or other is None or len(by_line[2]) > 7:
        return []
    start, end = other.lines.of_place(Place(by_line[1], int(by_line[2]), 1, int(by_line[2]), 1))
    return [Target(other, start, end, None)]


def _let(view: View, part: Part, one: Occurrence) -> list[Target]:
    if one.gives:
        return [Target(part, one.start, one.end, one)]
    if one.of.startswith("use "):
        use = next(
            (u for u in part.file.uses for s in u.settings if part.lines.of_place(s.place)[0] == one.start), None
        )
        member = brought_in(view, use) if use else None
        key = (member.group, one.name) if member else None
    else:
        key = view.scope.find_let(one.path, part.group)
    let = view.scope.lets.get(key) if key else None
    return _at(view, let.place, roles.LET) if let else []


def brought_in(view: View, use: syntax.Use) -> Part | None:
    """The file that a `use` brings in."""
    ending = use.target if use.target.endswith(".kvp") else use.target + ".kvp"
    for part in view.parts:
        if part.group and part.file.name.endswith(ending) and part.group == group_name(use, part.file):
            return part
    return next((p for p in view.parts if p.group and p.file.name.endswith(ending)), None)


def _layer(view: View, group: str, name: str) -> list[Target]:
    found = [t for p in view.parts if p.group == group for t in _given(p, roles.LAYER, name)]
    homes = [p for p in view.parts if p.group == group and home_layer(p.file) == name]
    return found or [target for home in homes for target in (_given(home, roles.POLICY, name) or [_whole(home)])]


def _workflow(view: View, part: Part, one: Occurrence) -> list[Target]:
    """The block that a workflow within another names."""
    known = {(p.group, w.name): p for p in reversed(view.parts) for w in reversed(p.file.workflows)}
    key = find(one.path, part.group, known)
    return _given(known[key], roles.WORKFLOW, one.name)[:1] if key else []


def _group(view: View, part: Part, name: str) -> list[Target]:
    """The file whose names stand behind a group's name."""
    inner = f"{part.group}.{name}" if part.group else name
    return [_whole(other) for other in view.parts if other.group and other.group in {name, inner}]


def _used(view: View, part: Part, one: Occurrence) -> list[Target]:
    line = next((u for u in part.file.uses if _stands_at(part, u, one)), None)
    other = brought_in(view, line) if line else None
    return [_whole(other)] if other else []


def _stands_at(part: Part, use: syntax.Use, one: Occurrence) -> bool:
    """Whether a word is the target or the name of a `use`."""
    if one.gives:
        return use.alias == one.name
    start, end = part.lines.of_place(use.place)
    return start <= one.start <= end


def _given(part: Part, role: str, name: str, of: str | None = None) -> list[Target]:
    return [
        Target(part, one.start, one.end, one)
        for one in part.reading.found
        if one.gives and one.role == role and one.name == name and of in (None, one.of)
    ]


def _first_use(part: Part, one: Occurrence) -> list[Target]:
    """A node that no line declares is given by the first edge that names it."""
    same = (o for o in part.reading.found if (o.role, o.name, o.of) == (roles.NODE, one.name, one.of))
    return [Target(part, first.start, first.end, first) for first in same][:1]


def _whole(part: Part) -> Target:
    return Target(part, 0, 0, None)
