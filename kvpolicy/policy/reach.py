"""The rules and limits that reach spans of one kind whose attributes fall alike, and the verdicts that come of them.

What is decided here depends on the state each time; `resolve.Menu` keeps what need not be decided again.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from kvpolicy import words
from kvpolicy.directive import Retention, Ttl, Verdict
from kvpolicy.policy.compiled import DEFAULT, Clamp, Rule
from kvpolicy.policy.contest import Contest, Guards, winners
from kvpolicy.policy.grace import GRACED
from kvpolicy.policy.limits import apply_clamps, bound_property
from kvpolicy.policy.model import IntervalPattern
from kvpolicy.policy.order import Order
from kvpolicy.policy.steps import timed_rules
from kvpolicy.policy.table import Openings
from kvpolicy.policy.terms import Constant, reads

# Functions whose answer is the same for all spans of an owner.
OF_THE_OWNER = frozenset(
    {
        "mean",
        "p50",
        "p90",
        "p95",
        "count",
        "eta",
        "queue_delay",
        "pressure",
        "return_probability",
        "idle",
        "age",
        "hits",
        "hit_density",
    }
)


class Reach:
    """rules: those that can match. by_kind: whether each does so by naming the kind. intervals: those of the rules.
    clamps: limits by the property that they bound. timed: the rules that time alone can change. asks: whether a guard,
    a computed value or a limit reads the state. of_the_owner: whether all that is read is alike for all its spans.
    by_hits: whether nothing is read but what others were found to have left."""

    def __init__(
        self, kind: str, attributes: Mapping[str, object], rules: Iterable[Rule], clamps: Iterable[Clamp], order: Order
    ) -> None:
        self.order = order
        self.rules = tuple(r for r in rules if r.matches_span(kind, attributes))
        self.by_kind = {id(r): r.by_kind(kind, attributes) for r in self.rules}
        self.intervals: tuple[IntervalPattern, ...] = tuple(
            dict.fromkeys(r.interval for r in self.rules if r.interval is not None)
        )
        places = {interval: i for i, interval in enumerate(self.intervals)}
        self._positions = {id(r): None if r.interval is None else places[r.interval] for r in self.rules}
        self.clamps: dict[str, tuple[Clamp, ...]] = {}
        for clamp in clamps:
            if clamp.matches_span(kind, attributes):
                name = bound_property(clamp.property)
                self.clamps[name] = (*self.clamps.get(name, ()), clamp)
        self.fixed_clamps = all(isinstance(c.term, Constant) for row in self.clamps.values() for c in row)
        self.timed = timed_rules(self.rules)
        self.asks = not self.fixed_clamps or any(
            r.guard is not None or not all(v.fixed for v in r.values.values()) for r in self.rules
        )
        terms = [rule.condition for rule in self.rules if rule.condition is not None]
        terms += [term for rule in self.rules for value in rule.values.values() for term in value.terms]
        terms += [clamp.term for row in self.clamps.values() for clamp in row]
        functions = {read.function for term in terms for read in reads(term)}
        self.of_the_owner = functions <= OF_THE_OWNER
        self.by_hits = functions == {"hits"}

    def same_as(self) -> tuple[object, ...]:
        """What two menus have in common that decide alike, for whichever kinds they were made."""
        clamps = tuple((name, *map(id, row)) for name, row in sorted(self.clamps.items()))
        return (*map(id, self.rules), *self.by_kind.values(), *clamps)

    def position(self, rule: Rule) -> int | None:
        """Where a rule's interval stands among the menu's."""
        return self._positions[id(rule)]

    def decide(
        self,
        contests: Mapping[str, Contest],
        openings: Openings,
        guards: Guards,
        only: str | None = None,
        *,
        graced: bool = False,
    ) -> dict[str, Verdict]:
        """The verdicts of these contests while the intervals stand so. only: of one property. graced: of what an
        interval in grace still grants alone."""
        found: dict[str, Verdict] = {}
        for name, candidates in contests.items():
            if (graced and name not in GRACED) or (only is not None and name != only):
                continue
            won = candidates.sure or winners(candidates, guards)
            if not won:
                continue
            verdict = self._verdict(name, won, openings, guards)
            if verdict is not None and not (graced and verdict.opened_at is None):
                found[name] = verdict
        if not graced and only in (None, "priority"):
            self._bind_untouched(found, guards)
        return found

    def _verdict(self, name: str, won: tuple[Rule, ...], openings: Openings, guards: Guards) -> Verdict | None:
        subject, state = guards.subject, guards.state
        rule = won[0] if len(won) == 1 else self._first(name, won, openings, guards)
        value = rule.values[name].run(subject, state)
        if value is DEFAULT:
            return None
        limited_by = None
        clamps = self.clamps.get(name)
        if clamps:
            value, limited_by = apply_clamps(name, value, clamps, subject, state)
        at = self.position(rule)
        opening = None if at is None else openings[at]
        notice = rule.values[name].strained(subject, state) if _at_end(name, value) else None
        since, bound = (None, None) if opening is None else (opening.at, opening.bound_at)
        return Verdict(name, value, rule.name, since, bound, limited_by, self.by_kind[id(rule)], notice)

    def _first(self, name: str, won: tuple[Rule, ...], openings: Openings, guards: Guards) -> Rule:
        """One of several unbeaten rules, which agree on the value: the one whose interval opened last, then by name.
        Should they disagree all the same (`check` was not asked), the one whose value reads first."""

        def key(rule: Rule) -> tuple[str, float, str]:
            at = self.position(rule)
            opening = None if at is None else openings[at]
            value = rule.values[name].run(guards.subject, guards.state)
            return str(value), math.inf if opening is None else -opening.at, rule.name

        return min(won, key=key)

    def _bind_untouched(self, found: dict[str, Verdict], guards: Guards) -> None:
        """An `at most` below the default rank binds spans whose rank no rule has set."""
        clamps = self.clamps.get("priority")
        if clamps and "priority" not in found:
            value, limit = apply_clamps("priority", None, clamps, guards.subject, guards.state)
            if limit is not None:
                found["priority"] = Verdict("priority", value, limit, limited_by=limit)


def _at_end(name: str, value: object) -> bool:
    """Whether a value stands where a computed one is put that lay outside its range: only then is it worth a look."""
    if name == "priority":
        return value in words.PRIORITY_RANGE
    if isinstance(value, Ttl):
        return value.seconds >= words.LONGEST_DURATION_S
    if isinstance(value, Retention):
        return value.seconds is not None and value.seconds >= words.LONGEST_DURATION_S
    return False
