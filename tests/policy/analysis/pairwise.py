"""The questions about pairs of rules, asked of every pair: slow, and as plain as the sentences they answer.

The analysis must give the same pairs; `test_analysis_index` compares.
"""

from __future__ import annotations

from itertools import combinations, permutations

from kvpolicy.policy.analysis.meeting import witness
from kvpolicy.policy.analysis.view import View
from kvpolicy.policy.compiled import Rule
from kvpolicy.policy.order import disjoint, implies

Pair = frozenset[str]


def hidden(rule: Rule, rules: tuple[Rule, ...], view: View) -> bool:
    """Whether another rule decides wherever this one could."""
    return any(view.policy.order.beats(other, rule) and implies(rule, other) for other in rules if other is not rule)


def disagreeing(view: View) -> dict[Pair, list[str]]:
    """The rules that can stand unbeaten beside each other, and the properties on which they differ then."""
    order = view.policy.order
    found: dict[Pair, list[str]] = {}
    for name, rules in sorted(view.by_property.items()):
        for one, other in combinations(rules, 2):
            if order.beats(one, other) or order.beats(other, one) or view.same_value(name, one, other):
                continue
            if one.layer != other.layer and order.layers.ordered(one.layer, other.layer):
                continue
            if hidden(one, rules, view) or hidden(other, rules, view) or disjoint(one, other):
                continue
            first, second = sorted((one, other), key=lambda rule: (rule.place, rule.name))
            if witness(first, second, rules, order) is not None:
                found.setdefault(frozenset((one.name, other.name)), []).append(name)
    return found


def undecided(view: View) -> set[str]:
    """The rules that another overrules wherever they stand, whatever they set. One that no span can match meets no
    other; of several matches, one that contradicts itself says nothing of the rest."""
    order, layers = view.policy.order, view.policy.order.layers
    found = set()
    for rule in view.policy.rules:
        if rule.group or not rule.values:
            continue
        beaten = [
            any(
                other is not rule
                and (rule.name in other.over or layers.is_later(other.layer, rule.layer))
                and order.beats(other, rule)
                and implies(rule, other)
                and not disjoint(rule, other)
                for other in view.by_property[name]
            )
            for name in rule.values
        ]
        if all(beaten):
            found.add(rule.name)
    return found


def round_about(view: View) -> set[tuple[str, Pair]]:
    """Per property, the largest sets of rules each of which beats, by way of others, all of its set. One that never
    meets another beats it only where that is written."""
    order, layers = view.policy.order, view.policy.order.layers
    found = set()
    for name, rules in view.by_property.items():
        beaten = {
            one.name: {
                other.name
                for other in rules
                if other is not one
                and order.beats(one, other)
                and not layers.is_later(one.layer, other.layer)
                and (other.name in one.over or not disjoint(one, other))
            }
            for one in rules
        }
        for _ in rules:  # transitive
            for below in beaten.values():
                below |= {far for near in below for far in beaten[near]}
        for rule in rules:
            if rule.name in beaten[rule.name]:
                part = {other for other in beaten[rule.name] if rule.name in beaten[other]}
                found.add((name, frozenset(part)))
    return found


def relations(view: View) -> dict[str, set[tuple[str, str]]]:
    """Ordered pairs: rules that can meet; that stand wherever another does; that beat another as narrower."""
    order = view.policy.order
    pairs = [(one, other) for one, other in permutations(view.policy.rules, 2) if not disjoint(one, other)]
    return {
        "meeting": {(one.name, other.name) for one, other in pairs},
        "implied": {(one.name, other.name) for one, other in pairs if implies(one, other)},
        "narrower": {(one.name, other.name) for one, other in pairs if order.beats(one, other) == "narrower"},
    }
