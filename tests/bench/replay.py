"""Plain replay of real agent traffic: block references a second under lru, and what a policy costs beside it.

`python tests/bench/replay.py`. Parsing is excluded: the calls are read first. Medians of 9; the ratio is the median of
the ratios of 9 pairs, each pair measured back to back. One core, wall time; the processor's time is printed beside it.
"""

from __future__ import annotations

import gc
import statistics
import time

from kvpolicy.faults import InputFault
from kvpolicy.policy.policy import Policy
from kvpolicy.simulate.library import find
from kvpolicy.simulate.names import contender
from kvpolicy.simulate.replay import Replay
from kvpolicy.simulate.sessions import Interleaving
from kvpolicy.simulate.tally import Tally
from kvpolicy.simulate.trace import Call, Facts

ROUNDS = 9
TRACE, BLOCKS = "claude-code", 2_526  # 5 % of its unique blocks


def replay(calls: list[Call], policy: Policy | None) -> tuple[float, float]:
    """(wall seconds, processor seconds) of one replay from an empty pool."""
    one = Replay(policy, BLOCKS, calls[0].request.block_size, Tally("bench", False, BLOCKS))
    gc.collect()
    wall, processor = time.perf_counter(), time.process_time()
    for call in calls:
        one.feed(call)
    return time.perf_counter() - wall, time.process_time() - processor


def main() -> None:
    """Print the figures."""
    trace, told = find(TRACE, Interleaving())
    facts = Facts()
    calls = list(trace.calls(facts))
    print(f"  {TRACE}: {facts.block_refs:,} references, {facts.requests:,} requests, pool of {BLOCKS:,} blocks")
    if told is not None:
        print(f"  {told}")
    plain = [replay(calls, None) for _ in range(ROUNDS)]
    wall, processor = (statistics.median(times) for times in zip(*plain, strict=True))
    print(
        f"  lru: {facts.block_refs / wall / 1e6:.2f} M references/s by wall time ({wall:.3f} s, {min(plain)[0]:.3f} to "
        f"{max(plain)[0]:.3f}), {facts.block_refs / processor / 1e6:.2f} M/s by processor time"
    )
    try:
        policy = contender("coding_agent").policy()
    except InputFault as fault:
        print(f"  coding_agent: skipped, {fault}")
        return
    pairs = [(replay(calls, None)[1], replay(calls, policy)[1]) for _ in range(ROUNDS)]
    ratios = [other / own for own, other in pairs]
    took = statistics.median(other for _, other in pairs)
    print(
        f"  coding_agent: {statistics.median(ratios):.1f} times the time of lru (pairs {min(ratios):.1f} to "
        f"{max(ratios):.1f}, processor time), {1e6 * took / len(calls):.0f} us a request"
    )


if __name__ == "__main__":
    main()
