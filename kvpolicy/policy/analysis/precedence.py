"""KVP206 and KVP202: rules that beat each other in a circle, and rules that are always beaten."""

from __future__ import annotations

from kvpolicy.faults import Diagnostic, Note
from kvpolicy.language import codes
from kvpolicy.policy.analysis.meeting import pairs
from kvpolicy.policy.analysis.view import View, called
from kvpolicy.policy.compiled import Rule
from kvpolicy.policy.order import implies


def precedence_cycles(view: View) -> list[Diagnostic]:
    """One message for each circle.

    Layers and narrowness alone never run in a circle, so each goes through an `over`; and an `over` never leads to a
    later layer, so each stays within one layer, or within layers that have no order.
    """
    circles: list[tuple[set[int], dict[int, Rule], set[str]]] = []
    for name, rules in sorted(view.by_property.items()):
        by_name = {rule.name: rule for rule in rules}
        for rule in rules:
            for beaten in sorted(rule.over - {rule.name}):
                start = by_name.get(beaten)
                circle = None if start is None else _way(start, rule, rules, view)
                if circle is not None:
                    _merge(circles, {id(r): r for r in circle}, name)
    return [_tell(sorted(names), list(members.values()), view) for _, members, names in circles]


def _merge(circles: list[tuple[set[int], dict[int, Rule], set[str]]], members: dict[int, Rule], name: str) -> None:
    """Circles that share a rule are one fault."""
    names = {name}
    for known in [c for c in circles if c[0] & members.keys()]:
        circles.remove(known)
        members, names = {**known[1], **members}, names | known[2]
    circles.append((set(members), members, names))


def _way(start: Rule, goal: Rule, rules: tuple[Rule, ...], view: View) -> list[Rule] | None:
    """A shortest way from `start` to `goal` along rules that beat the next."""
    if start is goal:
        return [goal]
    order, layers = view.policy.order, view.policy.order.layers
    came: dict[int, Rule | None] = {id(start): None}
    waiting = [start]
    while waiting:
        rule = waiting.pop(0)
        for other in rules:
            if id(other) in came or layers.is_later(rule.layer, other.layer) or not order.beats(rule, other):
                continue
            came[id(other)] = rule
            if other is goal:
                way = [other]
                while (before := came[id(way[-1])]) is not None:
                    way.append(before)
                return way[::-1]
            waiting.append(other)
    return None


def _tell(names: list[str], members: list[Rule], view: View) -> Diagnostic:
    circle = [min(members, key=lambda rule: rule.place)]
    while True:  # along what is written, as far as that goes; `over` as compiled leads to everything behind, too
        written = {path[-1] for path in view.written[id(circle[-1])].over}
        left = [rule for rule in members if rule not in circle]
        following = next((r for r in left if r.label in written), None)
        following = following or next((r for r in left if view.policy.order.beats(circle[-1], r)), None)
        if following is None:
            break
        circle.append(following)
    way = " over ".join(called(rule) for rule in (*circle, circle[0]))
    notes = tuple(Note(rule.place, f"{called(rule)} is here") for rule in circle[1:])
    message = f"for {', '.join(names)}, these rules stand over each other in a circle: {way}"
    return codes.PRECEDENCE_CYCLE.at(circle[0].place, message, notes=notes, fix="remove one `over`")


def never_deciding(view: View) -> list[Diagnostic]:
    """Rules each of whose properties a rule beats that stands wherever they do.

    Rules of a used policy are left out: to overrule them is what using one is for.
    """
    order, layers = view.policy.order, view.policy.order.layers
    by: dict[int, dict[str, Rule]] = {}
    for name, rules in view.by_property.items():
        for pair in pairs(rules):
            for winner, loser in (pair, pair[::-1]):
                wins = loser.name in winner.over or layers.is_later(winner.layer, loser.layer)
                if wins and not loser.group and order.beats(winner, loser) and implies(loser, winner):
                    by.setdefault(id(loser), {}).setdefault(name, winner)
    found: list[Diagnostic] = []
    for rule in view.policy.rules:
        beaten = by.get(id(rule), {})
        if not rule.values or beaten.keys() != rule.values.keys():
            continue
        first = min(beaten.values(), key=lambda winner: winner.place)
        message = f"{called(rule)} never decides: {called(first)} stands wherever it does, and wins"
        note = Note(first.place, f"{called(first)} is here")
        fix = "remove the rule, narrow the other, or change which layer is later"
        found.append(codes.NEVER_DECIDES.at(rule.place, message, notes=(note,), fix=fix))
    return found
