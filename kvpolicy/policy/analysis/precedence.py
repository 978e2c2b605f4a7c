"""KVP206 and KVP202: rules that beat each other in a circle, and rules that are always beaten."""

from __future__ import annotations

from kvpolicy.faults import Diagnostic, Note
from kvpolicy.language import codes
from kvpolicy.policy.analysis.circles import circles, round_trip
from kvpolicy.policy.analysis.meeting import pairs
from kvpolicy.policy.analysis.view import View, called
from kvpolicy.policy.compiled import Rule
from kvpolicy.policy.order import implies

_MOST = 12  # so many rules of a circle are named


def precedence_cycles(view: View) -> list[Diagnostic]:
    """One message for each circle, whatever the number of properties it is one for.

    Layers and narrowness alone never run in a circle, so each goes through an `over`; and an `over` never leads to a
    later layer, so each stays within one layer, or within layers that have no order.
    """
    found: dict[frozenset[int], tuple[list[Rule], list[str]]] = {}
    for name, rules in sorted(view.by_property.items()):
        if not any(rule.over for rule in rules):
            continue
        after = _beaten_by(rules, view)
        for part in circles(after):
            of_id = {id(rule): rule for rule in rules}
            first = min(part, key=lambda key: of_id[key].place)
            way = [of_id[key] for key in round_trip(first, set(part), after)]
            found.setdefault(frozenset(part), (way, []))[1].append(name)
    return [_tell(names, way) for way, names in found.values()]


def _beaten_by(rules: tuple[Rule, ...], view: View) -> dict[int, list[int]]:
    """Per rule, those of the same layer, or of layers without an order, that it beats: as written, and as narrower."""
    order, layers = view.policy.order, view.policy.order.layers
    over = {rule.layer for rule in rules if rule.over}
    by_name = {rule.name: rule for rule in rules}
    after: dict[int, list[int]] = {id(rule): [] for rule in rules}
    for rule in rules:
        written = {path[-1] for path in view.written[id(rule)].over}  # compiled, `over` leads to all that lies behind
        targets = [by_name[name] for name in sorted(rule.over) if name in by_name]
        direct = [target for target in targets if target.label in written]
        after[id(rule)] += [id(t) for t in direct or targets if not layers.is_later(rule.layer, t.layer)]
    for layer in over:
        for pair in pairs(tuple(rule for rule in rules if rule.layer == layer)):
            for winner, loser in (pair, pair[::-1]):
                if loser.name not in winner.over and order.beats(winner, loser):
                    after[id(winner)].append(id(loser))
    return after


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
