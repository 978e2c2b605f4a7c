"""Events reach owners: at once where they are few, else a part of them at a time (`spreading`).

The part of `state` by which an event comes to each owner that it means, and by which runs hear of it. Who asks for no
parts (a replay, an engine's own state) has every event whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from kvpolicy.policy.model import IntervalPattern
from kvpolicy.request import Owner
from kvpolicy.workflow.early import Early
from kvpolicy.workflow.events import Event
from kvpolicy.workflow.graph import Graph
from kvpolicy.workflow.life import Life
from kvpolicy.workflow.moment import Moment
from kvpolicy.workflow.owners import is_meant
from kvpolicy.workflow.run_keys import key_of
from kvpolicy.workflow.spreading import Spread, Spreading

PAUSES = 16  # that are looked at for each owner who is moved in one step


class Reaching(Moment):
    """at_once: owners that an event, or time, moves in one step; None: all. Of an event that may reach more, `observe`
    returns nobody: `go_on` does it, and `reached` is told of an event and the owners that it has come to, none where it
    begins. rest: of the event that was observed last, where it is still on its way."""

    def __init__(self, intervals: Iterable[IntervalPattern] = (), graph: Graph | None = None) -> None:
        super().__init__(intervals, graph)
        self._early = Early()
        self._spreading = Spreading()
        self.at_once: int | None = None
        self.reached: Callable[[Event, Sequence[Owner]], None] = lambda event, owners: None
        self.rest: Spread | None = None

    @property
    def is_behind(self) -> bool:
        """Whether more is to be done for what has happened already: by `go_on`, or by `advance` to the same time."""
        due = self._moves.deadlines.soonest <= self._now or self.learned.pauses.is_due(self._now)
        return due or bool(self._spreading)

    def _most_pauses(self) -> int | None:
        """How many pauses are looked at in one step: that is less work than to move their owners."""
        return None if self.at_once is None else PAUSES * self.at_once

    def must_wait(self, event: Event) -> bool:
        """Whether an event means many, and so many such of its tenant are on their way that it should not begin yet.
        `observe` takes it all the same."""
        if self.at_once is None or not self._spreading.is_crowded(event.attributes.get("tenant")):
            return False
        could = self._owners.could_be_addressed(event, fixed=True)
        return could is None or len(could) > self.at_once

    def go_on(self) -> bool:
        """Let an event that is on its way reach the next `at_once` owners. Returns whether more are left."""
        if self._spreading:
            spread = self._spreading.next()
            lives = spread.following(self.at_once or spread.could)
            self._told(spread, [life.owner for life in lives if self._meets(life, spread)])
            self._end_spreads()
        return bool(self._spreading)

    def _spread(self, event: Event) -> Spread | None:
        """An event that may reach more than `at_once` owners begins; None: it does not, and nobody whom it may reach
        waits for another."""
        if self.at_once is None:
            return None
        could = self._owners.could_be_addressed(event, fixed=bool(self._spreading))
        if could is not None and len(could) > self.at_once:
            return self._begin(Spread(event, could, event.attributes))
        if could is None and self._spreading:  # whom it means may hang on what is still on its way
            could = dict.fromkeys(self._owners.within_reach(event))
        for life in list(could or ()):
            self._catch_up(life)
        return None

    def _begin(self, spread: Spread) -> Spread:
        self._spreading.begun.append(spread)
        self.reached(spread.event, ())
        return spread

    def _catch_up(self, life: Life) -> None:
        """What happened to an owner before happens to it now."""
        if self._spreading:
            for spread in self._spreading.of(life):
                self._told(spread, [life.owner] if self._meets(life, spread) else ())
            self._end_spreads()
        if self.at_once is not None:
            self._moves.lapse_one(life, self._now)

    def _meets(self, life: Life, spread: Spread) -> bool:
        """An owner's turn: whether it was meant, and then it has happened to it."""
        if self._owners.get(life.owner) is not life:
            return False
        self._moves.lapse_one(life, spread.event.at)
        if spread.stated is not None and not is_meant(life, spread.event):
            return False
        self._reach(life, spread.event)
        return True

    def _told(self, spread: Spread, owners: Sequence[Owner]) -> None:
        if not owners:
            return
        spread.reached += len(owners)
        first = {key_of(owner): owner for owner in owners if key_of(owner) not in spread.runs}
        if first:
            spread.runs.update(first)
            self._heard(spread.event, list(first.values()))
        self.reached(spread.event, owners)

    def _end_spreads(self) -> None:
        for spread in self._spreading.end():
            if not spread.reached:
                self._early.keep(spread.event)
                self._heard(spread.event, ())

    def _reach(self, life: Life, event: Event, *, alone: bool = False) -> None:
        """An event happens to one owner. alone: it was read from this owner's request or answer."""
        if life.owner.branch is not None and (alone or life.owner.branch != event.attributes.get("branch")):
            self._branches.observe(event, life.owner.branch, life.owner)
        self._moves.apply(life, event)
        result = self._early.result_of(life, event) if event.name == "tool_call" else None
        if result is not None:
            self._moves.apply(life, result)

    def _heard(self, event: Event, owners: Sequence[Owner]) -> None:
        """Their runs hear of it."""
        for tenant, node, seconds in self.runs.observe(event, owners):
            self.learned.stepped(tenant or "default", node, seconds, event.at)
