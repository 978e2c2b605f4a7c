"""KVP201 and KVP207: two rules that set one property of one span differently, with nothing to say which wins."""

from __future__ import annotations

from kvpolicy.faults import Diagnostic, Note, Place
from kvpolicy.language import codes
from kvpolicy.language.load import group_name
from kvpolicy.policy.analysis.meeting import pairs, witness
from kvpolicy.policy.analysis.remedy import remedies
from kvpolicy.policy.analysis.view import View, called
from kvpolicy.policy.compiled import Rule
from kvpolicy.policy.order import disjoint

_MOST = 100  # a policy with more such pairs is told so far

Pair = tuple[Rule, Rule]


def disagreements(view: View) -> list[Diagnostic]:
    """One message for two rules, whatever the number of properties they disagree on.

    INVARIANT: two rules that can be unbeaten together, with values not provably equal, are found.
    """
    order = view.policy.order
    clashes: dict[tuple[int, int], tuple[Pair, dict[str, object], list[str]]] = {}
    for name, rules in sorted(view.by_property.items()):
        hidden: dict[int, bool] = {}

        def never(rule: Rule, rules: tuple[Rule, ...] = rules, hidden: dict[int, bool] = hidden) -> bool:
            """Whether another rule decides wherever this one could: then it meets nobody unbeaten."""
            if id(rule) not in hidden:
                hidden[id(rule)] = any(order.beats(o, rule) and order.implies(rule, o) for o in rules if o is not rule)
            return hidden[id(rule)]

        for one, other in _pairs_by_layer(view, rules):
            if order.beats(one, other) or order.beats(other, one):
                continue
            if view.same_value(name, one, other) or never(one) or never(other) or disjoint(one, other):
                continue
            first, second = sorted((one, other), key=lambda rule: (rule.place, rule.name))
            key = (id(first), id(second))
            if len(clashes) >= _MOST and key not in clashes:
                break
            span = witness(first, second, rules, order)
            if span is not None:
                clashes.setdefault(key, ((first, second), span, []))[2].append(name)
    found: list[Diagnostic] = []
    groups: set[tuple[str, str]] = set()
    for (first, second), span, names in clashes.values():
        if order.layers.ordered(first.layer, second.layer):
            found.append(_disagree(view, first, second, span, names))
            continue
        between = (_block(first), _block(second))
        if between not in groups and between[::-1] not in groups:
            groups.add(between)
            found.append(_unordered(view, first, second, span, names))
    return found


def _pairs_by_layer(view: View, rules: tuple[Rule, ...]) -> list[Pair]:
    """Pairs within one layer, and across layers that have no order; a later layer wins over an earlier one."""
    layers: dict[tuple[str, str], list[Rule]] = {}
    for rule in rules:
        layers.setdefault(rule.layer, []).append(rule)
    found = [pair for group in layers.values() for pair in pairs(tuple(group))]
    names = list(layers)
    for i, one in enumerate(names):
        for other in names[i + 1 :]:
            if not view.policy.order.layers.ordered(one, other):
                found += [(a, b) for a in layers[one] for b in layers[other]]
    return found


def _disagree(view: View, first: Rule, second: Rule, span: dict[str, object], names: list[str]) -> Diagnostic:
    values = "; ".join(f"{n}: {view.written_value(n, first)} or {view.written_value(n, second)}" for n in names)
    message = f"{called(first)} and {called(second)} disagree on a `{_shown(span)}` span ({values}), and neither wins"
    note = Note(first.place, f"{called(first)} is here")
    return codes.TWO_RULES_DISAGREE.at(
        second.place,
        message,
        notes=(note, Note(second.place, f"{called(second)} is here")),
        fix=remedies(view, first, second, names),
        witness=span,
    )


def _unordered(view: View, first: Rule, second: Rule, span: dict[str, object], names: list[str]) -> Diagnostic:
    one, other = _block(first), _block(second)
    message = (
        f"'{one}' and '{other}' both set {', '.join(names)} of a `{_shown(span)}` span "
        f"({called(first)} and {called(second)}), and their order is not stated"
    )
    notes = (Note(first.place, f"{called(first)} is here"), Note(second.place, f"{called(second)} is here"))
    return codes.GROUP_ORDER_UNKNOWN.at(
        _used_at(view, second.group) or second.place,
        message,
        notes=notes,
        fix=f"write `layers {one}, {other}`: the last wins",
        witness=span,
    )


def _used_at(view: View, group: str) -> Place | None:
    """The `use` that brought a group in: there the order can be stated."""
    files = view.policy.files.members
    used = {m.group: m.file for m in files if m.group}
    for member in files:
        for use in member.file.uses:
            if group in used and group_name(use, used[group]) == group:
                return use.place
    return None


def _block(rule: Rule) -> str:
    """What a `layers` statement would name."""
    return rule.group or rule.layer_name


def _shown(span: dict[str, object]) -> str:
    rest = ", ".join(f"{name} = {_word(value)}" for name, value in span.items() if name != "kind")
    return f"{span['kind']}[{rest}]" if rest else str(span["kind"])


def _word(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)
