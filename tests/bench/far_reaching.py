"""How long others wait while an event that means very many owners is worked off, turn by turn.

    python tests/bench/far_reaching.py [OWNERS…]

Decisions as `kvp serve` has them, with its collector of cycles, and as many sessions under the policy `coding_agent`,
each with one prompt at an engine. Then a tool call of all, the end of what that protects, and the end of all sessions:
what follows an event is worked off in the turns that `beside.tick` takes between requests. Printed is the longest that
another task waits for its turn, by the clock and by the processor, and what of it the collector took. Every size in a
process of its own.
"""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from kvpolicy.language.load import packaged_text
from kvpolicy.service.beside import tick
from kvpolicy.service.collecting import in_small_parts
from kvpolicy.service.decisions import Decisions
from kvpolicy.service.outbox import Outbox
from kvpolicy.workflow.events import Event
from tests.bench.conditions import processor
from tests.service.test_caps import made
from tests.service.test_far_reaching import come

SIZES = (1_000, 10_000, 100_000)
TARGET_MS = 20.0


class Clock:
    """This machine's, and what it is put forward by."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.ahead


def filled(owners: int, clock: Clock) -> Decisions:
    """Decisions with so many sessions."""
    decisions = made(packaged_text("coding_agent") or "")
    decisions.clock = clock
    decisions.holding._send = lambda url, said: None
    come(decisions, owners)
    return decisions


def measure(owners: int) -> None:
    """One size, in this process."""
    clock, collected, began = Clock(), [0.0], [0.0]

    def collecting(phase: str, _: Mapping[str, int]) -> None:
        now = time.perf_counter()
        began[0], collected[0] = (now, collected[0]) if phase == "start" else (0.0, collected[0] + now - began[0])

    def turn(work: Callable[[], Any]) -> tuple[float, float, float]:
        """Milliseconds by the clock, by the processor, and of the collector."""
        collected[0], cpu, at = 0.0, time.process_time(), time.perf_counter()
        work()
        return 1e3 * (time.perf_counter() - at), 1e3 * (time.process_time() - cpu), 1e3 * collected[0]

    async def steps() -> None:
        ticking = asyncio.ensure_future(tick(holding, outbox, clock))
        for name, step in (
            ("a tool call", told("tool_call", tool="grep")),
            ("600 s later", later),
            ("the end", told("session_end")),
        ):
            rows, began = [turn(step)], time.monotonic()
            holding.sooner.set()
            at, cpu, collected[0] = time.perf_counter(), time.process_time(), 0.0
            while state.is_behind or (holding._due and holding._due[0][0] <= clock()):
                await asyncio.sleep(0)
                now, used = time.perf_counter(), time.process_time()
                rows.append((1e3 * (now - at), 1e3 * (used - cpu), 1e3 * collected[0]))
                at, cpu, collected[0] = now, used, 0.0
            wall, _, collector = max(rows)
            cpu = max(row[1] for row in rows)
            print(
                f"{owners:>8,} {name:12} {time.monotonic() - began:6.1f} s; its own step {rows[0][0]:5.1f} ms, the "
                f"longest wait {wall:6.1f} ms (collector {collector:6.1f}), by the processor {cpu:6.1f} ms; "
                f"{sum(row[0] > TARGET_MS for row in rows)} over {TARGET_MS:g} ms",
                flush=True,
            )
        ticking.cancel()

    def told(name: str, **fields: str) -> Callable[[], Any]:
        return lambda: state.observe(Event(clock(), name, {"tenant": "t", **fields}))

    def later() -> None:
        clock.ahead += 600.0

    with in_small_parts():
        decisions = filled(owners, clock)
        holding, state = decisions.holding, decisions.state
        outbox = Outbox(lambda url, message: None, lambda url: True)
        gc.callbacks.append(collecting)
        asyncio.run(steps())
        gc.callbacks.remove(collecting)


def main() -> None:
    if sys.argv[1:2] == ["--one"]:
        measure(int(sys.argv[2]))
        return
    print(processor())
    for size in [int(word) for word in sys.argv[1:]] or SIZES:
        subprocess.run([sys.executable, __file__, "--one", str(size)], check=True)


if __name__ == "__main__":
    main()
