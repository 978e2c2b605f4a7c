"""Which intervals are open after a short list of events: the state of tests and of `explain`, told from the start.

One owner's events are gone through in order, phases and calls included, each time anew: short and without memory. The
state of running owners is `workflow`'s, which does the same step by step.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kvpolicy import words
from kvpolicy.policy.matching import Conditions, holds
from kvpolicy.policy.model import GRACE_S, RESUMES, EventPattern, IntervalPattern, Opening

_REVIVES = ("branch_start", "resume")


@dataclass(frozen=True, slots=True)
class Happening:
    """An event: its time, its name, and what it states in brackets."""

    at: float
    name: str
    attributes: Mapping[str, object]

    def addresses(self, attributes: Mapping[str, object]) -> bool:
        """Whether an owner with those attributes agrees with every owner field the event states."""
        return all(
            self.attributes[field] == attributes.get(field)
            for field in words.OWNER_FIELDS
            if field in self.attributes and field != "call"
        )


@dataclass(slots=True, eq=False)
class _Call:
    tool: object
    id: object


@dataclass(slots=True)
class _Row:
    opening: Opening
    call: _Call | None


def opening_of(
    pattern: IntervalPattern, events: Iterable[Happening], owner: Mapping[str, object], now: float
) -> Opening | None:
    """The innermost opening of an interval for an owner who met those events, or what lingers of it."""
    told = _Told(pattern, owner)
    for event in events:
        if event.addresses(owner):
            told.take(event)
    if told.rows:
        return told.rows[-1].opening
    lingering = told.lingering
    if lingering is None or lingering.grace_until is None or now >= lingering.grace_until:
        return None
    return lingering


def unmoved(events: Iterable[Happening], owner: Mapping[str, object]) -> list[tuple[Happening, str]]:
    """The events that should move the owner's phase and do not, each with the reason."""
    told = _Told(_NO_INTERVAL, owner)
    found = []
    for event in events:
        why = told.take(event) if event.addresses(owner) else "it states an owner that the span's is not"
        if why is not None:
            found.append((event, why))
    return found


_NO_INTERVAL = IntervalPattern(EventPattern(""), None)


class _Told:
    """One interval of one owner, as far as it has been told."""

    def __init__(self, pattern: IntervalPattern, owner: Mapping[str, object]) -> None:
        self.pattern, self.owner = pattern, owner
        self.phase = "idle"
        self.calls: list[_Call] = []
        self.returned: set[object] = set()  # ids of calls whose result has come: a second delivery says nothing
        self.rows: list[_Row] = []
        self.seen = False  # this phase has met the opening event before
        self.lingering: Opening | None = None

    def take(self, event: Happening) -> str | None:
        """Move the phase, close what the event closes, open what it opens. Returns why the phase does not
        move, where it should."""
        target = words.PHASE_AFTER.get(event.name)
        before, opened, closed = self.phase, None, None
        if target is not None:
            if before == "ended" and target != "ended" and event.name not in _REVIVES:
                return "its run has ended, and only a new request, branch_start or resume begins another"
            name = event.attributes.get("call")
            if event.name == "tool_call":
                if name is not None and (name in self.returned or any(call.id == name for call in self.calls)):
                    return "this call has been told already"
                opened = _Call(event.attributes.get("tool"), name)
                self.calls.append(opened)
            elif event.name == "tool_result":
                if name in self.returned:
                    return "this call's result has come already"
                closed = self._answered(event)
                if closed is None and name is not None:
                    self.returned.add(name)  # its call is still to come, and says nothing then
                if closed is None and (self.calls or before == "human_pause"):
                    return "no such call is open"
                if closed is not None:
                    self.calls.remove(closed)
                    self.returned |= set() if closed.id is None else {closed.id}
            elif "ended" in (before, target):
                self.calls.clear()
            self.phase = "tool_pause" if self.calls else target
        self._close(event, closed, moved=self.phase != before)
        if self.phase == "ended":
            self.lingering = None
        if target is None or self.phase == target:
            self._open(event, opened)
            return None
        return None if event.name == "tool_result" else "a tool call is open, and its result has to come first"

    def _answered(self, event: Happening) -> _Call | None:
        """The call a result belongs to: by id, else the oldest of that tool."""
        name, tool = event.attributes.get("call"), event.attributes.get("tool")
        if name is not None:
            for call in self.calls:
                if call.id == name:
                    return call
        for call in self.calls:
            if (name is None or call.id is None) and (tool is None or call.tool in (None, tool)):
                return call
        return None

    def _close(self, event: Happening, closed: _Call | None, *, moved: bool) -> None:
        until = self.pattern.until
        by_phase = self.pattern.start.name in words.PHASE_AFTER
        gone = []
        for row in self.rows:
            if until is None:
                over = row.call is not None and row.call is closed
            else:
                fits = until.name == event.name and self._fits(until.conditions, event, closed)
                over = fits and (row.call is None or row.call is closed)
            if over or (moved and by_phase):
                gone.append(row)
        self.rows = [row for row in self.rows if row not in gone]
        self.seen = self.seen and not moved
        if gone and event.name in RESUMES:
            last = gone[-1].opening
            self.lingering = Opening(last.at, last.bound_at, event.at + GRACE_S)

    def _open(self, event: Happening, opened: _Call | None) -> None:
        start, until = self.pattern.start, self.pattern.until
        if start.name != event.name or not self._fits(start.conditions, event, None):
            return
        if opened is None and self.seen:
            return  # the phase has seen it: nothing new
        self.seen = start.name in words.PHASE_AFTER
        bound = until is None or until.name == "tool_result"
        self.rows.append(_Row(Opening(event.at, event.at + self.pattern.at_most), opened if bound else None))

    def _fits(self, conditions: Conditions, event: Happening, closed: _Call | None) -> bool:
        known = {**self.owner, **event.attributes}
        if closed is not None:
            known.setdefault("tool", closed.tool)
            known.setdefault("call", closed.id)
        return all(holds(known.get(a), operator, values) for a, operator, values in conditions)
