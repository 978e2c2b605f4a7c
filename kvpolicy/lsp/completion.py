"""What may be written at the cursor: words of the language and names, each with its meaning.

Reads only the text in front of the cursor, and for names the set as it was last loaded, so that an answer never waits
for the checks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from kvpolicy import words
from kvpolicy.language.load import packaged_names
from kvpolicy.lsp import meanings, roles
from kvpolicy.lsp.hover import signature, word
from kvpolicy.lsp.names import brought_in
from kvpolicy.lsp.project import Part, View
from kvpolicy.lsp.reader import Reading, wanted
from kvpolicy.lsp.roles import Occurrence, Wanted

_OF_NAMES = roles.NAMES | {roles.VALUE}
_TABLES: dict[str, tuple[str, ...]] = {
    roles.KIND: (*words.SPAN_KINDS, words.ANY_KIND),
    roles.EVENT: tuple(words.EVENTS),
    roles.TIER: words.TIERS,
}


@dataclass(frozen=True, slots=True)
class Offer:
    """`text` is what is inserted; `sort`: offers with a smaller number come first."""

    role: str
    label: str
    text: str
    meaning: str
    sort: int


def offers(
    text: str, cursor: int, view: View | None, read: Callable[[str], Reading] | None = None
) -> tuple[list[Offer], int]:
    """Everything that may stand at a cursor, and where the word that is being typed begins. view: where names are
    looked up; read: how the words of the text itself are found, which is done only where a name may stand."""
    asked, begin = wanted(text, cursor)
    reading = read(text) if read is not None and any(one.role in _OF_NAMES for one in asked) else None
    found: dict[str, Offer] = {}
    for number, one in enumerate(asked):
        for offer in _for(one, number, view, reading):
            found.setdefault(offer.label, offer)
    return list(found.values()), begin


def _for(one: Wanted, sort: int, view: View | None, reading: Reading | None) -> Iterator[Offer]:
    listed = _TABLES.get(one.role)
    if one.role in {roles.STATEMENT, roles.CLAUSE, roles.CONSTANT}:
        yield _word(one, sort)
    elif one.role == roles.ATTRIBUTE:
        known = words.EVENT_ATTRIBUTES if one.of == "event" else words.ATTRIBUTES
        yield from _table(one.role, known, sort, of=one.of)
    elif listed is not None:
        yield from _table(one.role, listed, sort)
    elif one.role == roles.PROPERTY:
        for name in (one.of,) if one.of else tuple(words.PROPERTIES):
            role = roles.TIER if name in words.TIERS else roles.PROPERTY
            yield Offer(one.role, name, f"{name}: ", _meaning(role, name), sort)
    elif one.role in {roles.FUNCTION, roles.SERIES}:
        yield from _called(one, sort)
    elif one.role == roles.USED:
        for name in packaged_names():
            yield Offer(one.role, name, name, "a packaged policy", sort)
    elif one.role == roles.VALUE:
        yield from _values(one, sort, view, reading)
    else:
        yield from _names(one, sort, view, reading)


def _called(one: Wanted, sort: int) -> Iterator[Offer]:
    """Functions, and the series that some of them read."""
    if one.role == roles.FUNCTION:
        for name, (takes, _, _) in words.FUNCTIONS.items():
            yield Offer(one.role, name, f"{name}(" if takes else f"{name}()", signature(name), sort)
        return
    before = f"{'.'.join(one.before)}." if one.before else ""
    for name in (name for name in words.SERIES if name.startswith(before)):
        yield Offer(one.role, name.removeprefix(before), name.removeprefix(before), words.SERIES[name], sort)


def _word(one: Wanted, sort: int) -> Offer:
    name = one.of
    if one.role == roles.STATEMENT:
        return Offer(one.role, name, f"{name} ", meanings.STATEMENTS[name][0], sort)
    of = one.before[0] if one.before else ""
    if one.role == roles.CONSTANT:
        return Offer(one.role, name, f"{name} " if name == "hold" else name, _meaning(one.role, name, of), sort)
    return Offer(one.role, name, name if name == "fixed" else f"{name} ", _meaning(one.role, name), sort)


def _table(role: str, names: Iterable[str], sort: int, of: str = "") -> Iterator[Offer]:
    for name in names:
        yield Offer(role, name, name, _meaning(role, name, of), sort)


def _meaning(role: str, name: str, of: str = "") -> str:
    return word(Occurrence(role, name, 0, 0, of=of)) or ""


# --- names --------------------------------------------------------------------------------------------------


def _values(one: Wanted, sort: int, view: View | None, reading: Reading | None) -> Iterator[Offer]:
    """Values of an attribute: the words it has, and what the set already calls agents, tools and the like."""
    if one.of == "status":
        yield from _table(roles.VALUE, words.STATUSES, sort, of=one.of)
    elif one.of == "last_step":
        yield from _table(roles.VALUE, ("yes", "no"), sort, of=one.of)
    used: dict[str, None] = {}
    for occurrence in _all(view, reading):
        node = occurrence.role == roles.NODE and one.of in {"agent", "node"}
        workflow = occurrence.role == roles.WORKFLOW and one.of == "workflow"
        same = occurrence.role == roles.VALUE and occurrence.of == one.of
        if node or workflow or (same and one.of != "status"):
            used[occurrence.name] = None
    for name in used:
        yield Offer(roles.VALUE, name, quoted(name), f"used as `{one.of}` here", sort)


def _all(view: View | None, reading: Reading | None) -> Iterator[Occurrence]:
    main = view.main if view is not None else None
    for part in view.parts if view is not None else ():
        if reading is None or part is not main:
            yield from part.reading.found
    if reading is not None:
        yield from reading.found


def _names(one: Wanted, sort: int, view: View | None, reading: Reading | None) -> Iterator[Offer]:
    """Names of the role that the set gives; behind a dot only those of that group or layer."""
    if one.of.startswith("use "):
        yield from _settings(one.of.removeprefix("use "), sort, view)
        return
    given: dict[str, str] = {}
    if view is not None:
        given = _of_set(one, view, reading is not None)
    if reading is not None and not one.before:
        for occurrence in reading.found:
            node = occurrence.role == roles.NODE and occurrence.of == one.of
            if occurrence.role == one.role and (node or (occurrence.gives and one.role != roles.NODE)):
                given.setdefault(occurrence.name, "this file")
    for name, place in given.items():
        yield Offer(one.role, name, name if "." in name else quoted(name), f"{one.role} of {place}", sort)
    if view is not None:
        yield from _groups(one, sort, view)


def _of_set(one: Wanted, view: View, but_own: bool) -> dict[str, str]:
    """The names that a set gives, with the file of each. but_own: without those of the view's own file, whose text may
    have changed since; behind a dot they count."""
    part, before = view.main, ".".join(one.before)
    given: dict[str, str] = {}
    for other in view.parts:
        if other is part and but_own and not before:
            continue
        own = part is not None and other.group == part.group
        for name, place in _given(other, one, before if other.group != before else ""):
            if before in (other.group, "") or own:
                given.setdefault(name if own or other.group == before else f"{other.group}.{quoted(name)}", place)
    return given


def _groups(one: Wanted, sort: int, view: View) -> Iterator[Offer]:
    """Layers that rules are looked for in, used policies among the layers."""
    part = view.main
    if one.role == roles.RULE and not one.before and part is not None:
        for layer in (layer for p in view.parts if p.group == part.group for layer in p.file.layer_order):
            yield Offer(roles.LAYER, layer, quoted(layer), "a layer; its rules stand behind a dot", sort)
    if one.role == roles.LAYER:
        for group in view.scope.groups:
            yield Offer(one.role, group, quoted(group), "a used policy", sort)


def _settings(target: str, sort: int, view: View | None) -> Iterator[Offer]:
    """What `with` may set of a used policy."""
    part = view.main if view is not None else None
    if view is None or part is None:
        return
    use = next((u for u in part.file.uses if u.target == target), None)
    other = brought_in(view, use) if use else None
    for let in other.file.lets if other else ():
        yield Offer(roles.LET, let.name, f"{let.name} = ", "a named value of the used policy", sort)


def _given(part: Part, one: Wanted, layer: str) -> Iterator[tuple[str, str]]:
    """The names of a role that a file gives; rules only of a layer, where one is named in front."""
    if one.role == roles.RULE:
        for rule in part.file.rules:
            if rule.label is not None and layer in ("", rule.layer or ""):
                yield rule.label, part.file.name
        return
    for occurrence in part.reading.found:
        node = one.role == roles.NODE and occurrence.role == roles.NODE and occurrence.of == one.of
        if node or (occurrence.gives and occurrence.role == one.role):
            yield occurrence.name, part.file.name


def quoted(name: str) -> str:
    """A name as it is written: in quotes where it is no plain word."""
    plain = name.isidentifier() and name.isascii() and name not in words.RESERVED
    return name if plain else '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'
