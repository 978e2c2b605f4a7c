"""KVP206 and KVP202: rules that beat each other in a circle, and rules that are always beaten."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

from kvpolicy.faults import Diagnostic, Note
from kvpolicy.language import codes
from kvpolicy.policy.analysis.view import View, called
from kvpolicy.policy.bits import circles_of, members
from kvpolicy.policy.compiled import Rule

_LOOKED_AT = 64
_MOST = 12  # so many rules of a circle are named


def precedence_cycles(view: View) -> list[Diagnostic]:
    """One message for each circle, whatever the number of properties it is one for.

    Layers and narrowness alone never run in a circle, so each goes through an `over`; and an `over` never leads to a
    later layer, so each stays within one layer, or within layers that have no order.
    """
    found: dict[int, tuple[list[Rule], list[str]]] = {}
    for name, rules in sorted(view.by_property.items()):
        if not any(rule.over for rule in rules):
            continue
        after, before = _edges(view, name)
        for part in circles_of(view.setting[name], after, before):
            way = found[part][0] if part in found else _round(view, part, after)
            found.setdefault(part, (way, []))[1].append(name)
    return [_tell(names, way) for way, names in found.values()]


def _edges(view: View, name: str) -> tuple[Callable[[int], int], Callable[[int], int]]:
    """Per rule that sets a property, those of the same layer, or of layers without an order, that it beats and that
    beat it: by `over`, and as narrower."""
    index, setting = view.index, view.setting[name]
    over = {rule.layer for rule in view.by_property[name] if rule.over}

    def after(at: int) -> int:
        narrow = index.broader(at) if index.rules[at].layer in over else 0
        return ((index.over(at) & (index.together(at) | index.unordered(at))) | narrow) & setting

    def before(at: int) -> int:
        narrow = index.narrower(at) if index.rules[at].layer in over else 0
        return ((index.under(at) & (index.together(at) | index.unordered(at))) | narrow) & setting

    return after, before


def _round(view: View, part: int, after: Callable[[int], int]) -> list[Rule]:
    """A shortest way round a circle, from the rule that stands first."""
    rules = view.index.rules
    start = min(members(part), key=lambda at: rules[at].place)
    came: dict[int, int] = {}
    waiting, unseen = [start], part & ~(1 << start)
    for at in waiting:
        ways = _written(view, at, after(at))
        if ways >> start & 1:
            way = [at]
            while way[-1] != start:
                way.append(came[way[-1]])
            return [rules[step] for step in reversed(way)]
        for step in members(ways & unseen):
            came[step] = at
            waiting.append(step)
        unseen &= ~ways
    return [rules[start]]  # pragma: no cover - a circle leads back


def _written(view: View, at: int, ways: int) -> int:
    """Where a rule goes over others by name and by way of these over more, only what it names: so the circle is told
    as it is written."""
    index = view.index
    below = ways & index.over(at)
    labels = {path[-1] for path in view.written[id(index.rules[at])].over}
    named = index.bits(rule for rule in index.of(below) if rule.label in labels) if below else 0
    return ways & ~below | (named or below)


def _tell(names: list[str], circle: list[Rule]) -> Diagnostic:
    shown = [called(rule) for rule in circle[:_MOST]] + ["…"] * (len(circle) > _MOST)
    way = " over ".join((*shown, called(circle[0])))
    notes = tuple(Note(rule.place, f"{called(rule)} is here") for rule in circle[1:_MOST])
    message = f"for {', '.join(names)}, these rules stand over each other in a circle: {way}"
    return codes.PRECEDENCE_CYCLE.at(circle[0].place, message, notes=notes, fix="remove one `over`")


def never_deciding(view: View) -> list[Diagnostic]:
    """Rules each of whose properties a rule beats that stands wherever they do.

    Rules of a used policy are left out: to overrule them is what using one is for.
    """
    index = view.index
    found: list[Diagnostic] = []
    for rule in view.policy.rules:
        at = index.number[id(rule)]
        over = index.overruling(at)
        if rule.group or not rule.values or not over:
            continue
        over &= index.implied(at)
        beaten = [over & view.setting[name] for name in rule.values]
        if not all(beaten):
            continue
        first = min((_earliest(view, bits) for bits in beaten), key=lambda winner: winner.place)
        message = f"{called(rule)} never decides: {called(first)} stands wherever it does, and wins"
        note = Note(first.place, f"{called(first)} is here")
        fix = "remove the rule, narrow the other, or change which layer is later"
        found.append(codes.NEVER_DECIDES.at(rule.place, message, notes=(note,), fix=fix))
    return found


def _earliest(view: View, bits: int) -> Rule:
    """The rule of a set that stands first; of a very large set, one of those with most matches that does."""
    rules = view.index.rules
    return min((rules[at] for at in islice(members(bits), _LOOKED_AT)), key=lambda rule: rule.place)
