"""Statements from tokens: the transformer that lark runs while it parses.

Its callbacks receive tokens and finished parts and make the classes of `syntax`; finished statements gather in
`items`, so that a text with a fault in one place still gives everything else. It is made in layers, each in its file:
expressions, names, rules, and here the statements of a file.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from lark import Token

from kvpolicy.faults import Place
from kvpolicy.language import codes, syntax
from kvpolicy.language.build_expressions import Children, unquote
from kvpolicy.language.build_rules import RuleBuilder, flat

Count = tuple[str | None, Place | None]
Arm = tuple[str, Place, Count, syntax.Literal | None, int | None]  # name, times, probability, bound


class Builder(RuleBuilder):
    """Callbacks of statements."""

    def __init__(self) -> None:
        super().__init__()
        self.items: list[Any] = []

    def begin(self, file: str) -> None:
        """Forget the text before and start on `file`."""
        self.file, self.faults, self.items = file, [], []

    def item(self, children: Children) -> None:
        self.items.append(children[0])

    # --- head of a file ---------------------------------------------------------------------------------

    def language(self, children: Children) -> syntax.Language:
        word, version = children
        number = int(version) if version.isdecimal() and len(version) < 6 else 0  # others are told by their place
        return syntax.Language(number, self._to(self.place(word), self.place(version)))

    def policy(self, children: Children) -> syntax.Header:
        word, name, title = children
        return syntax.Header(self._named(name), unquote(title) if title else None, self.place(word))

    def as_name(self, children: Children) -> str:
        return self._named(children[1])

    def setting(self, children: Children) -> syntax.Let:
        name, _, (value, _) = children
        return syntax.Let(str(name), value, self.place(name))

    def use(self, children: Children) -> syntax.Use:
        target, place = children[1]
        settings = tuple(child for child in children if isinstance(child, syntax.Let))
        is_file = place.end_column - place.column != len(target)
        return syntax.Use(target, is_file, children[2], settings, self._to(self.place(children[0]), place))

    def layers(self, children: Children) -> syntax.Layers:
        pairs = [child for child in children if not isinstance(child, Token)]
        names, places = tuple(name for name, _ in pairs), tuple(place for _, place in pairs)
        return syntax.Layers(names, places, self.place(children[0]))

    def let(self, children: Children) -> syntax.Let:
        _, name, _, (value, _) = children
        return syntax.Let(self.defined(name, quotable=False), value, self.place(name))

    # --- workflows --------------------------------------------------------------------------------------

    def workflow(self, children: Children) -> syntax.Workflow:
        parts = [part for child in children[3:-1] for part in child]
        nodes = tuple(part for part in parts if isinstance(part, syntax.Node))
        edges = tuple(part for part in parts if isinstance(part, syntax.Edge))
        return syntax.Workflow(self._named(children[1]), nodes, edges, self.place(children[0]))

    def nodes(self, children: Children) -> list[syntax.Node]:
        role = str(children[0])
        return [replace(child, role=role) for child in children[1:] if not isinstance(child, Token)]

    def node(self, children: Children) -> syntax.Node:
        pair, _, parent = children
        return self._called(syntax.Node("", self._named(pair), pair[1]), parent)

    def nested(self, children: Children) -> list[syntax.Node]:
        return [child for child in children[1:] if not isinstance(child, Token)]

    def part(self, children: Children) -> syntax.Node:
        """Without a name of its own the node is called as its workflow is."""
        (path, place), _, own, _, parent = children
        name, given = (path[-1], place) if own is None else (self._named(own), own[1])
        return self._called(syntax.Node("workflow", name, given, path=path, path_place=place), parent)

    def _called(self, node: syntax.Node, parent: tuple[str, Place] | None) -> syntax.Node:
        return node if parent is None else replace(node, parent=parent[0], parent_place=parent[1])

    def arm(self, children: Children) -> Arm:
        (name, place), _, times, chance, _, _, bound = children
        count: Count = None, None
        if times is not None:
            count = (unquote(times) if times.type == "STRING" else str(times)), self.place(times)
        share = None if chance is None else self.quantity(chance)
        if bound is not None and len(bound) > 9:
            self.faults.append(codes.OUT_OF_RANGE.at(self.place(bound), "a loop cannot be taken that many times"))
            bound = None
        at_most = int(bound) if bound is not None else None
        return name, place, count, share if isinstance(share, syntax.Literal) else None, at_most

    def chain(self, children: Children) -> list[syntax.Edge]:
        source, place = children[0]
        edges = []
        for target, target_place, count, chance, at_most in children[2::2]:
            span = self._to(place, target_place)
            edges.append(syntax.Edge(source, target, count[0], at_most, False, span, chance, count[1]))
            source, place = target, target_place
        return edges

    def loop(self, children: Children) -> list[syntax.Edge]:
        word, (source, _), _, (target, target_place, count, chance, at_most) = children
        place = self._to(self.place(word), target_place)
        return [syntax.Edge(source, target, count[0], at_most, True, place, chance, count[1])]

    # --- tests ------------------------------------------------------------------------------------------

    def test(self, children: Children) -> syntax.Test:
        return syntax.Test(unquote(children[1]), tuple(flat(children[3:-1])), self.place(children[0]))

    def given(self, children: Children) -> list[syntax.Given]:
        place = self.place(children[0])
        return [syntax.Given(child, place) for child in children if isinstance(child, syntax.Match)]

    def assume(self, children: Children) -> syntax.Assume:
        word, (call, _), _, (value, _), _, span = children
        return syntax.Assume(call, value, span, self.place(word))

    def at(self, children: Children) -> syntax.At:
        return syntax.At(children[1], self.place(children[0]))

    def then(self, children: Children) -> syntax.Then:
        return syntax.Then(children[1][0], self.place(children[0]))

    def expect(self, children: Children) -> syntax.Expect:
        return syntax.Expect(children[1], tuple(children[3:-1]), self.place(children[0]))
