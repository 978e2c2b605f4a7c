"""`kvp simulate --engine-model`, without the command line: contenders and capacities over one trace, each in its turn.

A process reads the trace once and plays its share of the runs. Results do not depend on the number of processes.
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
from kvpolicy.simulate.closed.continuum import ContinuumReleased
from kvpolicy.simulate.closed.demand import Schedule, schedule_of
from kvpolicy.simulate.closed.loop import ClosedLoop
from kvpolicy.simulate.closed.models import EngineModel
from kvpolicy.simulate.closed.order import QUEUES
from kvpolicy.simulate.closed.tally import ClosedTally
from kvpolicy.simulate.names import LRU, Contender
from kvpolicy.simulate.trace import Facts, Progress, Trace

RELEASED = "continuum-released"


@dataclass(frozen=True, slots=True)
class Engine:
    """The modelled machine: its model, the blocks below the GPU, and its queue (of `order.QUEUES`), which
    continuum-released has one of its own for."""

    model: EngineModel
    cpu_blocks: int = 0
    disk_blocks: int = 0
    queue: str = "fcfs"


@dataclass(frozen=True, slots=True)
class ClosedOutcome:
    """What came of it, in the order asked. stamped: calls whose pause contains the recorded server's time."""

    facts: Facts
    tallies: tuple[ClosedTally, ...]
    engine: Engine
    stamped: int


_Run = tuple[Contender, int]


def can_play(one: Contender) -> None:
    """Raises InputFault for a contender that only means something where requests take no time."""
    if one.kind not in (LRU, "policy"):
        raise InputFault(
            f"{one.name} does not go with --engine-model: it decides on a fixed order of requests, and here the order "
            "follows from what was found; leave the option out to compare with it"
        )


def play(
    schedule: Schedule, facts: Facts, one: Contender, capacity: int, engine: Engine, progress: Progress | None = None
) -> ClosedTally:
    """One run. Raises InputFault, PolicyFault."""
    released = one.name == RELEASED
    order = ContinuumReleased() if released else QUEUES[engine.queue]()
    loop = ClosedLoop(
        schedule,
        None if released else one.policy(),
        capacity,
        engine.model,
        ClosedTally(one.name, one.baseline, capacity),
        order=order,
        workflow=facts.workflow,
        cpu_blocks=engine.cpu_blocks,
        disk_blocks=engine.disk_blocks,
    )
    return loop.run(progress)


def compare(
    trace: Trace,
    contenders: Sequence[Contender],
    capacities: Sequence[Capacity],
    engine: Engine,
    unit: str = "blocks",
    jobs: int = 1,
    progress: Progress | None = None,
) -> ClosedOutcome:
    """Every contender at every capacity, in that order. unit: of capacities that carry none. Raises InputFault,
    PolicyFault."""
    for one in contenders:
        can_play(one)
        one.policy()  # a policy that does not compile is told before the trace is read
    facts = Facts()
    schedule = schedule_of(trace.calls(facts))
    size, unique = facts.block_size, facts.unique_blocks
    sizes = dict.fromkeys(in_blocks(c.number, c.unit or unit, size, unique) for c in capacities)
    runs = [(one, blocks) for blocks in sizes for one in contenders]
    if jobs > 1 and len(runs) > 1:
        tallies = _in_processes(schedule, facts, runs, engine, min(jobs, len(runs)), progress)
    else:
        tallies = []
        for number, (one, blocks) in enumerate(runs):
            tallies.append(play(schedule, facts, one, blocks, engine, _part(progress, number, len(runs))))
    return ClosedOutcome(facts, tuple(tallies), engine, schedule.stamped)


def _part(progress: Progress | None, number: int, of: int) -> Progress | None:
    return None if progress is None else lambda fraction: progress((number + fraction) / of)


# A pool's processes are handed things by their start only; forked ones inherit the schedule.
_Inherited = tuple[Schedule, Facts, list[_Run], Engine]
_inherited: _Inherited | None = None
_shown: list[float] = []


def _remember(inherited: _Inherited, shown: list[float]) -> None:
    global _inherited, _shown
    _inherited, _shown = inherited, shown
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is answered once, by the process that was called


def _process(number: int) -> ClosedTally | KvpError:
    def tell(fraction: float) -> None:
        _shown[number] = fraction

    assert _inherited is not None
    schedule, facts, runs, engine = _inherited
    try:
        return play(schedule, facts, *runs[number], engine, tell)
    except KvpError as fault:
        return InputFault(str(fault))


def _in_processes(
    schedule: Schedule, facts: Facts, runs: list[_Run], engine: Engine, jobs: int, progress: Progress | None
) -> list[ClosedTally]:
    context = multiprocessing.get_context("fork" if os.name == "posix" else "spawn")
    shown = context.Array("d", len(runs), lock=False)
    with context.Pool(jobs, _remember, ((schedule, facts, runs, engine), shown)) as pool:
        waiting = [pool.apply_async(_process, (number,)) for number in range(len(runs))]
        while not all(one.ready() for one in waiting):
            if progress is not None:
                progress(sum(shown) / len(runs))
            time.sleep(0.05)
        results = [one.get() for one in waiting]
    tallies = []
    for result in results:
        if isinstance(result, KvpError):
            raise result
        tallies.append(result)
    return tallies
