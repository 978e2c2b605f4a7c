"""Which of two rules wins where both decide one property of one span, and whether they can meet at all.

Read by `resolve` (which value stands), `explain` (why), and the analysis of a policy (where two rules disagree).
Everything here is decided from the text alone: no state, no numbers of specificity, no line order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from kvpolicy import words
from kvpolicy.policy.compiled import Rule
from kvpolicy.policy.layers import LayerOrder
from kvpolicy.policy.matching import conditions_imply, selector_implies, selectors_meet
from kvpolicy.policy.model import EventPattern, IntervalPattern
from kvpolicy.policy.terms import Term, negation, parts

if TYPE_CHECKING:
    from kvpolicy.policy.analysis.index import Index

OVER, LAYER, NARROWER = "over", "layer", "narrower"


class Order:
    """The precedence of one policy's rules, each pair worked out once. rules: all of them. index: where `rivals` had
    to compare many at once, what it made for that."""

    def __init__(self, layers: LayerOrder, rules: Sequence[Rule] = ()) -> None:
        self.layers = layers
        self.rules = rules
        self.index: Index | None = None
        self._reasons: dict[tuple[int, int], str | None] = {}
        self._implied: dict[tuple[int, int], bool] = {}

    def beats(self, winner: Rule, loser: Rule) -> str | None:
        """Why `winner` beats `loser` (`over`, `layer` or `narrower`), or None where it does not.

        It holds for every property that both set. Two rules of layers without an order beat each other only by
        `over`; two rules with the same selector, event and guard not at all.
        """
        key = (id(winner), id(loser))
        if key not in self._reasons:
            self._reasons[key] = self._reason(winner, loser)
        return self._reasons[key]

    def _reason(self, winner: Rule, loser: Rule) -> str | None:
        if loser.name in winner.over:
            return OVER
        if winner.name in loser.over:
            return None
        if winner.layer != loser.layer:
            return LAYER if self.layers.is_later(winner.layer, loser.layer) else None
        return NARROWER if self.implies(winner, loser) and not self.implies(loser, winner) else None

    def implies(self, one: Rule, other: Rule) -> bool:
        """Whether `other` is a candidate wherever `one` is; each pair worked out once."""
        key = (id(one), id(other))
        known = self._implied.get(key)
        if known is None:
            known = self._implied[key] = implies(one, other)
        return known

    def unbeaten(self, rules: Iterable[Rule]) -> tuple[Rule, ...]:
        """Those of some candidates that no other of them beats."""
        candidates = tuple(rules)
        return tuple(r for r in candidates if not any(self.beats(o, r) for o in candidates if o is not r))

    def cycle(self, rules: Iterable[Rule]) -> tuple[Rule, ...]:
        """A round of rules each of which beats the next and the last the first, or () where there is none.

        INVARIANT: a policy with such a round is refused, so that one candidate at least is always unbeaten.
        """
        left = list(rules)
        while left:
            free = [r for r in left if not any(self.beats(o, r) for o in left if o is not r)]
            if not free:
                return self._round(left)
            left = [r for r in left if r not in free]
        return ()

    def _round(self, rules: list[Rule]) -> tuple[Rule, ...]:
        path = [rules[0]]
        while True:
            path.append(next(o for o in rules if o is not path[-1] and self.beats(o, path[-1])))
            if path[-1] in path[:-1]:
                found = path[path.index(path[-1]) + 1 :]
                return tuple(reversed(found))


def narrower(one: Rule, other: Rule) -> bool:
    """Whether `one` holds in strictly fewer cases: it implies the other, and not the reverse."""
    return implies(one, other) and not implies(other, one)


def implies(one: Rule, other: Rule) -> bool:
    """Whether `other` is a candidate wherever `one` is, as far as the text shows: by selector, event and guard."""
    return (
        guard_implies(one.condition, other.condition)
        and interval_implies(one.interval, other.interval)
        and selector_implies(one.matches, other.matches)
    )


def interval_implies(one: IntervalPattern | None, other: IntervalPattern | None) -> bool:
    """Whether `other` is open whenever `one` is: it opens on as many events and closes on no more. Bounds play no
    part, for they end protections and never an interval."""
    if other is None:
        return True
    if one is None or not event_implies(one.start, other.start):
        return False
    if other.until is None:
        return True  # the rest of the phase, or of the owner's life: nothing outlasts it
    return one.until is not None and event_implies(other.until, one.until)


def event_implies(one: EventPattern, other: EventPattern) -> bool:
    """Whether every event that fits `one` fits `other`."""
    return one.name == other.name and conditions_imply(one.conditions, other.conditions)


def guard_implies(one: Term | None, other: Term | None) -> bool:
    """Whether `other` holds whenever `one` does, as far as `and` and `or` show it.

    What the functions answer is not known here, so guards are otherwise opaque. Terms are in normal form.
    """
    if other is None or one == other:
        return True
    return one is not None and _follows(one, other)


@lru_cache(maxsize=8192)
def _follows(one: Term, other: Term) -> bool:
    if one == other:
        return True
    all_of, some_of = parts(other, "and"), parts(one, "or")
    if len(all_of) > 1:
        return all(_follows(one, part) for part in all_of)
    if len(some_of) > 1:
        return all(_follows(part, other) for part in some_of)
    any_of, and_of = parts(other, "or"), parts(one, "and")
    return (len(any_of) > 1 and any(_follows(one, part) for part in any_of)) or (
        len(and_of) > 1 and any(_follows(part, other) for part in and_of)
    )


def guards_exclude(one: Term | None, other: Term | None) -> bool:
    """Whether two guards never hold together: one says the contrary of the other, or of a part of it."""
    if one is None or other is None:
        return False
    theirs = parts(other, "and")
    return negation(one) == other or any(negation(part) in theirs for part in parts(one, "and"))


def phase_of(interval: IntervalPattern | None) -> str | None:
    """The phase that an interval lasts in at most, or None where its event leaves that open."""
    return None if interval is None else words.PHASE_AFTER.get(interval.start.name)


def disjoint(one: Rule, other: Rule) -> bool:
    """Whether two rules can never be candidates for one span in one state.

    No span fits both selectors, or their intervals lie in different phases of an owner, or their guards say the
    contrary of each other.
    """
    return (
        not selectors_meet(one.matches, other.matches)
        or phases_exclude(one.interval, other.interval)
        or guards_exclude(one.condition, other.condition)
    )


def phases_exclude(one: IntervalPattern | None, other: IntervalPattern | None) -> bool:
    """Whether two intervals lie in different phases: an owner is in one at a time, and leaving it closes them."""
    first, second = phase_of(one), phase_of(other)
    return first is not None and second is not None and first != second
