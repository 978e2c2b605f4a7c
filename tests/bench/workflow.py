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
from kvpolicy.workflow.distance import measure
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


def distances() -> tuple[float, float, float, float]:
    """Seconds on 1,000 nodes: all distances at once; those after a step's end, median and 99 %; after its start."""
    graph = big_graph()
    position = Position(graph)
    position.steps("n999")
    whole = median(lambda: _timed(lambda: measure(position)))
    starts, ends = [], []
    for seed in range(4):
        chance, position = random.Random(seed), Position(graph)
        for _ in range(200):
            due = [name for name in graph.names if position.steps(name) == 1]
            node = chance.choice(due) if due else "n0"
            for change, seconds in ((position.start, starts), (position.end, ends)):
                begin = time.process_time()
                change(node)
                position.steps("n999")
                seconds.append(time.process_time() - begin)
    ends.sort()
    return whole, statistics.median(ends), ends[int(0.99 * len(ends))], statistics.median(starts)


def _timed(act: Callable[[], object]) -> float:
    begin = time.process_time()
    act()
    return time.process_time() - begin


def run_events(count: int = 20_000) -> float:
    """Seconds per event of runs in a graph: the starts and ends of steps of 500 runs on 20 nodes, a few late."""
    names = {f"n{i}": AGENT for i in range(20)}
    ring = [GraphEdge(f"n{i}", f"n{(i + 1) % 20}", is_loop=i == 19) for i in range(20)]
    graph = Graph(names, ring)
    state = RunState(PATTERNS, graph)
    for number in range(SESSIONS):
        state.know(Owner("t", f"s{number}"))
    rows = []
    for i in range(count):
        run, turn = i % SESSIONS, i // SESSIONS
        name = "step_end" if turn % 2 else "step_start"
        attributes = {"tenant": "t", "session": f"s{run}", "node": f"n{turn // 2 % 20}"}
        rows.append(Event(i * 0.001 - (1.0 if i % 50 == 0 else 0.0), name, attributes))
    begin = time.process_time()
    for row in rows:
        state.observe(row)
    return (time.process_time() - begin) / count


def ahead() -> tuple[float, float]:
    """Seconds for a next use in seconds, and for its chance, on 1,000 nodes, from the first of them: of a node eight
    steps away, behind which chances cost more than is spent on one node."""
    state = RunState(graph=big_graph())
    owner = Owner("t", "s", None, "n101")
    state.know(owner)
    for at in range(10):
        state.learned.times("t").stepped("n0", 5.0, float(at))
    state.observe(Event(10.0, "step_start", {"tenant": "t", "session": "s", "node": "n0"}))
    subject = Subject("turn", {"node": "n101"}, owner)
    assert state.read("next_use", None, subject) and state.read("reuse_probability", None, subject)
    return (
        median(lambda: _timed(lambda: state.read("next_use", None, subject))),
        median(lambda: _timed(lambda: state.read("reuse_probability", None, subject))),
    )


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
    for what, seconds in (("calls and results", median(events)), ("steps in a graph", median(run_events))):
        print(f"  event, {what}: {seconds * 1e6:.1f} us, {1 / seconds:,.0f} a second")
    print(f"  request (arrive, touched, answer): {median(requests) * 1e6:.1f} us")
    print(f"  look-up of an interval: {median(openings) * 1e6:.2f} us")
    whole, end, most, start = distances()
    print(f"  distances on 1,000 nodes: {whole * 1e3:.2f} ms")
    print(f"  … after a step's end {end * 1e3:.3f} ms (99 %: {most * 1e3:.3f} ms), its start {start * 1e3:.3f} ms")
    seconds, chance = ahead()
    print(f"  next use in seconds on 1,000 nodes: {seconds * 1e3:.2f} ms, its chance {chance * 1e3:.2f} ms")
    print(f"  a duration and five best holds: {median(holds) * 1e6:.0f} us")
    learning, asking = densities()
    print(f"  a pause learned: {learning * 1e6:.0f} us, a hit density: {asking * 1e6:.1f} us")
    print(f"  memory: {memory():.0f} bytes per owner")
