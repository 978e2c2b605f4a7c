"""Every word in its role: on sound texts as the parser has it, on broken ones without ever giving up."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvpolicy import words
from kvpolicy.faults import Place
from kvpolicy.language import syntax
from kvpolicy.language.parse import parse
from kvpolicy.lsp import roles
from kvpolicy.lsp.completion import offers
from kvpolicy.lsp.lines import Lines
from kvpolicy.lsp.project import Project
from kvpolicy.lsp.reader import read, wanted
from tests.fuzz import damage
from tests.lsp.texts import sound, text_of


def _walk(node: object) -> Iterator[object]:
    """A syntax tree's nodes."""
    yield node
    if isinstance(node, tuple):
        for part in node:
            yield from _walk(part)
    elif hasattr(node, "__dataclass_fields__") and not isinstance(node, Place):
        for field in node.__dataclass_fields__:
            yield from _walk(getattr(node, field))


def _start(lines: Lines, place: Place) -> int:
    return lines.of_place(place)[0]


@pytest.mark.parametrize("path", sound(), ids=lambda path: path.name)
def test_the_reader_and_the_parser_agree(path: Path) -> None:
    text = text_of(path)
    file, lines, found = parse(text, path.name).file, Lines(text), read(text).found
    assert file is not None

    def at(role: str, gives: bool | None = None) -> set[tuple[int, str]]:
        return {(o.start, o.name) for o in found if o.role == role and gives in (None, o.gives)}

    nodes = [node for part in (file.rules, file.limits, file.tests, file.lets, file.uses) for node in _walk(part)]
    assert at(roles.RULE, True) == {(_start(lines, r.place), r.label) for r in file.rules if r.label is not None}
    assert at(roles.LET, True) == {(_start(lines, let.place), let.name) for let in file.lets}
    assert {name for _, name in at(roles.LAYER, True)} == set(file.layer_order)
    assert at(roles.NODE, True) == {(_start(lines, n.place), n.name) for w in file.workflows for n in w.nodes}
    assert {name for _, name in at(roles.WORKFLOW, True)} == {w.name for w in file.workflows}
    over = {(_start(lines, place), path) for r in file.rules for path, place in zip(r.over, r.over_places, strict=True)}
    assert {(start, path[-1]) for start, path in over if len(path) == 1} <= at(roles.RULE, False)
    assert {path[-1] for _, path in over} <= {name for _, name in at(roles.RULE, False)}
    by = [d.by[-1] for node in nodes if isinstance(node, syntax.Expect) for d in node.declarations if d.by]
    assert len(at(roles.RULE, False)) == len(over) + len(by)
    kinds = [(_start(lines, n.place), n.kind) for n in nodes if isinstance(n, syntax.Match)]
    assert {(start, kind) for start, kind in kinds if text.startswith(kind, start)} <= at(roles.KIND)
    conditions = {(_start(lines, n.place), n.attribute) for n in nodes if isinstance(n, syntax.Condition)}
    assert at(roles.ATTRIBUTE) == conditions
    events = {(_start(lines, n.place), n.name) for n in nodes if isinstance(n, syntax.Event)}
    assert events <= at(roles.EVENT)
    properties = {(_start(lines, n.place), n.property) for n in nodes if isinstance(n, syntax.Declaration)}
    assert properties == {row for row in at(roles.PROPERTY) if row[1] in words.PROPERTIES and row in properties}
    calls = {(_start(lines, n.place), n.function) for n in nodes if isinstance(n, syntax.Call)}
    assert at(roles.FUNCTION) == calls


@pytest.mark.parametrize("path", sound(), ids=lambda path: path.name)
def test_what_stands_in_a_sound_text_is_offered_there(path: Path) -> None:
    """Completion at each word, with its first letter typed, offers the word itself."""
    text = text_of(path)
    view = Project().view(path)
    for one in view.main.reading.found:  # type: ignore[union-attr]
        named = one.gives or one.role in {roles.QUANTITY, roles.POLICY, roles.TEST}
        if named or text[one.start] == '"' or one.of in {"file", "times", "title"}:
            continue
        if one.name in words.EVENT_ALIASES or one.name in words.TIER_ALIASES:
            continue
        if one.role == roles.VALUE and one.of not in ("status", "last_step"):
            continue
        front = text[: one.start + 1]
        labels = [offer.label for offer in offers(front, len(front), view)[0]]
        dotted = ".".join(one.path)
        assert any(label in (one.name, dotted) or label.startswith(f"{dotted}.") for label in labels), (one, labels)


def test_nothing_is_offered_in_comments_and_strings() -> None:
    for text in ("# pri", 'policy p "pri', 'turn { priority: 1 } # "x', 'test "on t'):
        assert wanted(text, len(text))[0] == (), text
    assert wanted('policy p "pri" ', 15)[0] != ()


