"""Plain replay of real agent traffic: block references a second under lru, and what a policy costs beside it.

`python tests/bench/replay.py`. Parsing is excluded: the calls are read first. Medians of 9; the ratio is the median of
the ratios of 9 pairs, each pair measured back to back. One core, wall time; the processor's time is printed beside it.
A policy whose rules reach no span of the trace shows what any policy costs: the state of runs, plans, and claims of the
default rank.
Beside it stands what a user of the command line sees: `kvp simulate` as a whole, with start, reading of the trace and
the two runs that every report refers to (lru and belady-resident), in 3 pairs.
"""

from __future__ import annotations

import gc
import os
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from types import FrameType
from typing import Any

from kvpolicy.faults import InputFault
from kvpolicy.policy.policy import Policy
from kvpolicy.simulate.interleaving import Interleaving
from kvpolicy.simulate.library import find
from kvpolicy.simulate.names import Contender, contender
from kvpolicy.simulate.replay import Replay
from kvpolicy.simulate.tally import Tally
from kvpolicy.simulate.trace import Call, Facts

ROUNDS, WHOLE_ROUNDS = 9, 3
WARM, COUNTED = 1_700, 500  # requests before bytecodes are counted, and while they are
TraceFunction = Callable[[FrameType, str, object], Any]
TRACE, BLOCKS = "claude-code", 2_526  # 5 % of its unique blocks
NOTHING = 'policy nothing "Reaches no span." scratchpad { priority: 40 }'


def replay(calls: list[Call], policy: Policy | None) -> tuple[float, float]:
    """(wall seconds, processor seconds) of one replay from an empty pool."""
    one = Replay(policy, BLOCKS, calls[0].request.block_size, Tally("bench", False, BLOCKS))
    gc.collect()
    wall, processor = time.perf_counter(), time.process_time()
    for call in calls:
        one.feed(call)
    return time.perf_counter() - wall, time.process_time() - processor


def bytecodes(calls: list[Call], policy: Policy | None) -> dict[str, int]:
    """Bytecodes run a request, by package of the code: the same on every machine, however busy."""
    one = Replay(policy, BLOCKS, calls[0].request.block_size, Tally("bench", False, BLOCKS))
    first, counted = calls[:WARM], calls[WARM : WARM + COUNTED]
    found: Counter[str] = Counter()

    def step(frame: FrameType, event: str, _: object) -> TraceFunction:
        frame.f_trace_opcodes = True
        if event == "opcode":
            found[frame.f_globals["__name__"]] += 1
        return step

    for call in first:
        one.feed(call)
    sys.settrace(step)
    for call in counted:
        one.feed(call)
    sys.settrace(None)
    packages: Counter[str] = Counter()
    for module, count in found.items():
        packages[module.split(".")[1] if module.startswith("kvpolicy.") else "other"] += count
    return {name: count // len(counted) for name, count in packages.most_common()}


def command(policy: str) -> float:
    """Processor seconds of one whole `kvp simulate`."""
    began = os.times()
    words = ["simulate", TRACE, "--policy", policy, "--capacity", str(BLOCKS), "--jobs", "1"]
    subprocess.run([sys.executable, "-m", "kvpolicy", *words], check=True, stdout=subprocess.DEVNULL)
    ended = os.times()
    return ended.children_user + ended.children_system - began.children_user - began.children_system


def compare(name: str, calls: list[Call], policy: Policy | None) -> None:
    """Print how much longer a replay takes under a policy than under lru."""
    pairs = [(replay(calls, None)[1], replay(calls, policy)[1]) for _ in range(ROUNDS)]
    ratios = [other / own for own, other in pairs]
    took = statistics.median(other for _, other in pairs)
    print(
        f"  {name}, replay alone: {statistics.median(ratios):.1f} times the time of lru (pairs {min(ratios):.1f} "
        f"to {max(ratios):.1f}, processor time), {1e6 * took / len(calls):.0f} us a request"
    )
    for each, rules in (("lru", None), (name, policy)):
        parts = bytecodes(calls, rules)
        told = ", ".join(f"{part} {count:,}" for part, count in parts.items())
        print(f"    bytecodes a request, {each}: {sum(parts.values()):,} ({told})")


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
    compare("coding_agent", calls, policy)
    compare("no rule that applies", calls, Contender("nothing", "policy", False, text=NOTHING).policy())
    whole = [(command("lru"), command("coding_agent")) for _ in range(WHOLE_ROUNDS)]
    print(
        "  coding_agent, whole `kvp simulate` (trace reading, lru and belady-resident in both): "
        f"{statistics.median(other / own for own, other in whole):.1f} times lru's, "
        f"{statistics.median(own for own, _ in whole):.2f} s and {statistics.median(other for _, other in whole):.2f} s"
    )


if __name__ == "__main__":
    main()
