"""What one event costs, end to end: plan, claims and ranks of a session of 50 spans, with 500 and with 50,000 blocks.

`python tests/bench/steering.py [POLICY]`, the packaged coding_agent by default. A tool's call and its result take
turns, so every event opens or closes an interval, and the whole session is planned and ranked anew. Medians of 9
rounds of 200 events. `pool.py` has the pool's part of it alone.
"""

from __future__ import annotations

import gc
import statistics
import sys
import time

import conditions

from kvpolicy.policy.policy import Policy
from kvpolicy.pool import Pool
from kvpolicy.request import Owner, Request, Span
from kvpolicy.simulate.names import contender
from kvpolicy.steering import Steering
from kvpolicy.workflow.events import Event

ROUNDS, EVENTS, SPANS, BLOCK = 9, 200, 50, 16
_PATTERN = ("turn", "scratchpad", "turn", "tool_result")


def session(policy: Policy, blocks: int) -> Steering:
    """A steering whose only session has `blocks` blocks in 50 spans and waits for a tool; a pool half full."""
    steering = Steering(policy, Pool(2 * blocks + 100, block_size=BLOCK), budget=1.0)
    each = blocks // SPANS * BLOCK
    kinds = ["system", "tools", *(_PATTERN[i % 4] for i in range(SPANS - 2))]
    spans = tuple(Span(kind, i * each, (i + 1) * each) for i, kind in enumerate(kinds))
    request = Request("r", Owner(session="s"), SPANS * each, BLOCK, spans, "m")
    outcome = steering.request(request, list(range(blocks)), 1.0)
    assert len(outcome.stored) == blocks
    steering.finish("r", 1.0, tool_calls=[("grep", "c0")])
    return steering


def rounds(policy: Policy, blocks: int) -> tuple[float, float]:
    """(median microseconds of one event by the clock, of the processor's time)."""
    steering, now, call = session(policy, blocks), 2.0, 0
    before = steering.counters["replans"]
    walls, worked = [], []
    gc.collect()
    gc.disable()
    for _ in range(ROUNDS):
        wall, processor = time.perf_counter(), time.process_time()
        for _ in range(EVENTS // 2):
            result = Event(now, "tool_result", {"session": "s", "call": f"c{call}"})
            steering.event(result, now)
            call += 1
            steering.event(Event(now + 0.5, "tool_call", {"session": "s", "call": f"c{call}"}), now + 0.5)
            now += 1.0
        walls.append((time.perf_counter() - wall) / EVENTS * 1e6)
        worked.append((time.process_time() - processor) / EVENTS * 1e6)
    gc.enable()
    assert steering.counters["failures"] == 0
    assert steering.counters["replans"] - before >= ROUNDS * EVENTS, "an event was not planned for"
    return statistics.median(walls), statistics.median(worked)


def main() -> None:
    """Print one line a size."""
    conditions.main()
    name = sys.argv[1] if len(sys.argv) > 1 else "coding_agent"
    policy = contender(name).policy()
    assert policy is not None
    print(f"steering: one event of a session of {SPANS} spans under {name}, plan and claims and ranks")
    for blocks in (500, 50_000):
        wall, worked = rounds(policy, blocks)
        print(f"  {blocks:>6,} blocks  {wall:8.1f} µs (processor {worked:.1f} µs)")


if __name__ == "__main__":
    main()
