"""Pauses between one answer of an owner and its next request, by classes that tell much about how long they last.

The classes, coarsest first: what ended the answer (a tool call, a finished turn, nothing known); how long it was
(unknown, or tokens in doublings from 50 to 4000: a long answer is often code, and what it starts takes longer); how
long the owner's previous pause was (none, below 4, 8, 16, 40, 120 s, longer); whether it is a sub-agent; how many
requests it has made (1, below 5, more); which tools run, where they have names. Each pause counts in its class and in
all coarser ones. `state` tells of begin and end, `signals` reads the density of the pause an owner is in.

A pause that is still open is evidence, too: it is told to its classes at ages of 1, 2, 4, … seconds, as time passes.
Classes that foretell returns worse than recency alone would are believed less, and at last not at all (`trust`).
"""

from __future__ import annotations

import heapq
import itertools
from bisect import bisect_right
from collections.abc import Callable

from kvpolicy.workflow.classes import Classes
from kvpolicy.workflow.hazard import EDGES, Hazard, recency_density
from kvpolicy.workflow.life import Life
from kvpolicy.workflow.pause import Pause
from kvpolicy.workflow.phases import HUMAN_PAUSE, TOOL_PAUSE

_PREVIOUS_S = (4.0, 8.0, 16.0, 40.0, 120.0)
_OUTPUT_TOKENS = (50, 100, 200, 400, 800, 1600, 4000)
_REQUESTS = (2, 5)
_FOREVER_S = EDGES[-1]


class Pauses:
    """All open pauses, and the classes of those that were, per tenant. fresh: the classes a new tenant begins with."""

    def __init__(self, fresh: Callable[[], Classes] = Classes) -> None:
        self.fresh = fresh
        self._classes: dict[str, Classes] = {}
        self._looks: list[tuple[float, int, Pause]] = []  # (when a pause is told to its classes again, ticket, pause)
        self._ticket = itertools.count()
        self._open = 0
        self.wanted = True  # whether anybody asks for densities; if not, nothing is learned

    def begin(self, life: Life, at: float) -> None:
        """The owner has no request running any more."""
        if life.pause is not None or not self.wanted:
            return
        pause = life.pause = Pause(at, self._class(life))
        self._open += 1
        self._schedule(pause)

    def classify(self, life: Life) -> None:
        """What the answer was is known now."""
        pause = life.pause
        if pause is not None:
            hazard = self._class(life)
            if hazard is not pause.hazard:
                _tell(pause.hazard, 0.0, pause.known, -1.0)
                _tell(hazard, 0.0, pause.known)
                pause.hazard = hazard

    def returned(self, life: Life, at: float) -> None:
        """The owner's next request has come."""
        pause = self._close(life)
        if pause is not None:
            age = max(0.0, at - pause.at)
            if pause.known:  # what it told while it was open is part of the answer
                _tell(pause.hazard, 0.0, pause.known, -1.0)
                pause.known = 0.0
            self.classes(life.owner.tenant).trust.returned(pause.hazard, age)
            life.previous_pause = self._remember(pause, age)

    def gone(self, life: Life, at: float | None = None) -> None:
        """The owner's life is over: no request will come, however long one waits. at: it was only lost sight of then,
        and nobody knows."""
        pause = self._close(life)
        if pause is not None:
            _tell(pause.hazard, pause.known, _FOREVER_S if at is None else max(pause.known, at - pause.at))
        life.previous_pause = None

    def is_due(self, now: float) -> bool:
        """Whether `advance` has something to tell."""
        return bool(self._looks) and self._looks[0][0] <= now

    def advance(self, now: float, most: int | None = None) -> None:
        """Tell the classes how long the open pauses have lasted. most: of them in one step."""
        taken = 0
        while self.is_due(now) and taken != most:
            taken += 1
            _, _, pause = heapq.heappop(self._looks)
            if pause.open:
                age = 2.0 * pause.known or 1.0
                while pause.at + 2.0 * age <= now:
                    age *= 2.0
                _tell(pause.hazard, pause.known, age)
                pause.known = age
                self._schedule(pause)

    def density(self, life: Life, now: float) -> float | None:
        """Of the owner's pause; None where it is in none, or no pause of its tenant has ended yet."""
        pause = life.pause
        classes = self.classes(life.owner.tenant)
        if pause is None or not classes.everything.count:
            return None
        age, share = max(0.0, now - pause.at), classes.trust.share
        return share * pause.hazard.density(age) + (1.0 - share) * recency_density(age)

    def tenants(self) -> tuple[str, ...]:
        """Those that have classes."""
        return tuple(self._classes)

    def classes(self, tenant: str) -> Classes:
        """The classes of a tenant."""
        classes = self._classes.get(tenant)
        if classes is None:
            classes = self._classes[tenant] = self.fresh()
        return classes

    def known(self, tenant: str) -> Classes:
        """The classes of a tenant, to be read only; of one that has none, those a new one begins with."""
        return self._classes.get(tenant) or self.fresh()

    def replace(self, tenant: str, classes: Classes | None) -> None:
        """Take these in place of the tenant's classes (None: those a new tenant begins with). Pauses that are open now
        are told to nobody."""
        self._classes.pop(tenant, None)
        if classes is not None:
            self._classes[tenant] = classes

    def _remember(self, pause: Pause, age: float) -> float:
        """The pause has ended by a return at this age. Returns how long it was, as remembered."""
        each: Hazard | None = pause.hazard
        while each is not None:
            each.ended(age)
            each = each.above
        _tell(pause.hazard, pause.known, age)
        return age

    def _close(self, life: Life) -> Pause | None:
        pause, life.pause = life.pause, None
        if pause is not None:
            pause.open = False
            self._open -= 1
        return pause

    def _schedule(self, pause: Pause) -> None:
        look = 2.0 * pause.known or 1.0
        if look < _FOREVER_S:
            heapq.heappush(self._looks, (pause.at + look, next(self._ticket), pause))
        if len(self._looks) > 2 * self._open + 64:
            self._looks = [row for row in self._looks if row[2].open]
            heapq.heapify(self._looks)

    def _class(self, life: Life) -> Hazard:
        """The finest class of the pause an owner is in; the coarser ones stand above it."""
        phase = life.phases.phase
        stop = phase if phase in (TOOL_PAUSE, HUMAN_PAUSE) else None
        before = None if life.previous_pause is None else bisect_right(_PREVIOUS_S, life.previous_pause)
        length = None if life.output_tokens is None else bisect_right(_OUTPUT_TOKENS, life.output_tokens)
        turn = bisect_right(_REQUESTS, life.turns)
        tools = tuple(sorted({call.tool for call in life.phases.calls if call.tool is not None}))
        return self.classes(life.owner.tenant).named((stop, length, before, life.parent is not None, turn), tools)


def _tell(hazard: Hazard, since: float, until: float, weight: float = 1.0) -> None:
    each: Hazard | None = hazard
    while each is not None:
        each.waited(since, until, weight)
        each.told()
        each = each.above
