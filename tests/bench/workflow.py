"""Run state's figures: events, requests, look-ups, distances, memory per owner. `python tests/bench/workflow.py`.

Medians of 9, processor time. Nothing here is a test: what must hold whatever the machine is tested in
`tests/workflow`.
"""

from __future__ import annotations

import gc
import random
import statistics
import time
import tracemalloc
from collections.abc import Callable

from kvpolicy.policy.model import EventPattern, IntervalPattern, Subject
from kvpolicy.request import Owner, Request
from kvpolicy.workflow.durations import Series
from kvpolicy.workflow.events import Event
from kvpolicy.workflow.graph import AGENT, BARRIER, Graph, GraphEdge
from kvpolicy.workflow.hold import best_hold
from kvpolicy.workflow.position import Position
from kvpolicy.workflow.state import RunState

ROUNDS = 9
SESSIONS = 500
PATTERNS = [
    IntervalPattern(EventPattern("tool_call"), EventPattern("tool_result")),
    IntervalPattern(EventPattern("tool_call", (("tool", "=", ("grep",)),)), EventPattern("tool_result")),
    IntervalPattern(EventPattern("turn_end"), EventPattern("turn_start")),
    IntervalPattern(EventPattern("workflow_end"), None),
]


def median(measure: Callable[[], float]) -> float:
    """Median of the rounds, with the collector's pauses between rather than in them."""
    values = []
    for _ in range(ROUNDS):
        gc.collect()
        values.append(measure())
    return statistics.median(values)


def events(count: int = 20_000) -> float:
    """Seconds per event: calls and results of 500 sessions, with ids."""
    state = RunState(PATTERNS)
    for number in range(SESSIONS):
        state.know(Owner("t", f"s{number}"))
    rows = [
        Event(
            i * 0.001,
            "tool_call" if i % 2 == 0 else "tool_result",
            {"tenant": "t", "session": f"s{i // 2 % SESSIONS}", "tool": "grep", "call": f"c{i // 2}"},
        )
        for i in range(count)
    ]
    begin = time.process_time()
    for row in rows:
        state.observe(row)
    return (time.process_time() - begin) / count


def requests(count: int = 5_000) -> float:
    """Seconds per request: arrive, touched, answer with a tool call."""
    state = RunState(PATTERNS)
    rows = [Request(f"r{i}", Owner("t", f"s{i % SESSIONS}"), 100, 16) for i in range(count)]
    begin = time.process_time()
    for i, row in enumerate(rows):
        state.arrive(row, i * 0.01)
        state.touched(row.id, i * 0.01)
        state.answer(row, i * 0.01 + 0.005, tool_calls=("grep",))
    return (time.process_time() - begin) / count


def openings(count: int = 20_000) -> float:
    """Seconds per look-up of an interval."""
    state = RunState(PATTERNS)
    subject = Subject("turn", {}, Owner("t", "s"))
    state.know(subject.owner)
    state.observe(Event(1.0, "tool_call", {"session": "s", "tool": "grep"}))
    begin = time.process_time()
    for _ in range(count):
        state.opening(PATTERNS[0], subject)
    return (time.process_time() - begin) / count


def big_graph(nodes: int = 1_000) -> Graph:
    """Two edges into each node from the 20 before it, a barrier every 10, a loop every 100."""
    chance = random.Random(1)
    names = {f"n{i}": BARRIER if i % 10 == 0 and i else AGENT for i in range(nodes)}
    edges = [GraphEdge(f"n{chance.randrange(max(0, i - 20), i)}", f"n{i}") for i in range(1, nodes) for _ in range(2)]
    edges += [GraphEdge(f"n{i}", f"n{i - 30}", None, 3, True) for i in range(100, nodes, 100)]
    return Graph(names, edges)


def distances() -> tuple[float, float]:
    """Seconds for a new run's first distances, and for those after one step's end."""
    graph = big_graph()
    whole = step = 0.0

    def once() -> float:
        nonlocal step
        begin = time.process_time()
        position = Position(graph)
        position.steps("n999")
        first = time.process_time() - begin
        position.start("n0")
        begin = time.process_time()
        position.end("n0")
        position.steps("n999")
        step = time.process_time() - begin
        return first

    whole = median(once)
    return whole, step


def holds(count: int = 2_000) -> float:
    """Seconds for a new duration and the best hold after it, asked five times; 512 durations are kept."""
    chance = random.Random(2)
    series = Series()
    for _ in range(512):
        series.add(chance.expovariate(0.1))
    begin = time.process_time()
    for _ in range(count):
        series.add(chance.expovariate(0.1))
        for gain in (1.0, 5.0, 20.0, 80.0, 300.0):
            best_hold(None, series, gain)
    return (time.process_time() - begin) / count


def densities(count: int = 4_000) -> tuple[float, float]:
    """Seconds for one pause to be learned (two requests), and for the density of an open one, asked at three ages."""
    chance = random.Random(3)
    state = RunState()
    owners = [Owner("t", f"s{number}") for number in range(100)]
    subjects = [Subject("turn", {}, owner) for owner in owners]
    learning = asking = 0.0
    now = 0.0
    for number in range(count):
        owner = owners[number % 100]
        request = Request(f"r{number}", owner, 100, 16)
        begin = time.process_time()
        state.arrive(request, now)
        state.answer(request, now, tool_calls=("grep",), output_tokens=chance.randrange(2000))
        learning += time.process_time() - begin
        begin = time.process_time()
        for other in (0, 37, 80):
            state.read("hit_density", None, subjects[(number + other) % 100])
        asking += time.process_time() - begin
        now += chance.expovariate(10.0)
    return learning / count, asking / count / 3


def memory(owners: int = 20_000) -> float:
    """Bytes per owner in a tool pause."""
    tracemalloc.start()
    state = RunState(PATTERNS)
    before = tracemalloc.get_traced_memory()[0]
    for i in range(owners):
        request = Request(f"r{i}", Owner("t", f"s{i}"), 100, 16)
        state.arrive(request, float(i))
        state.answer(request, float(i), tool_calls=(("grep", f"c{i}"),))
    used = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    return used / owners


if __name__ == "__main__":
    print(f"  event: {median(events) * 1e6:.1f} us")
    print(f"  request (arrive, touched, answer): {median(requests) * 1e6:.1f} us")
    print(f"  look-up of an interval: {median(openings) * 1e6:.2f} us")
    whole, step = distances()
    print(f"  distances on 1,000 nodes: {whole * 1e3:.2f} ms, after one step {step * 1e3:.2f} ms")
    print(f"  a duration and five best holds: {median(holds) * 1e6:.0f} us")
    learning, asking = densities()
    print(f"  a pause learned: {learning * 1e6:.0f} us, a hit density: {asking * 1e6:.1f} us")
    print(f"  memory: {memory():.0f} bytes per owner")
