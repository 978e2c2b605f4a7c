"""Which rules decide a span: the hot path of planning.

Rules that can reach a span depend on its kind and on a few attributes; that choice (a `Menu`) is made once per
combination and kept. Which intervals are open picks a `Table` within it, made once as well: per property the
candidates, winners first. What is left to do for a span is to look at the state: intervals, guards, computed values.

INVARIANT: the order of rules in a file, of files and of attributes plays no part in the outcome.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from kvpolicy import words
from kvpolicy.directive import HOLD, PIN, Retention, Ttl, Verdict
from kvpolicy.policy.compiled import DEFAULT, Clamp, Rule
from kvpolicy.policy.contest import STATELESS, Guards, contest, winners
from kvpolicy.policy.limits import apply_clamps, bound_property
from kvpolicy.policy.model import IntervalPattern, Opening, State, Subject
from kvpolicy.policy.order import Order
from kvpolicy.policy.steps import Solver, timed_rules
from kvpolicy.policy.table import Decision, Openings, Outcome, Table
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
CLOSED, OPEN, GRACE = 0, 1, 2
_TABLES_KEPT = 1024
_GUARDS_KEPT = 4  # more of them are asked one by one, as far as the outcome needs it
GRACED = ("priority", "retention", "ttl")  # what an interval in grace can still protect with


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
        self.closed: Openings = (None,) * len(self.intervals)
        places = {interval: i for i, interval in enumerate(self.intervals)}
        self._positions = {id(r): None if r.interval is None else places[r.interval] for r in self.rules}
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
        self._closed: Table | None = None  # that of no open interval
        self._ever_timed = any(r.interval is None for r in self.timed)
        # The verdicts while nothing is open, where they never change: `decided` and `next_step` need not be asked.
        self.quiet: Decision | None = None
        terms = [rule.condition for rule in self.rules if rule.condition is not None]
        terms += [term for rule in self.rules for value in rule.values.values() for term in value.terms]
        terms += [clamp.term for row in self.clamps.values() for clamp in row]
        # Whether everything that is read here is the same for all spans of an owner.
        self.of_the_owner = all(read.function in OF_THE_OWNER for term in terms for read in reads(term))

    def same_as(self) -> tuple[object, ...]:
        """What two menus have in common that decide alike, for whichever kinds they were made."""
        clamps = tuple((name, *map(id, row)) for name, row in sorted(self.clamps.items()))
        return (*map(id, self.rules), *self.by_kind.values(), *clamps)

    def position(self, rule: Rule) -> int | None:
        """Where a rule's interval stands among the menu's."""
        return self._positions[id(rule)]

    def verdicts(self, subject: Subject, state: State, only: str | None = None) -> dict[str, Verdict]:
        """The verdict on every property that somebody sets for this span. Not to be changed by the caller.

        only: decide this property and ask the state nothing that it does not need.
        """
        return self._verdicts(subject, state, self._openings(subject, state), only)

    def verdicts_and_steps(self, subject: Subject, state: State) -> tuple[dict[str, Verdict], tuple[float, ...]]:
        """Both at once: the intervals are looked up once."""
        openings = self._openings(subject, state)
        return self._verdicts(subject, state, openings, None), self._steps(subject, state, openings)

    def steps(self, subject: Subject, state: State) -> tuple[float, ...]:
        """Times, soonest first, at which a verdict may change though nothing happens: see `steps`."""
        return self._steps(subject, state, self._openings(subject, state))

    def decided(self, openings: Openings, guards: Guards) -> dict[str, Verdict]:
        """`verdicts`, from the menu's intervals as they stand and guards that may have been asked for other spans."""
        return self._verdicts(guards.subject, guards.state, openings, None, guards)

    def next_step(self, openings: Openings, solver: Solver | None, now: float) -> float:
        """The first of `steps` after `now`, of this menu and whatever else the solver has watched; inf for none.
        solver: may be missing where the menu is not `timed`."""
        soonest = math.inf
        for opening in openings:
            if opening is not None and opening.grace_until is not None and now < opening.grace_until < soonest:
                soonest = opening.grace_until
        if solver is None:
            return soonest
        self._watch(openings, solver)
        return min(soonest, *[at for at in solver.times if at > now], math.inf)

    def _openings(self, subject: Subject, state: State) -> Openings:
        if not self.intervals:
            return ()
        opening = state.opening
        return tuple([opening(interval, subject) for interval in self.intervals])

    def _verdicts(
        self, subject: Subject, state: State, openings: Openings, only: str | None, guards: Guards | None = None
    ) -> dict[str, Verdict]:
        table, lingers = self._closed, False
        if openings is not self.closed and openings.count(None) < len(openings):
            now = state.now
            shape = tuple([standing(o, now) for o in openings])
            table, lingers = self._table(shape, GRACE), GRACE in shape
        elif table is None:
            table = self._closed = self._table((CLOSED,) * len(openings), GRACE)
            self.quiet = None if self._ever_timed else table.settled
        if table.settled is not None and not lingers:
            return table.settled
        if guards is None:
            guards = Guards(subject, state)
        if lingers:
            found = self._decide(table, openings, guards, only)
            lingering = self._decide(self._table(shape, OPEN), openings, guards, only, graced=True)
            for name, verdict in lingering.items():
                if _stronger(verdict, found.get(name)):
                    found[name] = verdict
            return found
        if table.guards is None or only is not None:
            return self._decide(table, openings, guards, only)
        if table.openings != openings:
            table.openings, table.decided = openings, {}
        hold = guards.hold
        answers = tuple([hold(guard) for guard in table.guards])
        known = table.decided.get(answers)
        if known is None:
            known = table.decided[answers] = Decision(self._repeat(table, answers, openings, guards))
        return known

    def _repeat(
        self, table: Table, answers: tuple[bool, ...], openings: Openings, guards: Guards
    ) -> Mapping[str, Verdict]:
        """`_decide`, once more with the same answers of the guards: the same rules win, only the times are others."""
        outcomes = table.outcomes.get(answers)
        if outcomes is not None:
            found = {}
            for name, value, rule, at, limited_by, by_kind, notice in outcomes:
                opening = None if at is None else openings[at]
                since, bound = (None, None) if opening is None else (opening.at, opening.bound_at)
                found[name] = Verdict(name, value, rule, since, bound, limited_by, by_kind, notice)
            return found
        decided = self._decide(table, openings, guards)
        if answers not in table.outcomes:
            won = {n: winners(c, guards, self.order) for n, c in table.contests.items()}
            single = all(len(rules) < 2 for rules in won.values())  # among several the times choose whose name it is
            table.outcomes[answers] = (
                None
                if not single
                else tuple(
                    [
                        Outcome(
                            n,
                            v.value,
                            v.rule,
                            None if v.opened_at is None else self.position(won[n][0]),
                            v.limited_by,
                            v.by_kind,
                            v.notice,
                        )
                        for n, v in decided.items()
                    ]
                )
            )
        return decided

    def _steps(self, subject: Subject, state: State, openings: Openings) -> tuple[float, ...]:
        if not self._ever_timed and openings.count(None) == len(openings):
            return ()
        solver = Solver(subject, state)
        for opening in openings:
            if opening is not None and opening.grace_until is not None and opening.grace_until > solver.now:
                solver.times.add(opening.grace_until)
        self._watch(openings, solver)
        return tuple(sorted(solver.times))

    def _watch(self, openings: Openings, solver: Solver) -> None:
        for rule in self.timed:
            at = self.position(rule)
            if at is None or openings[at] is not None:
                solver.rule(rule)

    def _table(self, shape: tuple[int, ...], without: int) -> Table:
        """Candidates while the intervals stand so: for `without` GRACE those outside and within open intervals, for
        `without` OPEN those outside and within lingering ones, which is how things stood before they closed."""
        key = (*shape, without)
        table = self._tables.get(key)
        if table is None:
            if len(self._tables) >= _TABLES_KEPT:
                self._tables.clear()
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
        values = [rule.values[name] for name, c in table.contests.items() for rule in c.rules]
        if not self._fixed_clamps or without != GRACE or not all(value.fixed for value in values):
            return table
        guards = {id(r.guard): r.guard for c in table.contests.values() for r in c.rules if r.guard is not None}
        if len(guards) <= _GUARDS_KEPT:
            table.guards = tuple(guards.values())
        won = [r for c in table.contests.values() for r in c.rules]
        if not guards and all(r.interval is None for r in won):
            table.settled = Decision(self._decide(table, (), STATELESS))
        return table

    def _decide(
        self,
        table: Table,
        openings: Openings,
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


def standing(opening: Opening | None, now: float) -> int:
    """Whether an interval is closed, open, or closed with protections that linger."""
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