@pytest.mark.parametrize(
    ("front", "there", "not_there"),
    [
        ("", {"layer", "turn", "language"}, {"priority", "tool_call"}),
        ("turn[agent = a, ", {"tool", "tokens"}, {"turn_end", "priority"}),
        ("on tool_call[", {"call", "eta", "tool"}, {"priority"}),
        ("on tool_call until ", {"tool_result"}, {"priority", "layer"}),
        ("on tool_call ", {"until", "at"}, {"layer"}),
        ("turn { ", {"priority", "for"}, {"hold", "turn"}),
        ("turn { priority: 3 ", {"ttl", "else"}, {"layer"}),
        ("turn { retention: ", {"pin", "hold", "default"}, {"gpu", "idle"}),
        ("turn { retention: hold ", {"until", "best_hold"}, {"pin"}),
        ("turn { retention: hold until ", {"tool_result"}, {"pin"}),
        ("turn { tier: ", {"gpu", "remote"}, {"pin"}),
        ("turn { tier: gpu, cpu ", {"after", "ttl"}, {"pin"}),
        ("turn { for: ", {"session", "tenant"}, {"gpu"}),
        ("turn { share: ", {"global"}, {"branch"}),
        ("turn { place: ", {"same_worker"}, {"global"}),
        ("turn { replicas: ", {"all"}, {"pin"}),
        ("turn { ttl: 5min ", {"fixed"}, {"after"}),
        ("turn when p95(", {"tool.duration"}, {"turn"}),
        ("turn when pressure(", {"cpu"}, {"turn"}),
        ("turn when hits(", {"document"}, {"cpu"}),
        ("turn when eta(", {"turn_start"}, {"cpu"}),
        ("turn when reuse_probability(", {"within"}, {"cpu"}),
        ("turn when idle() > 5s ", {"and", "else"}, {"priority"}),
        ("limit any ", {"per"}, {"priority"}),
        ("limit any per ", {"tenant", "session"}, {"agent"}),
        ("limit any { ", {"hold", "gpu", "priority"}, {"retention"}),
        ("limit any { hold: ", {"at"}, {"pin"}),
        ("limit any { hold: at ", {"most", "least"}, {"pin"}),
        ("limit any { hold: at most 40% ", {"of"}, {"layer"}),
        ('test "t" { ', {"given", "expect"}, {"turn"}),
        ('test "t" { assume ', {"idle"}, {"turn"}),
        ('test "t" { assume idle() = ', {"nothing", "never"}, {"turn"}),
        ('test "t" { at ', {"tool_call"}, {"system"}),
        ("x: turn { priority: 1 }\ny: document over ", {"x"}, {"turn"}),
        ("let patience = 5s\nturn { ttl: ", {"patience", "idle"}, {"pin"}),
        ("workflow w { ", {"agent", "loop", "barrier"}, {"turn"}),
        ("workflow w { agent a, b\n a -> ", {"a", "b"}, {"turn"}),
        ("workflow w { ", {"workflow"}, {"turn", "layer"}),
        ("workflow w { agent a, b }\nworkflow v { agent c\n workflow ", {"w", "v"}, {"a", "c"}),
        ("workflow w { agent a }\nworkflow v { workflow w ", {"as", "of", "agent"}, {"at", "turn"}),
        ("workflow w { agent a, b ", {"of", "loop"}, {"as", "at"}),
        ("workflow w { agent a, b of ", {"a", "b"}, {"agent"}),
        ("workflow w { agent a, b\n a -> b 30% ", {"at", "loop", "a"}, {"of"}),
        ("workflow w { agent a, b\n a -> b * 3 40% at ", {"most"}, {"a"}),
        ("workflow w { agent planner }\nturn[agent = ", {"planner"}, {"turn"}),
        ("workflow w { agent a }\nturn[workflow = ", {"w"}, {"a"}),
        ("turn[status = ", {"done"}, {"turn"}),
        ("use ", {"base", "continuum"}, {"turn"}),
        ("use base ", {"as", "with"}, set()),
        ("layer a { }\nlayers ", {"a"}, {"turn"}),
        # broken in front
        ("turn { priority 3 } }}\ndocument { ", {"ttl"}, {"layer"}),
        ("layer x { turn { priority: \non tool_call until ", {"tool_result"}, {"priority"}),
        ('let x = "unclosed\nturn { ', {"ttl"}, {"layer"}),
    ],
)
def test_what_is_offered(front: str, there: set[str], not_there: set[str]) -> None:
    labels = {offer.label for offer in offers(front, len(front), None, read)[0]}
    assert there <= labels, sorted(labels)
    assert not labels & not_there


@settings(max_examples=60, deadline=None)
@given(chance=st.randoms(use_true_random=False), number=st.integers(0, len(sound()) - 1), data=st.data())
def test_broken_texts_are_read(chance: object, number: int, data: st.DataObject) -> None:
    text = damage.text(chance, text_of(sound()[number])[:4000])  # type: ignore[arg-type]
    found = read(text).found
    assert all(0 <= one.start < one.end <= len(text) for one in found)
    assert all(a.start <= b.start for a, b in pairwise(found))
    cursor = data.draw(st.integers(0, len(text)))
    asked, begin = wanted(text, cursor)
    assert begin <= cursor
    assert all(one.role for one in asked)


def test_deep_nests_are_read() -> None:
    for opening in ("(", "min(1, ", "not ", "- ", "[", "{", "layer a { ", "on tool_call { ", "p95("):
        text = "turn { priority: " + opening * 20_000
        read(text)
        wanted(text, len(text))
