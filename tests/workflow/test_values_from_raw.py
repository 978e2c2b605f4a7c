"""hit_density, best_hold and queue_delay after whole histories, against their definitions over the raw observations.

A history is played into a `RunState`; beside it stands a plain list of what happened, from which everything is worked
out anew: durations, pauses and their classes, lengths of sessions.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvpolicy.policy.model import Subject
from kvpolicy.request import Owner, Request
from kvpolicy.workflow import hazard
from kvpolicy.workflow.events import Event
from kvpolicy.workflow.gauges import CostModel
from kvpolicy.workflow.hazard import EDGES, PRIOR, RECENCY, STEPS, WIDTHS
from kvpolicy.workflow.state import RunState

FOREVER = EDGES[-1]


@dataclass
class Pause:
    """One pause as it was seen: its class, coarsest first; how it ended, and after how long."""

    names: tuple[object, ...]
    began: float
    ended: str = "open"  # returned, over
    seconds: float = 0.0


@dataclass
class Session:
    turns: int = 0
    previous: float | None = None
    pause: Pause | None = None
    call: tuple[float, str] | None = None  # since when which tool runs


@dataclass
class History:
    """Plays requests of sessions that take no time, and writes down what it does."""

    state: RunState = field(default_factory=RunState)
    now: float = 0.0
    sessions: dict[str, Session] = field(default_factory=dict)
    pauses: list[Pause] = field(default_factory=list)
    calls: dict[str, list[float]] = field(default_factory=dict)  # by tool
    lengths: list[int] = field(default_factory=list)  # of sessions that are over, in turns
    made: int = 0

    def ask(self, name: str, tool: str | None, output: int | None, tokens: int = 1000) -> None:
        session = self.sessions.setdefault(name, Session())
        self.made += 1
        request = Request(f"r{self.made}", Owner("t", name), tokens, 16)
        self.state.arrive(request, self.now)
        self.state.touched(request.id, self.now)
        if session.pause is not None:
            session.pause.ended, session.pause.seconds = "returned", self.now - session.pause.began
            session.previous = session.pause.seconds
        if session.call is not None:
            began, which = session.call
            self.calls.setdefault(which, []).append(self.now - began)
        session.turns += 1
        self.state.answer(request, self.now, tool_calls=(tool,) if tool else (), finished=True, output_tokens=output)
        session.call = (self.now, tool) if tool else None
        length = None if output is None else sum(output >= edge for edge in (50, 100, 200, 400, 800, 1600, 4000))
        before = None
        if session.previous is not None:
            before = sum(session.previous >= edge for edge in (4, 8, 16, 40, 120))
        turn = (session.turns >= 2) + (session.turns >= 5)
        names = ("tool" if tool else "human", length, before, False, turn, *((tool,) if tool else ()))
        session.pause = Pause(names, self.now)
        self.pauses.append(session.pause)

    def end(self, name: str) -> None:
        session = self.sessions.pop(name, None)
        self.state.observe(Event(self.now, "session_end", {"tenant": "t", "session": name}))
        if session is not None and session.pause is not None:
            session.pause.ended = "over"
            self.lengths.append(session.turns)

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.state.advance(self.now)

    def density(self, name: str) -> float:
        """By definition: of the pause's class, at its age."""
        pause = self.sessions[name].pause
        assert pause is not None
        rates = list(RECENCY)
        for depth in range(len(pause.names) + 1):
            alike = [p for p in self.pauses if p.names[:depth] == pause.names[:depth] and len(p.names) >= depth]
            rates = [self._rate(alike, k, rates[k]) for k in range(STEPS)]
        first = max(k for k in range(STEPS) if EDGES[k] <= self.now - pause.began)
        best, left, returned, held = 0.0, 1.0, 0.0, 0.0
        for k in range(first, STEPS):  # h: the end of each step
            stays = math.exp(-rates[k] * WIDTHS[k])
            returned += left * (1.0 - stays)
            held += left * (1.0 - stays) / rates[k]
            left *= stays
            best = max(best, returned / held)
        return best

    def _rate(self, pauses: list[Pause], k: int, above: float) -> float:
        """Returns per second at risk in step k; the class above counts as PRIOR more pauses."""
        end = math.inf if k == STEPS - 1 else EDGES[k + 1]
        returns = sum(p.ended == "returned" and EDGES[k] <= p.seconds < end for p in pauses)
        at_risk = sum(max(0.0, min(self._seen(p), EDGES[k + 1]) - EDGES[k]) for p in pauses)
        return (returns + PRIOR * WIDTHS[k] * above) / (at_risk + PRIOR * WIDTHS[k])

    def _seen(self, pause: Pause) -> float:
        """For how long it was seen to last: an open one is looked at after 1, 2, 4, … seconds."""
        if pause.ended != "open":
            return pause.seconds if pause.ended == "returned" else FOREVER
        age = self.now - pause.began
        return 0.0 if age < 1.0 else 2.0 ** math.floor(math.log2(age))

    def eta(self) -> float:
        """-Corr(k, N - k) over all sessions that are over."""
        pairs = [(k, n - k) for n in self.lengths for k in range(1, n + 1)]
        if not pairs:
            return 1.0
        done = math.fsum(k for k, _ in pairs) / len(pairs)
        left = math.fsum(r for _, r in pairs) / len(pairs)
        spread = math.sqrt(sum((k - done) ** 2 for k, _ in pairs) * sum((r - left) ** 2 for _, r in pairs))
        return 1.0 if spread == 0.0 else max(0.0, -sum((k - done) * (r - left) for k, r in pairs) / spread)

    def utility(self, bound: float, tool: str, gain: float) -> float:
        """Continuum's, with its cold start."""
        everything = [each for calls in self.calls.values() for each in calls]
        durations = self.calls.get(tool, [])
        durations = durations if len(durations) > 100 else everything
        return sum(each <= bound for each in durations) / len(durations) * gain - bound

    def read(self, function: str, name: str, **attributes: Any) -> float | None:
        return self.state.read(function, None, Subject("turn", attributes, Owner("t", name)))


