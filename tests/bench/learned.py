"""Learned times' figures: events into run state while all is learned, series exact and sketched, what is asked of them.
`python tests/bench/learned.py`.

Medians of 9, processor time, measured in turn, so that two figures of one line can be compared on a busy machine.
Nothing here is a test.
"""

from __future__ import annotations

import gc
import random
import statistics
import time
from collections.abc import Callable

from kvpolicy.policy.model import EventPattern, IntervalPattern
from kvpolicy.request import Owner
from kvpolicy.workflow import durations
from kvpolicy.workflow.durations import FEW, Series
from kvpolicy.workflow.events import Event
from kvpolicy.workflow.state import RunState

ROUNDS = 9
FIGURE = 20_000  # events a second, on one core
SESSIONS, TOOLS = 500, ("grep", "edit", "run_tests", "build")
PATTERNS = [
    IntervalPattern(EventPattern("tool_call"), EventPattern("tool_result")),
    IntervalPattern(EventPattern("turn_end"), EventPattern("turn_start")),
]
Rows = list[Event]


def in_turn(*measures: Callable[[], float]) -> list[float]:
    """Medians of the rounds; each round measures all."""
    values: list[list[float]] = [[] for _ in measures]
    for _ in range(ROUNDS):
        for found, measure in zip(values, measures, strict=True):
            gc.collect()
            found.append(measure())
    return [statistics.median(found) for found in values]


def history(count: int, start: float) -> Rows:
    """Calls and results of 500 sessions with ids, and every tenth time a human: all of it teaches."""
    chance, rows, at = random.Random(4), [], start
    for number in range(count // 2):
        at += 0.0001
        session = {"tenant": "t", "session": f"s{number % SESSIONS}"}
        if number % 10 == 0:
            rows.append(Event(at, "turn_end", session))
            rows.append(Event(at + chance.expovariate(0.1), "turn_start", session))
        else:
            call = {**session, "tool": TOOLS[number % 4], "call": f"c{start}-{number}"}
            rows.append(Event(at, "tool_call", call))
            rows.append(Event(at + chance.lognormvariate(0.0, 2.0), "tool_result", call))
    rows.sort(key=lambda event: event.at)
    return rows


def told(rows: Rows, before: Rows, few: int = FEW, learns: bool = True) -> Callable[[], float]:
    """Seconds per event of `rows`, by a state that has taken `before`. few: durations that are kept exactly."""

    def measure() -> float:
        state = RunState(PATTERNS)
        for number in range(SESSIONS):
            state.know(Owner("t", f"s{number}"))
        if not learns:
            state.learned.moved = lambda life, at, step: None  # type: ignore[method-assign]
        durations.FEW = few
        for event in before:
            state.observe(event)
        begin = time.process_time()
        for event in rows:
            state.observe(event)
        spent = time.process_time() - begin
        durations.FEW = FEW
        return spent / len(rows)

    return measure


def full(count: int) -> Series:
    """A series that has seen so many durations."""
    chance, series = random.Random(5), Series()
    for _ in range(count):
        series.add(chance.lognormvariate(0.0, 2.0), 0.0)
    return series


def adding(seen: int, then: Callable[[Series], object] | None = None, count: int = 400) -> Callable[[], float]:
    """Seconds for one more duration, and for what is asked after it."""

    def measure() -> float:
        chance, series = random.Random(6), full(seen)
        begin = time.process_time()
        for _ in range(count):
            series.add(chance.lognormvariate(0.0, 2.0), 0.0)
            if then is not None:
                then(series)
        return (time.process_time() - begin) / count

    return measure


def waiting(count: int = 2_000, live: int = 100_000) -> float:
    """Seconds for a pause to begin and another one, of any age, to end, of 100,000 that are open."""
    chance, series = random.Random(7), Series()
    began = [float(number) for number in range(live)]
    for at in began:
        series.opened(at)
    begin = time.process_time()
    for number in range(count):
        index = chance.randrange(live)
        series.closed(began[index])
        began[index] = float(live + number)
        series.opened(began[index])
    return (time.process_time() - begin) / count


ASKED: dict[str, Callable[[Series], object]] = {
    "p95": lambda series: series.percentile(95),
    "best hold at five gains": lambda series: [series.best_bound(gain) for gain in (1.0, 5.0, 20.0, 80.0, 300.0)],
    "what is left of a pause": lambda series: series.remaining(3.0, 10.0),
}


if __name__ == "__main__":
    first, more = history(20_000, 0.0), history(20_000, 1e6)
    nothing, exact, now = in_turn(told(more, first, learns=False), told(more, first, 10**9), told(more, first))
    print(f"  event: {nothing * 1e6:.1f} us if nothing is learned, {exact * 1e6:.1f} us if all is kept exactly,")
    print(f"         {now * 1e6:.1f} us as it is, {1 / now:,.0f} a second; {FIGURE:,} are to be reached")
    exact, sketched = in_turn(adding(FEW - 450), adding(4_000))
    print(f"  one duration more: exact {exact * 1e6:.1f} us, in a sketch {sketched * 1e6:.1f} us")
    for name, ask in ASKED.items():
        exact, sketched = in_turn(adding(FEW - 450, ask), adding(4_000, ask))
        print(f"  one duration more, then {name}: exact {exact * 1e6:.0f} us, sketch {sketched * 1e6:.0f} us")
    print(f"  a pause begins and one ends, of 100,000 open: {in_turn(waiting)[0] * 1e6:.1f} us")
    raise SystemExit(now * FIGURE > 1.0)
