"""Which rules decide a span: the hot path of planning.

Rules that can reach a span depend on its kind and on a few attributes; that choice (a `Menu`) is made once per
combination and kept. Which intervals are open picks a `Table` within it, made once as well: per property the
candidates, winners first. What is left to do for a span is to look at the state: intervals, guards, computed values.

INVARIANT: the order of rules in a file, of files and of attributes plays no part in the outcome.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping
from typing import Any

from kvpolicy.directive import Verdict
from kvpolicy.policy.compiled import Clamp, Rule
from kvpolicy.policy.contest import STATELESS, Guards, contest, winners
from kvpolicy.policy.grace import CLOSED, GRACE, OPEN, standing, stronger
from kvpolicy.policy.model import State, Subject
from kvpolicy.policy.order import Order
from kvpolicy.policy.reach import Reach
from kvpolicy.policy.steps import Solver
from kvpolicy.policy.table import Decision, Openings, Outcome, Table

_TABLES_KEPT = 1024
_GUARDS_KEPT = 4  # more of them are asked one by one, as far as the outcome needs it


class Menu(Reach):
    """Everything that can decide spans of one kind whose attributes fall alike."""

    def __init__(
        self, kind: str, attributes: Mapping[str, object], rules: Iterable[Rule], clamps: Iterable[Clamp], order: Order
    ) -> None:
        super().__init__(kind, attributes, rules, clamps, order)
        self.closed: Openings = (None,) * len(self.intervals)
        self._tables: dict[tuple[int, ...], Table] = {}
        self._closed: Table | None = None  # that of no open interval
        self._ever_timed = any(r.interval is None for r in self.timed)
        # The verdicts while nothing is open, where they never change: `decided` and `next_step` need not be asked.
        self.quiet: Decision | None = None
        self.kept: dict[Hashable, tuple[object, Any]] = {}  # what planning made while `hits` answered the same

    def verdicts(self, subject: Subject, state: State, only: str | None = None) -> dict[str, Verdict]:
        """The verdict on every property that somebody sets for this span. Not to be changed by the caller.

        only: decide this property and ask the state nothing that it does not need.
        """
        return self.decided(self._openings(subject, state), Guards(subject, state), only)

    def steps(self, subject: Subject, state: State) -> tuple[float, ...]:
        """Times, soonest first, at which a verdict may change though nothing happens: see `steps`."""
        return self._steps(subject, state, self._openings(subject, state))

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

    def decided(self, openings: Openings, guards: Guards, only: str | None = None) -> dict[str, Verdict]:
        """`verdicts`, from the menu's intervals as they stand and guards that may have been asked for other spans."""
        table, lingers = self._closed, False
        if openings is not self.closed and openings.count(None) < len(openings):
            now = guards.state.now
            shape = tuple([standing(o, now) for o in openings])
            table, lingers = self._table(shape, GRACE), GRACE in shape
        elif table is None:
            table = self._closed = self._table((CLOSED,) * len(openings), GRACE)
            self.quiet = None if self._ever_timed else table.settled
        if table.settled is not None and not lingers:
            return table.settled
        if lingers:
            found = self.decide(table.contests, openings, guards, only)
            lingering = self.decide(self._table(shape, OPEN).contests, openings, guards, only, graced=True)
            for name, verdict in lingering.items():
                if stronger(verdict, found.get(name)):
                    found[name] = verdict
            return found
        if table.guards is None or only is not None:
            return self.decide(table.contests, openings, guards, only)
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
        decided = self.decide(table.contests, openings, guards)
        if answers not in table.outcomes:
            won = {n: winners(c, guards) for n, c in table.contests.items()}
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
        if not self.fixed_clamps or without != GRACE or not all(value.fixed for value in values):
            return table
        guards = {id(r.guard): r.guard for c in table.contests.values() for r in c.rules if r.guard is not None}
        if len(guards) <= _GUARDS_KEPT:
            table.guards = tuple(guards.values())
        won = [r for c in table.contests.values() for r in c.rules]
        if not guards and all(r.interval is None for r in won):
            table.settled = Decision(self.decide(table.contests, (), STATELESS))
        return table
