"""KVP201 and KVP207: two rules that set one property of one span differently, with nothing to say which wins."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from itertools import islice

from kvpolicy.faults import Diagnostic, Note, Place
from kvpolicy.language import codes
from kvpolicy.language.load import group_name
from kvpolicy.policy.analysis.meeting import witness
from kvpolicy.policy.analysis.remedy import remedies
from kvpolicy.policy.analysis.view import View, called
from kvpolicy.policy.bits import members
from kvpolicy.policy.compiled import Rule
from kvpolicy.policy.order import disjoint

_SOME = 32  # with so many rules one is compared without further thought
_COVERS = 256  # so many rules are looked at for covering where others meet
_MOST = 100  # a policy with more such pairs is told so far

Pair = tuple[Rule, Rule]


def disagreements(view: View) -> list[Diagnostic]:
    """One message for two rules, whatever the number of properties they disagree on.

    INVARIANT: two rules that can be unbeaten together, with values not provably equal, are found; of more than a
    hundred such pairs a hundred are told.
    """
    found: list[Diagnostic] = []
    groups: set[tuple[str, str]] = set()
    for first, second, span, names in _clashes(view):
        if view.policy.order.layers.ordered(first.layer, second.layer):
            found.append(_disagree(view, first, second, span, names))
            continue
        between = (_block(first), _block(second))
        if between not in groups and between[::-1] not in groups:
            groups.add(between)
            found.append(_unordered(view, first, second, span, names))
    return found


def _clashes(view: View) -> Iterator[tuple[Rule, Rule, dict[str, object], list[str]]]:
    """Two rules, a span on which neither is beaten, and the properties that they disagree on."""
    index, order = view.index, view.policy.order
    standing = _standing(view)
    values = {name: _values(view, name) for name in view.setting}
    told, done = 0, 0
    for rule in view.policy.rules:
        at = index.number[id(rule)]
        done |= 1 << at
        mine = [name for name in rule.values if standing[name] >> at & 1]
        if not mine:
            continue
        rivals = index.meeting(at) & ~done & ~index.over(at) & ~index.under(at)
        rivals &= index.together(at) | index.unordered(at)
        against = {name: rivals & standing[name] & ~values[name][view.value_key(name, rule)] for name in mine}
        if not any(against.values()):
            continue
        narrower = index.surely_implied(at) ^ index.surely_implying(at)
        decided = narrower & index.together(at) & (0 if index.rough >> at & 1 else ~index.rough)
        either = 0
        for name, bits in against.items():
            rest = bits & ~decided
            if rest.bit_count() > _SOME:
                rest &= _uncovered(view, name, at)
            against[name] = rest
            either |= rest
        for other in sorted(index.of(either), key=_by_place) if either else ():
            if order.beats(rule, other) or order.beats(other, rule) or disjoint(rule, other):
                continue
            first, second = sorted((rule, other), key=_by_place)
            bit = 1 << index.number[id(other)]
            spans = {name: _witness(view, name, first, second) for name in mine if against[name] & bit}
            names = sorted(name for name, span in spans.items() if span is not None)
            if names:
                span = spans[names[0]]
                assert span is not None
                yield first, second, span, names
                told += 1
                if told >= _MOST:
                    return


def _uncovered(view: View, name: str, at: int) -> int:
    """The rules that meet one on spans which no other rule that always stands decides in its place."""
    index = view.index
    covers = index.overruling(at) & index.always & view.setting[name]
    covers &= index.meeting(at) if covers else 0
    return index.meeting_outside(at, islice(members(covers), _COVERS)) if covers else -1


def _by_place(rule: Rule) -> tuple[object, str]:
    return rule.place, rule.name


def _standing(view: View) -> dict[str, int]:
    """Per property, the rules that decide it somewhere, as far as one other rule can hide them: a rule that another
    overrules wherever it stands meets nobody unbeaten."""
    index = view.index
    hidden = dict.fromkeys(view.setting, 0)
    for at, rule in enumerate(index.rules):
        over = index.overruling(at)
        over &= index.implied(at) if over else 0
        for name in rule.values if over else ():
            if over & view.setting[name]:
                hidden[name] |= 1 << at
    return {name: bits & ~hidden[name] for name, bits in view.setting.items()}


def _values(view: View, name: str) -> dict[Hashable, int]:
    """The rules that set a property to one value."""
    found: dict[Hashable, list[Rule]] = {}
    for rule in view.by_property[name]:
        found.setdefault(view.value_key(name, rule), []).append(rule)
    return {key: view.index.bits(rules) for key, rules in found.items()}


def _witness(view: View, name: str, one: Rule, other: Rule) -> dict[str, object] | None:
    index = view.index
    left, right = index.number[id(one)], index.number[id(other)]
    beating = index.overruling(left) | index.overruling(right) | index.narrower(left) | index.narrower(right)
    rivals = beating & view.setting[name] & index.meeting(left) & index.meeting(right)
    return witness(one, other, index.of(rivals), view.policy.order)


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
