"""Rules, their property values and limits from tokens.

The third of the layers that make up the transformer of `build`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from lark import Token

from kvpolicy.faults import Place
from kvpolicy.language import codes, syntax
from kvpolicy.language.build_expressions import Children
from kvpolicy.language.build_names import NameBuilder


@dataclass(frozen=True, slots=True)
class LayerBlock:
    """A `layer` block: its rules carry its name; it may be empty."""

    name: str
    rules: tuple[syntax.Rule, ...]


class RuleBuilder(NameBuilder):
    """Callbacks of rules and limits."""

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


def flat(parts: Iterable[Any]) -> Iterable[Any]:
    """Lists among the parts give their members."""
    for part in parts:
        if isinstance(part, list):
            yield from part
        else:
            yield part
