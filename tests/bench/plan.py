"""How long one plan takes: 100k tokens, 40 spans, rules looked up rather than resolved, then the packaged policy.

Run it by hand: `python tests/bench/plan.py`. Prints medians of 9 rounds with the conditions they were measured under.
"""

from __future__ import annotations

import gc
import statistics
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import conditions

from kvpolicy.directive import Retention, Ttl, Verdict
from kvpolicy.faults import InputFault
from kvpolicy.plan import plan
from kvpolicy.policy.model import State, Subject
from kvpolicy.request import Owner, Request, Span

ROUNDS, PLANS = 9, 200
_PATTERN = ("turn", "scratchpad", "turn", "tool_result")


def request() -> Request:
    """A coding agent's request: head, then turns, reasoning and tool results; 40 spans, 100,000 tokens."""
    spans = [Span("system", 0, 6_000), Span("tools", 6_000, 18_000)]
    step = (100_000 - 18_000) // 37
    for i in range(37):
        start = 18_000 + i * step
        kind = _PATTERN[i % 4]
        own: dict[str, object] = {"tool": "grep"} if kind == "tool_result" else {}
        spans.append(Span(kind, start, 100_000 if i == 36 else start + step, own))
    spans.append(Span("output", 100_000, None))
    return Request("r", Owner("t", "s", None, "coder"), 100_000, 16, tuple(spans), "m", {"turn": 12, "plan": "free"})


class Remembered:
    """A policy whose answers are at hand: what is left is the cost of planning itself."""

    def __init__(self) -> None:
        held = Verdict("retention", Retention("hold", 30.0), "wait", 100.0, 3700.0)
        self.answers: dict[str, Mapping[str, Verdict]] = {
            "system": {"priority": Verdict("priority", 90, "head")},
            "tools": {"priority": Verdict("priority", 90, "head")},
            "turn": {"priority": Verdict("priority", 60, "turns"), "ttl": Verdict("ttl", Ttl(300.0), "turns")},
            "tool_result": {"priority": Verdict("priority", 50, "results"), "retention": held},
            "scratchpad": {"retention": Verdict("retention", Retention("drop"), "thoughts")},
        }

    def resolve(self, subject: Subject, state: State) -> Mapping[str, Verdict]:
        return self.answers.get(subject.kind, {})

    def steps(self, subject: Subject, state: State) -> tuple[float, ...]:
        return ()


def microseconds(policy: Any, state: Any) -> str:
    """Median over the rounds of the mean time of one plan: by the clock, and of the processor alone."""
    asked = request()
    plan(policy, asked, state, 101.0)
    rounds, worked = [], []
    gc.disable()
    for _ in range(ROUNDS):
        begin, started = time.perf_counter(), time.process_time()
        for _ in range(PLANS):
            plan(policy, asked, state, 101.0)
        rounds.append((time.perf_counter() - begin) / PLANS * 1e6)
        worked.append((time.process_time() - started) / PLANS * 1e6)
    gc.enable()
    return f"{statistics.median(rounds):8.1f} µs (processor {statistics.median(worked):.1f} µs)"


def main() -> None:
    """Print one line a policy."""
    conditions.main()
    print(f"plan: 40 spans, 100,000 tokens; median of {ROUNDS} rounds of {PLANS} plans")
    print(f"  answers at hand     {microseconds(Remembered(), SimpleNamespace(now=101.0))}")
    name = sys.argv[1] if len(sys.argv) > 1 else "coding_agent"
    try:
        from kvpolicy.language.load import load
        from kvpolicy.policy.compile import compile as compile_policy
        from kvpolicy.workflow.events import Event
        from kvpolicy.workflow.state import RunState

        target = Path(name) if Path(name).exists() else name
        files = load([target]).files
        assert files is not None, f"{name} does not load"
        policy = compile_policy(files)
    except (ImportError, InputFault) as fault:
        print(f"  {name}: not measured ({fault})")
        return
    print(f"  {name:<18}  {microseconds(policy, RunState(policy.intervals))}")
    paused = RunState(policy.intervals)
    paused.arrive(request(), 99.0)
    paused.observe(Event(100.0, "tool_call", {"tool": "grep", "call": "c1", "session": "s"}))
    print(f"  … in a tool's pause {microseconds(policy, paused)}")


if __name__ == "__main__":
    main()
