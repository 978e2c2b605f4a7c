"""The facet of `on … until …` of many rules: which intervals exclude each other, which are open whenever another is.

A few different intervals are compared pair by pair with `order`'s own function; of many, the conditions of their events
are looked up as those of selectors are (`crossing`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kvpolicy import words
from kvpolicy.policy.analysis.crossing import Crossing
from kvpolicy.policy.analysis.facets import FEW, Facet, numbered_values
from kvpolicy.policy.bits import bits_of, members
from kvpolicy.policy.matching import Matcher
from kvpolicy.policy.model import EventPattern, IntervalPattern
from kvpolicy.policy.order import interval_implies, phase_of, phases_exclude

_EVENTS = tuple(words.EVENTS)


def intervals(patterns: Sequence[IntervalPattern | None], few: int = FEW) -> Facet:
    """The facet of some rules' intervals, None for a rule that stands in none."""
    of, values, have = numbered_values(patterns)
    if len(values) <= few:
        return _pairwise(of, values, have)
    found = Facet(of, [0] * len(values), [0] * len(values), [0] * len(values))
    stated = [(i, value) for i, value in enumerate(values) if value is not None]
    lasting = [(i, value.until) for i, value in stated if value.until is not None]
    starts, untils = _Events([(i, value.start) for i, value in stated], few), _Events(lasting, few)
    everybody = phased = 0
    phases: dict[str, int] = {}
    for i, value in enumerate(values):
        everybody |= have[i]
        phase = phase_of(value)
        if phase is not None:
            phases[phase] = phases.get(phase, 0) | have[i]
            phased |= have[i]
    free = have[values.index(None)] if len(stated) < len(values) else 0
    endless = sum(1 << i for i, value in stated if value.until is None)
    for i, value in enumerate(values):
        found.wider[i] |= free
        if value is None:
            found.narrower[i] = everybody
            continue
        phase = phase_of(value)
        found.apart[i] = 0 if phase is None else phased & ~phases[phase]
        ending = 0 if value.until is None else untils.narrower(i)
        for j in members(starts.wider(i) & (endless | ending)):
            found.wider[i] |= have[j]
            found.narrower[j] |= have[i]
    for i in members(starts.rough | untils.rough):
        found.rough |= have[i]
    return found


@dataclass(frozen=True, slots=True)
class _Event:
    matches: tuple[Matcher, ...]


class _Events:
    """Events by the number of the interval that they open or close; what is said of them is said of such numbers."""

    def __init__(self, events: Sequence[tuple[int, EventPattern]], few: int) -> None:
        self._event = dict(events)
        self._having: dict[EventPattern, list[int]] = {}
        for i, event in events:
            self._having.setdefault(event, []).append(i)
        self._events = list(self._having)
        self._at = {event: place for place, event in enumerate(self._events)}
        some = [_Event((Matcher(event.name, event.conditions),)) for event in self._events]
        self._crossing = Crossing(some, few, _EVENTS)
        self._size = max(self._event, default=0) + 1
        self._wider: dict[EventPattern, int] = {}
        self._narrower: dict[EventPattern, int] = {}
        self.rough = self._numbers(self._crossing.rough, None)

    def wider(self, i: int) -> int:
        """Those that every event of this one fits."""
        return self._related(i, self._wider, self._crossing.wider)

    def narrower(self, i: int) -> int:
        """Those whose every event fits this one."""
        return self._related(i, self._narrower, self._crossing.narrower)

    def _related(self, i: int, known: dict[EventPattern, int], find: Callable[[int], int]) -> int:
        event = self._event[i]
        if event not in known:
            known[event] = self._numbers(find(self._at[event]), event.name)
        return known[event]

    def _numbers(self, places: int, name: str | None) -> int:
        """The intervals that have some events. name: of events called so alone."""
        chosen = [self._events[place] for place in members(places)]
        return bits_of((i for e in chosen if name in (None, e.name) for i in self._having[e]), self._size)


def _pairwise(of: list[int], values: list[IntervalPattern | None], have: list[int]) -> Facet:
    found = Facet(of, [0] * len(values), [0] * len(values), [0] * len(values))
    for i, one in enumerate(values):
        for j, other in enumerate(values):
            if phases_exclude(one, other):
                found.apart[i] |= have[j]
            if interval_implies(one, other):
                found.wider[i] |= have[j]
                found.narrower[j] |= have[i]
    return found
