"""How one owner moves: an event changes its phase, closes and opens its intervals, and teaches a duration.

`state` decides whom an event addresses and calls this for each; the ends of bounds and graces come back through
`lapse`.
"""

from __future__ import annotations

from collections.abc import Iterable

from kvpolicy.policy.model import ANSWER_GRACE_S, GRACE_S, IntervalPattern
from kvpolicy.request import Owner
from kvpolicy.workflow.deadlines import Deadlines
from kvpolicy.workflow.events import LATEST_S, Event
from kvpolicy.workflow.intervals import Patterns
from kvpolicy.workflow.learned import Learned
from kvpolicy.workflow.life import Life
from kvpolicy.workflow.owners import Owners
from kvpolicy.workflow.phases import ENDED, IDLE, RUNNING, Call, Step

_LINGERING_KEPT = 16


class Transitions:
    """The owners, the patterns their intervals open by, and their deadlines."""

    def __init__(self, intervals: Iterable[IntervalPattern], learned: Learned) -> None:
        self.patterns = Patterns(intervals)
        self.owners = Owners()
        self._learned = learned
        self.deadlines = Deadlines()

    def apply(self, life: Life, event: Event, request: str | None = None) -> None:
        """Move one owner by one event. request: the one whose answer brought it."""
        attributes, name = event.attributes, event.name
        node, eta = _text(attributes.get("node")), attributes.get("eta")
        step = life.phases.observe(
            name,
            event.at,
            tool=_text(attributes.get("tool")),
            call=_text(attributes.get("call")),
            eta=float(eta) if isinstance(eta, int | float) and 0 <= eta < LATEST_S else None,
            node=node,
            request=request,
        )
        if step is None:
            return
        if name == "step_start" and node is not None and node != life.place():
            self.owners.move(life, node)
        parent = attributes.get("parent")
        if name == "branch_start" and isinstance(parent, str):
            self.owners.adopt(life, parent)
        self._take(life, event.at, step)

        def attribute(key: str) -> object:
            value = attributes.get(key)
            if value is None and step.closed is not None:
                value = step.closed.tool if key == "tool" else step.closed.id if key == "call" else None
            return life.attribute(key) if value is None else value

        soonest = life.openings.observe(self.patterns, name, event.at, step, attribute)
        if life.phases.phase == ENDED:
            life.openings.end_graces()  # the dead need no grace
            life.lingering_calls = []
        elif soonest is not None:
            self.deadlines.schedule(life, soonest)

    def answered(self, life: Life, call: Call, at: float) -> None:
        """A request carries the result of this open call."""
        step = life.phases.answer(call, at)
        self._take(life, at, step)

        def attribute(key: str) -> object:
            return call.tool if key == "tool" else call.id if key == "call" else life.attribute(key)

        soonest = life.openings.observe(self.patterns, "tool_result", at, step, attribute)
        if soonest is not None:
            self.deadlines.schedule(life, soonest)

    def enter(self, life: Life, phase: str, at: float) -> None:
        """Move an owner without an event; intervals of the old phase close, without grace."""
        if life.phases.enter(phase, at).moved:
            life.openings.leave_phase(at)

    def unclassified(self, life: Life, at: float) -> None:
        """An answer is over and nobody has said what follows: the owner has 2 s before it counts as idle."""
        if life.phases.phase == RUNNING:
            life.unclassified_until = at + ANSWER_GRACE_S
            self.deadlines.schedule(life, at + ANSWER_GRACE_S)

    def lapse(self, now: float, most: int | None = None) -> tuple[Owner, ...]:
        """End what ends up to `now`; the owners for whom something did. most: owners looked at in one step; the
        deadlines say that more is due."""
        changed: dict[Owner, None] = {}
        looks = 0
        while (most is None or looks < most) and (due := self.deadlines.due(now)) is not None:
            looks += 1
            at, life = due
            if self._lapse(life, at, now):
                changed[life.owner] = None
        return tuple(changed)

    def lapse_one(self, life: Life, now: float) -> None:
        """The same for one owner, before others whose turn it is."""
        due = life.deadline
        if due is not None and due <= now:
            self.deadlines.drop(life)
            self._lapse(life, due, now)

    def _lapse(self, life: Life, due: float, now: float) -> bool:
        """End what ends for an owner from its deadline up to `now`. False where that has ended before, by a request."""
        ends = [*life.openings.ends(), *[call.returned_at + GRACE_S for call in life.lingering_calls]]
        if life.unclassified_until is not None:
            ends.append(life.unclassified_until)
        later = [end for end in ends if end > now]
        if later:
            self.deadlines.schedule(life, min(later))
        if not any(due <= end <= now for end in ends):
            return False
        life.openings.lapse(now)
        life.lingering_calls = [c for c in life.lingering_calls if c.returned_at + GRACE_S > now]
        if life.unclassified_until is not None and life.unclassified_until <= now:
            ended, life.unclassified_until = life.unclassified_until, None
            if not life.running and life.phases.phase == RUNNING:
                self.enter(life, IDLE, ended)
        return True

    def forget(self, life: Life, now: float) -> None:
        """The owner is no more."""
        phase, since = life.phases.phase, life.phases.at
        life.phases.abandon()
        self._close_calls(life)
        self._learned.gone(life, now, phase, since)
        self.deadlines.drop(life)
        self.owners.remove(life)

    def _take(self, life: Life, at: float, step: Step) -> None:
        if step.opened is not None:
            self.owners.call_opened(life, step.opened)
        if step.closed is not None:
            self.owners.call_closed(life, step.closed)
            life.lingering_calls = [*life.lingering_calls, step.closed][-_LINGERING_KEPT:]
            self.deadlines.schedule(life, at + GRACE_S)
        if step.moved:
            life.unclassified_until = None
        if life.phases.abandoned:
            self._close_calls(life)
        self._learned.moved(life, at, step)
        life.phases.abandoned = []

    def _close_calls(self, life: Life) -> None:
        for call in life.phases.abandoned:
            self.owners.call_closed(life, call)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