names = st.sampled_from(("a", "b", "c", "d"))
step = st.one_of(
    st.tuples(st.just("ask"), names, st.sampled_from((None, "grep", "build")), st.sampled_from((None, 60, 900))),
    st.tuples(st.just("wait"), st.sampled_from((0.25, 1.0, 3.0, 10.0, 100.0, 5000.0))),
    st.tuples(st.just("end"), names),
)


@settings(max_examples=60)
@given(st.lists(step, max_size=40))
def test_hit_density_is_the_best_return_per_time_held_of_the_class_and_the_time_waited(history: list) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hazard, "SETTLES", 10**9)  # all that was told is read at once
        made = History()
        for what, *rest in history:
            getattr(made, what)(*rest)
        for name, session in made.sessions.items():
            found = made.read("hit_density", name)
            if any(pause.ended == "returned" for pause in made.pauses):
                assert session.pause is not None
                assert found == pytest.approx(made.density(name), rel=3e-3)
            else:
                assert found is None


@settings(max_examples=40)
@given(st.integers(0, 10**6), st.integers(0, 400), st.sampled_from((40, 104, 125, 150)), st.sampled_from((0, 7, 120)))
def test_best_hold_is_the_utility_maximum_over_the_raw_durations(
    seed: int, prefill: int, calls: int, waiting: int
) -> None:
    made, chance = History(), random.Random(seed)
    made.state.gauges.cost = CostModel(prefill_tokens_per_s=100.0)
    for number in range(calls):
        tool = "grep" if number % 4 else "build"
        name = chance.choice("abcd")
        made.ask(name, tool, None)
        made.wait(float(chance.randrange(1, 25) * (1 if tool == "grep" else 4)))
        if chance.random() < 0.2:
            made.ask(name, None, None)
            made.end(name)
    delays = [chance.randrange(200) * (waiting - number) / 100 for number in range(waiting)]
    for seconds in delays:
        made.state.gauges.record_queue_delay(seconds)
    made.ask("a", "grep", None, tokens=100 * prefill)
    kept = delays[-100:]
    delay = math.fsum(kept) / len(kept) if kept else None
    assert made.read("queue_delay", "a") == (None if delay is None else pytest.approx(delay))
    gain = (delay or 0.0) * made.eta() + prefill  # the whole context, not the span alone
    found = made.read("best_hold", "a", tokens=100)
    everything = [each for durations in made.calls.values() for each in durations]
    assert found is not None
    if len(everything) <= 100:
        assert found == 2.0
    else:
        best = max(made.utility(bound, "grep", gain) for bound in (0.0, *everything))
        assert made.utility(found, "grep", gain) == pytest.approx(best, abs=1e-6)
    assert made.read("best_hold", "a", tokens=100, last_step=True) == 0.0
    made.ask("a", None, None)
    assert made.read("best_hold", "a", tokens=100) == 0.0  # no tool runs
