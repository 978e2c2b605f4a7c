"""Which rules decide a span: the hot path of planning.

Rules that can reach a span depend on its kind and on a few attributes; that choice (a `Menu`) is made once per
combination and kept. Which intervals are open picks a `Table` within it, made once as well: per property the
candidates, winners first. What is left to do for a span is to look at the state: intervals, guards, computed values.

INVARIANT: the order of rules in a file, of files and of attributes plays no part in the outcome.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import cast

from kvpolicy import words
from kvpolicy.directive import HOLD, PIN, Retention, Ttl, Verdict
from kvpolicy.policy.compiled import DEFAULT, Clamp, Guard, Rule
from kvpolicy.policy.limits import apply_clamps, bound_property
from kvpolicy.policy.model import IntervalPattern, Opening, State, Subject
from kvpolicy.policy.order import Order
from kvpolicy.policy.steps import Solver, timed_rules
from kvpolicy.policy.terms import Constant

CLOSED, OPEN, GRACE = 0, 1, 2
GRACED = ("priority", "retention", "ttl")  # what an interval in grace can still protect with


@dataclass(frozen=True, slots=True)
class Contest:
    """The candidates for one property, each after all that beat it, without those that cannot come to decide.

    sure: the winners where no guard has a say, else ().
    """

    rules: tuple[Rule, ...]
    sure: tuple[Rule, ...]


@dataclass(slots=True)
class Table:
    """What decides each property while certain intervals are open. `settled`: the verdicts, where they never change."""

    contests: Mapping[str, Contest]
    settled: dict[str, Verdict] | None = None


class Guards:
    """The guards of one span in one state, each asked at most once and only when it matters."""

    __slots__ = ("_answers", "state", "subject")

    def __init__(self, subject: Subject, state: State) -> None:
        self.subject, self.state = subject, state
        self._answers: dict[int, bool] = {}

    def hold(self, guard: Guard | None) -> bool:
        """Whether a guard holds; one without data does not."""
        if guard is None:
            return True
        key = id(guard)
        answer = self._answers.get(key)
        if answer is None:
            answer = self._answers[key] = guard.run(self.subject, self.state) is True
        return answer


_STATELESS = Guards(cast("Subject", None), cast("State", None))  # for what reads neither


def contest(rules: Iterable[Rule], order: Order) -> Contest:
    """Put candidates in order: winners first, names where nothing else orders them."""
    left = sorted(rules, key=lambda r: (r.name, r.place))
    beaters = {id(r): sum(1 for o in left if o is not r and order.beats(o, r)) for r in left}
    ranked: list[Rule] = []
    while left:
        free = [r for r in left if beaters[id(r)] == 0] or left[:1]  # a cycle: `check` has refused the policy
        for rule in free:
            left.remove(rule)
            for other in left:
                if order.beats(rule, other):
                    beaters[id(other)] -= 1
        ranked += free
    for i, rule in enumerate(ranked):
        if rule.guard is None and all(order.beats(rule, o) for o in ranked[i + 1 :]):
            ranked = ranked[: i + 1]
            break
    sure = order.unbeaten(ranked) if all(r.guard is None for r in ranked) else ()
    return Contest(tuple(ranked), sure)


def winners(found: Contest, guards: Guards, order: Order) -> tuple[Rule, ...]:
    """The unbeaten candidates. A guard is asked only where the outcome can depend on it."""
    if found.sure:
        return found.sure
    standing: list[Rule] = []
    beaten: list[Rule] = []
    for rule in found.rules:
        if any(order.beats(w, rule) for w in standing) or any(
            order.beats(b, rule) and guards.hold(b.guard) for b in beaten
        ):
            beaten.append(rule)
        elif guards.hold(rule.guard):
            standing.append(rule)
    return tuple(standing)


class Menu:
    """Everything that can decide spans of one kind whose attributes fall alike."""

    def __init__(
        self, kind: str, attributes: Mapping[str, object], rules: Iterable[Rule], clamps: Iterable[Clamp], order: Order
    ) -> None:
        self.order = order
        self.rules = tuple(r for r in rules if r.matches_span(kind, attributes))
        self.by_kind = {id(r): r.by_kind(kind, attributes) for r in self.rules}
        self.intervals: tuple[IntervalPattern, ...] = tuple(
            dict.fromkeys(r.interval for r in self.rules if r.interval is not None)
        )
        self._positions = {interval: i for i, interval in enumerate(self.intervals)}
        self.clamps: dict[str, tuple[Clamp, ...]] = {}
        for clamp in clamps:
            if clamp.matches_span(kind, attributes):
                name = bound_property(clamp.property)
                self.clamps[name] = (*self.clamps.get(name, ()), clamp)
        self._fixed_clamps = all(isinstance(c.term, Constant) for row in self.clamps.values() for c in row)
        self.timed = timed_rules(self.rules)
        # Whether a guard, a computed value or a limit reads the state.
        self.asks = not self._fixed_clamps or any(
            r.guard is not None or not all(v.fixed for v in r.values.values()) for r in self.rules
        )
        self._tables: dict[tuple[int, ...], Table] = {}

    def position(self, rule: Rule) -> int | None:
        """Where a rule's interval stands among the menu's."""
        return None if rule.interval is None else self._positions[rule.interval]

    def verdicts(self, subject: Subject, state: State, only: str | None = None) -> dict[str, Verdict]:
        """The verdict on every property that somebody sets for this span. Not to be changed by the caller.

        only: decide this property and ask the state nothing that it does not need.
        """
        openings: tuple[Opening | None, ...] = ()
        if self.intervals:
            openings = tuple([state.opening(interval, subject) for interval in self.intervals])
        shape = tuple([_standing(o, state.now) for o in openings]) if openings else ()
        table = self._table(shape, GRACE)
        if table.settled is not None and GRACE not in shape:
            return table.settled
        guards = Guards(subject, state)
        found = self._decide(table, openings, guards, only)
        if GRACE in shape:
            lingering = self._decide(self._table(shape, OPEN), openings, guards, only, graced=True)
            for name, verdict in lingering.items():
                if _stronger(verdict, found.get(name)):
                    found[name] = verdict
        return found

    def steps(self, subject: Subject, state: State) -> tuple[float, ...]:
        """Times, soonest first, at which a verdict may change though nothing happens: see `steps`."""
        if not self.timed and not self.intervals:
            return ()
        solver = Solver(subject, state)
        closed: set[IntervalPattern] = set()
        for interval in self.intervals:
            opening = state.opening(interval, subject)
            if opening is None:
                closed.add(interval)
            elif opening.grace_until is not None and opening.grace_until > solver.now:
                solver.times.add(opening.grace_until)
        for rule in self.timed:
            if rule.interval not in closed:
                solver.rule(rule)
        return tuple(sorted(solver.times))

    def _table(self, shape: tuple[int, ...], without: int) -> Table:
        """Candidates while the intervals stand so: for `without` GRACE those outside and within open intervals, for
        `without` OPEN those outside and within lingering ones, which is how things stood before they closed."""
        key = (*shape, without)
        table = self._tables.get(key)
        if table is None:
            table = self._tables[key] = self._make(shape, without)
        return table

    def _make(self, shape: tuple[int, ...], without: int) -> Table:
        rules = []
        for rule in self.rules:
            at = self.position(rule)
            if at is None or shape[at] not in (CLOSED, without):
                rules.append(rule)
        names = sorted({name for rule in rules for name in rule.values})
        table = Table({name: contest((r for r in rules if name in r.values), self.order) for name in names})
        settled = all(
            c.sure and all(r.interval is None and r.values[name].fixed for r in c.sure)
            for name, c in table.contests.items()
        )
        if settled and self._fixed_clamps and without == GRACE:
            table.settled = self._decide(table, (), _STATELESS)
        return table

    def _decide(
        self,
        table: Table,
        openings: tuple[Opening | None, ...],
        guards: Guards,
        only: str | None = None,
        *,
        graced: bool = False,
    ) -> dict[str, Verdict]:
        found: dict[str, Verdict] = {}
        for name, candidates in table.contests.items():
            if (graced and name not in GRACED) or (only is not None and name != only):
                continue
            won = candidates.sure or winners(candidates, guards, self.order)
            if not won:
                continue
            verdict = self._verdict(name, won, openings, guards)
            if verdict is not None and not (graced and verdict.opened_at is None):
                found[name] = verdict
        if not graced and only in (None, "priority"):
            self._bind_untouched(found, guards)
        return found

    def _verdict(
        self, name: str, won: tuple[Rule, ...], openings: tuple[Opening | None, ...], guards: Guards
    ) -> Verdict | None:
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

    def _first(self, name: str, won: tuple[Rule, ...], openings: tuple[Opening | None, ...], guards: Guards) -> Rule:
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


def _standing(opening: Opening | None, now: float) -> int:
    if opening is None:
        return CLOSED
    if opening.grace_until is None:
        return OPEN
    return GRACE if now < opening.grace_until else CLOSED


def _stronger(lingering: Verdict, present: Verdict | None) -> bool:
    """Whether what an interval in grace still grants protects more than what rules now. A demotion does not linger."""
    value, other = lingering.value, None if present is None else present.value
    if isinstance(value, Retention):
        return value.mode in (HOLD, PIN)
    if isinstance(value, Ttl):
        return isinstance(other, Ttl) and value.seconds > other.seconds
    rank = words.DEFAULT_PRIORITY if other is None else other
    return isinstance(value, int) and isinstance(rank, int) and value > rank


def _at_end(name: str, value: object) -> bool:
    """Whether a value stands where a computed one is put that lay outside its range: only then is it worth a look."""
    if name == "priority":
        return value in words.PRIORITY_RANGE
    if isinstance(value, Ttl):
        return value.seconds >= words.LONGEST_DURATION_S
    if isinstance(value, Retention):
        return value.seconds is not None and value.seconds >= words.LONGEST_DURATION_S
    return False
