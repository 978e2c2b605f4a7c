"""Where one property comes out otherwise: boxes cut smaller until both policies' outcomes are sure in each.

A box in which what is left to decide is the same in both is not cut any further, so the work goes with what has
changed and not with how many rules there are. INVARIANT: whatever the state, a span whose value differs lies in one of
the boxes, and each box, where its guards can hold, is a difference.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kvpolicy.language.scope import home_layer
from kvpolicy.policy.compiled import Clamp, Rule
from kvpolicy.policy.diff.outcome import UNSET, Outcome, Values
from kvpolicy.policy.diff.predicates import Formula, Lit, first, of_clamp, of_rule, within
from kvpolicy.policy.diff.space import Box, Space
from kvpolicy.policy.layers import Layer
from kvpolicy.policy.limits import bound_property
from kvpolicy.policy.order import Order
from kvpolicy.policy.policy import Policy

_MOST_CUTS = 20_000  # of one property: beyond, the rest is told as not compared
_FEW = 60  # so many rules are compared in their precedence, pair by pair


@dataclass(frozen=True, slots=True)
class Region:
    """A box in which a property is `before` under the first policy and `after` under the second."""

    property: str
    box: Box
    before: Outcome
    after: Outcome


@dataclass(frozen=True, slots=True)
class Found:
    """The regions of one property. whole: whether all was compared."""

    space: Space
    regions: tuple[Region, ...]
    whole: bool


Left = tuple[
    tuple[Rule, bool | Formula], ...
]  # rules that may still decide, and whether they are sure to be candidates
Bounds = tuple[tuple[Clamp, bool | Formula], ...]


@dataclass(slots=True)
class _Side:
    """One policy, as far as it concerns one property."""

    order: Order
    values: Values
    rules: tuple[Rule, ...]
    clamps: tuple[Clamp, ...]

    @classmethod
    def of(cls, policy: Policy, property: str) -> _Side:
        return cls(
            policy.order,
            Values(policy, property),
            tuple(r for r in policy.rules if property in r.values),
            tuple(c for c in policy.clamps if bound_property(c.property) == property),
        )

    def asked(self, space: Space) -> Left:
        """Its rules, each with when it is a candidate."""
        return tuple((rule, of_rule(rule, space)) for rule in self.rules)

    def bounds(self, space: Space) -> Bounds:
        """Its limits, each with when it bounds a span."""
        return tuple((clamp, of_clamp(clamp, space)) for clamp in self.clamps)

    def narrowed(self, left: Left, box: Box) -> Left:
        """What is left of some rules in a box: no rule that is no candidate there, none that a sure candidate beats."""
        found = [(rule, asked if isinstance(asked, bool) else within(asked, box)) for rule, asked in left]
        sure = [rule for rule, asked in found if asked is True]
        return tuple(
            (rule, asked)
            for rule, asked in found
            if asked is not False and not any(o is not rule and self.order.beats(o, rule) for o in sure)
        )


def regions(before: Policy, after: Policy, property: str) -> Found:
    """Where `property` differs between two policies that pass their checks."""
    one, two = _Side.of(before, property), _Side.of(after, property)
    space = Space((*one.rules, *two.rules), (*one.clamps, *two.clamps))
    twins = _twins(before, after, one, two)
    found: list[Region] = []
    left, right = one.asked(space), two.asked(space)
    low, high = one.bounds(space), two.bounds(space)
    waiting: list[tuple[Box, Left, Left, Bounds, Bounds]] = [(space.whole, left, right, low, high)]
    cuts = 0
    while waiting and cuts < _MOST_CUTS:
        box, left, right, low, high = waiting.pop()
        left, right = one.narrowed(left, box), two.narrowed(right, box)
        low, high = _bearing(low, box), _bearing(high, box)
        if _alike(one, two, left, right, low, high, twins):
            continue
        question = _question(one, two, left, right, low, high, twins)
        if question is None:
            outcomes = [
                side.values.outcome([rule for rule, _ in rules], [clamp for clamp, _ in clamps])
                for side, rules, clamps in ((one, left, low), (two, right, high))
            ]
            if outcomes[0].key != outcomes[1].key:
                found.append(Region(property, space.relaxed(box), *outcomes))
            continue
        cuts += 1
        for cells in (space.dimensions[question.at].all & ~question.cells, question.cells):
            part = space.within(box, question.at, cells)
            if part is not None:
                waiting.append((part, left, right, low, high))
    return Found(space, tuple(_merged(found)), not waiting)


def _bearing(clamps: Bounds, box: Box) -> Bounds:
    found = ((clamp, asked if isinstance(asked, bool) else within(asked, box)) for clamp, asked in clamps)
    return tuple((clamp, asked) for clamp, asked in found if asked is not False)


def _alike(one: _Side, two: _Side, left: Left, right: Left, low: Bounds, high: Bounds, twins: dict[int, int]) -> bool:
    """Whether the outcome is the same whatever is still to be asked."""
    if Counter(map(_limit, low)) != Counter(map(_limit, high)):
        return False
    if {twins.get(id(rule)) for rule, _ in left} == {id(rule) for rule, _ in right}:
        return True
    keys = {one.values.key(r) for r, _ in left} | {two.values.key(r) for r, _ in right}
    sure = any(asked is True for _, asked in left) and any(asked is True for _, asked in right)
    if keys <= {UNSET} or sure and len(keys) == 1:
        return True
    mine, theirs = _signed(one, left), _signed(two, right)
    if len(left) > _FEW or Counter(mine.values()) != Counter(theirs.values()):
        return False
    return _precedence(one.order, left, mine) == _precedence(two.order, right, theirs)


def _limit(row: tuple[Clamp, bool | Formula]) -> tuple[object, ...]:
    clamp, asked = row
    return (clamp.property, clamp.side, clamp.term, asked)


def _signed(side: _Side, left: Left) -> dict[int, object]:
    return {id(rule): (asked, side.values.key(rule)) for rule, asked in left}


def _precedence(order: Order, left: Left, signs: dict[int, object]) -> Counter[tuple[object, object]]:
    return Counter((signs[id(a)], signs[id(b)]) for a, _ in left for b, _ in left if a is not b and order.beats(a, b))


def _question(
    one: _Side, two: _Side, left: Left, right: Left, low: Bounds, high: Bounds, twins: dict[int, int]
) -> Lit | None:
    """What to ask next: first of rules that one policy alone has, so that all others soon need not be asked."""
    there = {id(rule) for rule, _ in right}
    back = {theirs: mine for mine, theirs in twins.items()}
    here = {id(rule) for rule, _ in left}
    own = [asked for rule, asked in left if twins.get(id(rule)) not in there]
    own += [asked for rule, asked in right if back.get(id(rule)) not in here]
    limits = [*low, *high] if not _equal(low, high) else []
    rest = [asked for _, asked in (*left, *right)]
    for asked in (*own, *(a for _, a in limits), *rest, *(a for _, a in (*low, *high))):
        if not isinstance(asked, bool):
            return first(asked)
    return None


def _equal(low: Bounds, high: Bounds) -> bool:
    return Counter(map(_limit, low)) == Counter(map(_limit, high))


def _twins(before: Policy, after: Policy, one: _Side, two: _Side) -> dict[int, int]:
    """Rules of the first policy to those of the second that say the same and stand in the same order to the others.
    Only where layers have one order in both."""
    homes = [_homes(policy) for policy in (before, after)]
    ranks = []
    for policy, side, home in zip((before, after), (one, two), homes, strict=True):
        there = {r.layer for r in side.rules}
        later = policy.order.layers.later
        ranks.append({home.get(n, n): {home.get(o, o) for o in later.get(n, ()) if o in there} for n in there})
    common = ranks[0].keys() & ranks[1].keys()
    if any(ranks[0][layer] & common != ranks[1][layer] & common for layer in common):
        return {}
    named = frozenset().union(*(r.over for r in (*one.rules, *two.rules)))
    known: dict[object, list[Rule]] = {}
    for rule in two.rules:
        known.setdefault(_sign(rule, two, homes[1], named), []).append(rule)
    found: dict[int, int] = {}
    for rule in one.rules:
        same = known.get(_sign(rule, one, homes[0], named))
        if same:
            found[id(rule)] = id(same.pop())
    return found


def _homes(policy: Policy) -> dict[Layer, Layer]:
    """The layers that are named after a file, by its place among the files: two versions of a policy have two names."""
    own = [m for m in policy.files.members if not m.group]
    return {("", home_layer(m.file)): ("", f"file {number}") for number, m in enumerate(own)}


def _sign(rule: Rule, side: _Side, home: dict[Layer, Layer], named: frozenset[str]) -> object:
    pattern = rule.interval and (rule.interval.start, rule.interval.until)
    name = rule.name if rule.label or rule.name in named else None
    layer = home.get(rule.layer, rule.layer)
    return (name, layer, rule.matches, pattern, rule.condition, side.values.key(rule), rule.over)


# --- boxes put together again ---------------------------------------------------------------------------


def _merged(found: Sequence[Region]) -> Iterable[Region]:
    """Regions of one change whose boxes differ in one dimension alone become one."""
    groups: dict[object, list[Region]] = {}
    for region in found:
        rules = [None if o.rule is None else id(o.rule) for o in (region.before, region.after)]
        groups.setdefault((region.before.key, region.after.key, *rules), []).append(region)
    for rows in groups.values():
        for box in _boxes([region.box for region in rows]):
            yield Region(rows[0].property, box, rows[0].before, rows[0].after)


def _boxes(boxes: list[Box]) -> list[Box]:
    while True:
        count = len(boxes)
        for at in range(len(boxes[0])):
            union: dict[tuple[Box, Box], int] = {}
            for box in boxes:
                rest = (box[:at], box[at + 1 :])
                union[rest] = union.get(rest, 0) | box[at]
            boxes = [(*before, cells, *after) for (before, after), cells in union.items()]
        if len(boxes) == count:
            return boxes


__all__ = ["UNSET", "Found", "Region", "regions"]
