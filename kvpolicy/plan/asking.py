"""How one plan asks a policy and a state about its groups of spans, each thing no more often than it can differ.

Where every function that a menu reads is the owner's alone, the intervals, guards and crossings of one group are those
of the others; else groups for which everything is answered alike are decided once (`readings`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import partial

from kvpolicy.plan.outline import Outline
from kvpolicy.plan.readings import Decided, Readings
from kvpolicy.policy.contest import Guards
from kvpolicy.policy.model import IntervalPattern, Opening, State
from kvpolicy.policy.resolve import Menu
from kvpolicy.policy.steps import Solver
from kvpolicy.policy.table import Openings

Look = Callable[[IntervalPattern], Opening | None]


class Asking:
    """Of one outline in one state. quiet: no interval is open for its owner, not even in a grace."""

    def __init__(self, drawn: Outline, state: State, now: float) -> None:
        self._drawn, self._state, self._now = drawn, state, now
        looks = getattr(state, "intervals_of", None)
        self._by_owner = looks is not None
        self._look: Look | None = None if looks is None else looks(drawn.request.owner)
        self.quiet = self._by_owner and self._look is None
        self._opened: dict[Menu, Openings] = {}
        self._shared: tuple[Guards, Solver | None] | None = None
        self._readings: Readings | None = None

    def decide(self, menu: Menu, group: int) -> Decided:
        """What the policy says of a group."""
        openings = self._openings(menu, group)
        if self._by_owner and menu.of_the_owner:
            guards, solver = self._shared or (Guards(partial(self._drawn.subject, group), self._state), None)
            if menu.timed and solver is None:
                solver = Solver(guards.subject, self._state)
            self._shared = guards, solver
            return self._decided(menu, openings, guards, solver)
        readings = self._readings
        if readings is None:
            readings = self._readings = Readings(self._state)
        subject = self._drawn.subject(group)
        what: Hashable = menu if self._by_owner else (menu, openings)
        known = readings.decided(what, subject)
        if known is None:
            solver = Solver(subject, readings) if menu.timed else None
            known = self._decided(menu, openings, Guards(subject, readings), solver)
            readings.keep(what, known)
        return known

    def _decided(self, menu: Menu, openings: Openings, guards: Guards, solver: Solver | None) -> Decided:
        verdicts = menu.decided(openings, guards)
        return verdicts, menu.next_step(openings, solver if menu.timed else None, self._now)

    def _openings(self, menu: Menu, group: int) -> Openings:
        """The menu's intervals as they stand."""
        look = self._look
        if self.quiet:
            return menu.closed
        if look is None:
            opening, subject = self._state.opening, self._drawn.subject(group)
            return tuple([opening(interval, subject) for interval in menu.intervals])
        openings = self._opened.get(menu)
        if openings is None:
            openings = self._opened[menu] = tuple([look(interval) for interval in menu.intervals])
        return openings
