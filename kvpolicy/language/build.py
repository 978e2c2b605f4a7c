"""Statements from tokens: the transformer that lark runs while it parses.

Its callbacks receive tokens and finished parts and make the classes of `syntax`; finished statements gather in
`items`, so that a text with a fault in one place still gives everything else.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from lark import Token

from kvpolicy import words
from kvpolicy.faults import Diagnostic, Place
from kvpolicy.language import codes, syntax
from kvpolicy.language.build_expressions import Children, ExpressionBuilder, unquote


@dataclass(frozen=True, slots=True)
class LayerBlock:
    """A `layer` block: its rules carry its name; it may be empty."""

    name: str
    rules: tuple[syntax.Rule, ...]


class Builder(ExpressionBuilder):
    """Callbacks of statements."""

    def __init__(self) -> None:
        super().__init__()
        self.items: list[Any] = []

    def begin(self, file: str) -> None:
        """Forget the text before and start on `file`."""
        self.file, self.faults, self.items = file, [], []

    def item(self, children: Children) -> None:
        self.items.append(children[0])

    # --- names ------------------------------------------------------------------------------------------

    def name(self, children: Children) -> tuple[str, Place]:
        token = children[0]
        return unquote(token) if token.type == "STRING" else str(token), self.place(token)

    def defined(self, token: Token, quotable: bool = True) -> str:
        """The name that `token` gives to something; a reserved word is told."""
        if token.type in {"STRING", "LABEL"}:
            return unquote(token)
        self._refuse_reserved(str(token), self.place(token), quotable)
        return str(token)

    def _named(self, pair: tuple[str, Place], quoted_is_fine: bool = True) -> str:
        name, place = pair
        quoted = place.end_column - place.column != len(name) or place.end_line != place.line
        if not (quoted and quoted_is_fine):
            self._refuse_reserved(name, place)
        return name

    def _refuse_reserved(self, name: str, place: Place, quotable: bool = True) -> None:
        if name in words.RESERVED:
            self.faults.append(reserved(name, place, quotable))

    def path(self, children: Children) -> tuple[tuple[str, ...], Place]:
        pairs = [child for child in children if not isinstance(child, Token)]
        return tuple(name for name, _ in pairs), self._to(pairs[0][1], pairs[-1][1])

    def label(self, children: Children) -> tuple[str, Place]:
        return self.defined(children[0]), self.place(children[0])

    # --- head of a file ---------------------------------------------------------------------------------

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
        pairs = [child for child in children[1:] if not isinstance(child, Token)]
        return [syntax.Node(role, self._named(pair), pair[1]) for pair in pairs]

    def arm(self, children: Children) -> tuple[str, Place, str | None]:
        (name, place), _, times = children
        return name, place, str(times) if times is not None else None

    def chain(self, children: Children) -> list[syntax.Edge]:
        source, place = children[0]
        edges = []
        for target, target_place, times in children[2::2]:
            edges.append(syntax.Edge(source, target, times, None, False, self._to(place, target_place)))
            source, place = target, target_place
        return edges

    def loop(self, children: Children) -> list[syntax.Edge]:
        word, (source, _), _, (target, target_place), _, _, bound = children
        place = self._to(self.place(word), target_place)
        if bound is not None and len(bound) > 9:
            self.faults.append(codes.OUT_OF_RANGE.at(self.place(bound), "a loop cannot be taken that many times"))
            bound = None
        at_most = int(bound) if bound is not None else None
        return [syntax.Edge(source, target, None, at_most, True, place)]

    # --- rules ------------------------------------------------------------------------------------------

    def interval(self, children: Children) -> syntax.Interval:
        start, _, until, _, _, at_most = children
        duration = at_most[0] if at_most is not None else None
        return syntax.Interval(start, until, duration, start.place)

    def on(self, children: Children) -> list[syntax.Rule]:
        interval = replace(children[1], place=self.place(children[0]))
        return [replace(rule, interval=interval) for rule in children[3:-1]]

    def layer(self, children: Children) -> LayerBlock:
        name = self._named(children[1])
        rules = tuple(replace(rule, layer=name) for rule in flat(children[3:-1]))
        return LayerBlock(name, rules)

    def over(self, children: Children) -> list[tuple[tuple[str, ...], Place]]:
        return [child for child in children if not isinstance(child, Token)]

    def guard(self, children: Children) -> syntax.Expression:
        guard: syntax.Expression = children[1][0]
        return guard

    def rule(self, children: Children) -> syntax.Rule:
        label, selector, over, guard = children[:4]
        place = label[1] if label else selector[0].place
        return syntax.Rule(
            label=label[0] if label else None,
            selector=selector,
            over=tuple(path for path, _ in over or ()),
            guard=guard,
            declarations=tuple(children[5:-1]),
            interval=None,
            layer=None,
            place=place,
            over_places=tuple(place for _, place in over or ()),
        )

    # --- declarations -----------------------------------------------------------------------------------

    def lasting(self, children: Children) -> syntax.Lasting:
        duration = children[0][0]
        return syntax.Lasting(duration, True, self._to(duration.place, self.place(children[1])))

    def rung(self, children: Children) -> syntax.Rung | syntax.Lasting:
        (tier, _), _, after = children
        return self._rung(tier, after[0] if after else None)

    def _rung(self, tier: syntax.Expression, after: syntax.Expression | None) -> syntax.Rung:
        if isinstance(tier, syntax.Name):
            return syntax.Rung(".".join(tier.path), after, tier.place)
        self.faults.append(
            codes.SYNTAX.at(
                tier.place,
                "a list of values can only be a tier ladder, and its steps are tiers",
                fix="write `tier: gpu, cpu after 30s`",
            )
        )
        return syntax.Rung("", after, tier.place)

    def ladder(self, children: Children) -> syntax.Ladder:
        rungs = tuple(child for child in children if isinstance(child, syntax.Rung))
        return syntax.Ladder(rungs, self._to(rungs[0].place, rungs[-1].place))

    def lone_rung(self, children: Children) -> syntax.Ladder:
        rung = self._rung(children[0][0], children[2][0])
        return syntax.Ladder((rung,), rung.place)

    def hold_for(self, children: Children) -> syntax.Hold:
        word, (duration, _) = children
        return syntax.Hold(duration, None, None, self._to(self.place(word), duration.place))

    def hold_until(self, children: Children) -> syntax.Hold:
        word, _, event, _, _, at_most = children
        bound = at_most[0] if at_most is not None else None
        return syntax.Hold(None, event, bound, self._to(self.place(word), event.place))

    def decl(self, children: Children) -> syntax.Declaration:
        name, _, value = children
        return syntax.Declaration(str(name), self._shaped(str(name), value), None, self.place(name))

    def expected(self, children: Children) -> syntax.Declaration:
        name, _, value, _, by = children
        path = by[0] if by is not None else None
        return syntax.Declaration(str(name), self._shaped(str(name), value), path, self.place(name))

    def _shaped(self, name: str, value: Any) -> syntax.PropertyValue:
        """`tier` and `ttl` have one shape each, also where their value is written as a plain expression."""
        if not isinstance(value, tuple):
            shaped: syntax.PropertyValue = value
            return shaped
        expression: syntax.Expression = value[0]
        if name == "tier" and isinstance(expression, syntax.Name) and expression.path not in {("default",), ("",)}:
            return syntax.Ladder((self._rung(expression, None),), expression.place)
        if name == "ttl" and not (isinstance(expression, syntax.Name) and expression.path in {("default",), ("none",)}):
            return syntax.Lasting(expression, False, expression.place)
        return expression

    # --- limits -----------------------------------------------------------------------------------------

    def per(self, children: Children) -> tuple[str, Place]:
        return str(children[1]), self.place(children[1])

    def bound(self, children: Children) -> syntax.Bound:
        name, _, _, side, (value, _), _, of = children
        return syntax.Bound(str(name), str(side), value, str(of) if of is not None else None, self.place(name))

    def limit(self, children: Children) -> syntax.Limit:
        word, selector, per = children[:3]
        bounds = tuple(child for child in children if isinstance(child, syntax.Bound))
        if per is not None and per[0] not in {"tenant", "session"}:
            self.faults.append(
                codes.UNKNOWN_NAME.at(
                    per[1],
                    f"a limit counts per tenant, per session, or over all; '{per[0]}' is neither",
                    fix="write `per tenant` or `per session`",
                )
            )
        return syntax.Limit(selector, per[0] if per else None, bounds, self.place(word))

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


def flat(parts: Iterable[Any]) -> Iterable[Any]:
    """Lists among the parts give their members."""
    for part in parts:
        if isinstance(part, list):
            yield from part
        else:
            yield part


def reserved(name: str, place: Place, quotable: bool = True) -> Diagnostic:
    """The diagnostic of a reserved word used as a name. quotable: whether a string may stand there instead."""
    fix = f'write another name, or "{name}"' if quotable else "write another name"
    return codes.RESERVED_WORD.at(place, f"'{name}' is a word of the language and cannot be a name", fix=fix)
