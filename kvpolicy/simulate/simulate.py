"""`kvp simulate`, without the command line: contenders and capacities over one trace, read once per process.

The trace is streamed once through all runs of a process; with several processes each streams it for its own share of
the runs. Results do not depend on the number of processes.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass

from kvpolicy.faults import InputFault, KvpError
from kvpolicy.simulate.capacity import Capacity, in_blocks
from kvpolicy.simulate.names import BELADY_RESIDENT, LRU, Contender, contender
from kvpolicy.simulate.runs import HISTORY_LIMIT, Run, Runs
from kvpolicy.simulate.tally import Tally
from kvpolicy.simulate.trace import Facts, Progress, Trace


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of it. references: tallies of `lru` and `belady-resident` per capacity, asked for or not."""

    facts: Facts
    tallies: tuple[Tally, ...]
    references: dict[tuple[str, int], Tally]

    def _repr_html_(self) -> str:
        """For notebooks."""
        from kvpolicy.notebook import report

        return report(self.facts, self.tallies, self.gap_closed)

    def gap_closed(self, tally: Tally) -> float | None:
        """(policy - lru) / (belady-resident - lru) at the tally's capacity; None where there is no gap, or no bound."""
        lru = self.references.get((LRU, tally.capacity_blocks))
        bound = self.references.get((BELADY_RESIDENT, tally.capacity_blocks))
        if lru is None or bound is None or lru.block_hits == bound.block_hits:
            return None
        return (tally.block_hits - lru.block_hits) / (bound.block_hits - lru.block_hits)


def simulate(
    trace: Trace,
    contenders: Sequence[Contender],
    capacities: Sequence[Capacity],
    unit: str = "blocks",
    jobs: int = 1,
    progress: Progress | None = None,
) -> Outcome:
    """Every contender at every capacity, in that order. unit: of capacities that carry none. Raises InputFault,
    PolicyFault."""
    for one in contenders:
        one.policy()  # a policy that does not compile is told before the trace is read
    units = [capacity.unit or unit for capacity in capacities]
    block_size, unique = _measure(trace, whole="percent" in units)
    written = zip(capacities, units, strict=True)
    sizes = list(dict.fromkeys(in_blocks(capacity.number, its, block_size, unique) for capacity, its in written))
    asked = [Run(one, size) for size in sizes for one in contenders]
    silent = [Run(contender(name), size) for size in sizes for name in (LRU, BELADY_RESIDENT)]
    runs = list(dict.fromkeys([*asked, *silent]))
    parts = _shares(runs, jobs)
    results = _in_processes(trace, parts, progress) if len(parts) > 1 else [_part(trace, parts[0], progress)]
    facts = results[0][0]
    done = {
        run: tally
        for part, (_, tallies) in zip(parts, results, strict=True)
        for run, tally in zip(part, tallies, strict=True)
    }
    references = {(r.contender.name, r.capacity): done[r] for r in silent if done[r].block_refs}
    missing = [run for run in asked if run.contender.kind in ("oracle", "foresight") and not done[run].block_refs]
    if missing:
        raise InputFault(
            f"{trace.name}: {missing[0].contender.name} has to know the whole trace, and takes at most "
            f"{HISTORY_LIMIT:,} block references"
        )
    return Outcome(facts, tuple(done[run] for run in asked), references)


def _measure(trace: Trace, *, whole: bool) -> tuple[int, int]:
    """(block size, unique blocks); `whole`: the trace is read to its end, which the latter takes."""
    facts = Facts()
    for _ in trace.calls(facts):
        if not whole:
            break
    return facts.block_size, facts.unique_blocks


_EFFORT = {"oracle": 0.1, "object": 1.0, "rule": 4.0, "foresight": 4.0, LRU: 1.0, "policy": 6.0}


def _shares(runs: list[Run], jobs: int) -> list[list[Run]]:
    """The runs dealt out to at most `jobs` processes, the dearest first."""
    shares: list[list[Run]] = [[] for _ in range(max(1, min(jobs, len(runs))))]
    load = [0.0] * len(shares)
    for run in sorted(runs, key=lambda run: -_EFFORT[run.contender.kind]):
        least = load.index(min(load))
        shares[least].append(run)
        load[least] += _EFFORT[run.contender.kind]
    return [share for share in shares if share]


def _part(trace: Trace, runs: list[Run], progress: Progress | None) -> tuple[Facts, list[Tally]]:
    facts = Facts()
    calls = trace.calls(facts, progress)
    first = next(calls)
    live = Runs(runs, first.request.block_size, facts.workflow)
    live.feed(first)
    for call in calls:
        live.feed(call)
    return facts, live.end()


def _in_processes(trace: Trace, parts: list[list[Run]], progress: Progress | None) -> list[tuple[Facts, list[Tally]]]:
    """One process a part; a fault in one ends all."""
    context = multiprocessing.get_context("fork" if os.name == "posix" else "spawn")
    shown = context.Array("d", len(parts), lock=False)
    with context.Pool(len(parts), _remember, (shown,)) as pool:
        waiting = [pool.apply_async(_process, (trace, part, index)) for index, part in enumerate(parts)]
        pool.close()
        while not all(one.ready() for one in waiting):
            for one in waiting:
                if one.ready():
                    _unwrap(one.get())
            if progress is not None:
                progress(sum(shown) / len(parts))
            time.sleep(0.05)
        return [_unwrap(one.get()) for one in waiting]


_Result = tuple[Facts, list[Tally]]
_shown: list[float] = []


def _remember(shown: list[float]) -> None:
    global _shown  # noqa: PLW0603 - a pool's processes share the array by their start only
    _shown = shown
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is answered once, by the process that was called


def _process(trace: Trace, runs: list[Run], index: int) -> _Result | KvpError:
    def tell(fraction: float) -> None:
        _shown[index] = fraction

    try:
        return _part(trace, runs, tell)
    except KvpError as fault:
        return InputFault(str(fault))


def _unwrap(result: _Result | KvpError) -> _Result:
    if isinstance(result, KvpError):
        raise result
    return result
