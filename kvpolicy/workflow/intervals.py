"""The intervals `on A until B` of a policy, and which of them are open for one owner.

`Patterns` is made once from a compiled policy; every owner has `Openings`, which `state` moves on by events.
An interval opened by an event that moves the phase belongs to that phase and closes with it at the latest; one opened
by another event is closed by its `until` alone, and without one lasts until the owner is forgotten.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from kvpolicy import words
from kvpolicy.policy.model import GRACE_S, RESUMES, IntervalPattern, Opening
from kvpolicy.workflow.events import conditions_hold
from kvpolicy.workflow.phases import MOST_CALLS, Call, Step

Attribute = Callable[[str], object]


class Patterns:
    """The interval patterns of one policy, by number and by the events that start and end them."""

    __slots__ = ("_by_identity", "_by_value", "ends", "kept", "starts")

    def __init__(self, intervals: Iterable[IntervalPattern] = ()) -> None:
        self.kept: list[IntervalPattern] = []
        self.starts: dict[str, list[int]] = {}
        self.ends: dict[str, list[int]] = {}
        self._by_identity: dict[int, int] = {}
        self._by_value: dict[IntervalPattern, int] = {}
        for interval in intervals:
            self.number(interval)

    def number(self, interval: IntervalPattern) -> int:
        """The number of a pattern; an unknown one is watched from now on."""
        number = self._by_identity.get(id(interval))
        if number is not None and self.kept[number] is interval:
            return number
        number = self._by_value.get(interval)
        if number is None:
            number = self._by_value[interval] = self._by_identity[id(interval)] = len(self.kept)
            self.kept.append(interval)
            self.starts.setdefault(interval.start.name, []).append(number)
            if interval.until is not None:
                self.ends.setdefault(interval.until.name, []).append(number)
        return number


@dataclass(slots=True)
class _Open:
    opening: Opening
    call: Call | None  # the call it is bound to
    by_phase: bool


class Openings:
    """What is open for one owner: per pattern the openings, latest last, and those that linger in a grace."""

    __slots__ = ("lingering", "open")

    def __init__(self) -> None:
        self.open: dict[int, list[_Open]] = {}
        self.lingering: dict[int, Opening] = {}

    def innermost(self, number: int) -> Opening | None:
        """The latest opening that is open, else one whose protections linger."""
        rows = self.open.get(number)
        if rows:
            return rows[-1].opening
        return self.lingering.get(number)

    def observe(self, patterns: Patterns, name: str, at: float, step: Step, attribute: Attribute) -> float | None:
        """Close, then open, what an event closes and opens. Returns the earliest new end of a bound or grace."""
        resumes = name in RESUMES
        soonest = None
        if self.open:
            soonest = self._close_by_event(patterns, name, at, step, attribute, resumes)
            if step.moved:
                soonest = _sooner(soonest, self.leave_phase(at, resumes))
        numbers = patterns.starts.get(name)
        if numbers is None or not step.opens:
            return soonest
        by_phase = name in words.PHASE_AFTER
        for number in numbers:
            pattern = patterns.kept[number]
            if not conditions_hold(pattern.start, attribute):
                continue
            opening = Opening(at, at + pattern.at_most)
            until_result = pattern.until is None or pattern.until.name == "tool_result"
            call = step.opened if until_result else None
            row = _Open(opening, call, by_phase)
            if call is None:
                self.open[number] = [row]  # they close together, and the innermost alone is read
            else:
                self.open[number] = [*self.open.get(number, ())[-MOST_CALLS + 1 :], row]
            soonest = _sooner(soonest, opening.bound_at)
        return soonest

    def leave_phase(self, at: float, resumes: bool = False) -> float | None:
        """The phase is over: what it opened closes."""
        soonest = None
        for number, rows in list(self.open.items()):
            gone = [row for row in rows if row.by_phase]
            if gone:
                soonest = _sooner(soonest, self._close(number, gone, at, resumes))
        return soonest

    def end_graces(self) -> bool:
        """The resuming request has touched its blocks; True if a grace ended by it."""
        if not self.lingering:
            return False
        self.lingering.clear()
        return True

    def lapse(self, now: float) -> bool:
        """Drop the graces that are over at `now`; True if there were any."""
        over = [n for n, opening in self.lingering.items() if (opening.grace_until or 0.0) <= now]
        for number in over:
            del self.lingering[number]
        return bool(over)

    def ends(self) -> Iterable[float]:
        """Every time at which a bound or a grace ends."""
        for rows in self.open.values():
            for row in rows:
                yield row.opening.bound_at
        for opening in self.lingering.values():
            if opening.grace_until is not None:
                yield opening.grace_until

    def _close_by_event(
        self, patterns: Patterns, name: str, at: float, step: Step, attribute: Attribute, resumes: bool
    ) -> float | None:
        soonest = None
        if step.closed is not None:  # an interval without `until` that a call opened is open while the call is
            for number, rows in list(self.open.items()):
                if patterns.kept[number].until is None:
                    gone = [row for row in rows if row.call is step.closed]
                    soonest = _sooner(soonest, self._close(number, gone, at, resumes))
        for number in patterns.ends.get(name, ()):
            rows_or_none = self.open.get(number)
            until = patterns.kept[number].until
            if rows_or_none and until is not None and conditions_hold(until, attribute):
                gone = [row for row in rows_or_none if row.call is None or row.call is step.closed]
                soonest = _sooner(soonest, self._close(number, gone, at, resumes))
        return soonest

    def _close(self, number: int, gone: list[_Open], at: float, resumes: bool) -> float | None:
        if not gone:
            return None
        kept = [row for row in self.open[number] if row not in gone]
        if kept:
            self.open[number] = kept
        else:
            del self.open[number]
        if not resumes:
            return None
        last = gone[-1].opening
        self.lingering[number] = Opening(last.at, last.bound_at, at + GRACE_S)
        return at + GRACE_S


def _sooner(a: float | None, b: float | None) -> float | None:
    if a is None or b is None:
        return b if a is None else a
    return min(a, b)
