"""What a bench is made of: cells, each one contender on one trace at one size under one kind of hints.

A row of results has totals of blocks and tokens, and for policies the hits by session, so that two contenders can be
compared session by session. Read by `bench_run`; written rows are read by `bench_arithmetic`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import lru_cache
from itertools import chain
from time import perf_counter
from typing import Any

from kvpolicy.faults import InputFault
from kvpolicy.request import Owner
from kvpolicy.simulate.bench_hints import memory, told
from kvpolicy.simulate.bench_mixed import MIXED, contender_of, mixed
from kvpolicy.simulate.interleaving import Interleaving
from kvpolicy.simulate.library import find
from kvpolicy.simulate.names import LRU, Contender, contender
from kvpolicy.simulate.replay import Replay
from kvpolicy.simulate.runs import Run, Runs
from kvpolicy.simulate.tally import Tally
from kvpolicy.simulate.trace import Call, Facts, Trace

Row = dict[str, object]


@dataclass(frozen=True, slots=True)
class Cell:
    """One measurement. percent: of the trace's unique blocks. prior: the part of the sessions whose pauses are known
    from the beginning. seed: of the interleaving; for traces that have their own order it changes nothing."""

    trace: str
    seed: int
    policy: str
    percent: float
    coarsen: int = 1
    sample: int | None = None
    part: str | None = None
    hints: str = "true"
    prior: str | None = None

    def key(self) -> str:
        """What tells it from all others."""
        return "|".join(f"{name}={value}" for name, value in asdict(self).items())


def measure(cell: Cell) -> Row:
    """The cell's row. Raises InputFault for what cannot be read."""
    trace, unique, block_size = _trace(cell)
    one = contender_of(cell.policy)
    capacity = int(unique * cell.percent / 100)
    if capacity < 1:
        raise InputFault(f"{cell.trace}: {cell.percent:g} % of {unique} blocks is less than one; ask for more")
    by_session: dict[str, list[int]] = {}
    began = perf_counter()
    facts = Facts()
    if one.kind == LRU or (one.kind == "policy" and not one.baseline):
        tally = Tally(one.name, one.baseline, capacity)
        _replay(cell, one, block_size, tally, trace, facts, by_session)
    else:
        if cell.hints != "true" or cell.prior is not None:
            raise InputFault(f"{cell.policy}: hints and priors are for policies, this is a baseline of its own")
        calls = trace.calls(facts)
        first = next(calls)
        runs = Runs([Run(one, capacity)], block_size, facts.workflow)
        for call in chain([first], calls):
            runs.feed(call)
        tally = runs.end()[0]
    row = tally.as_json(10.0, None)
    row.pop("gap_closed")
    return {
        "key": cell.key(),
        **{name: value for name, value in asdict(cell).items() if name != "policy"},
        **row,
        "requests": facts.requests,
        "unique_blocks": facts.unique_blocks,
        "block_size": facts.block_size,
        "trace_sha256": facts.sha256,
        "seconds": round(perf_counter() - began, 2),
        "by_session": by_session,
    }


def _replay(
    cell: Cell,
    one: Contender,
    block_size: int,
    tally: Tally,
    trace: Trace,
    facts: Facts,
    by_session: dict[str, list[int]],
) -> None:
    calls = trace.calls(facts)
    first = next(calls)
    replay = Replay(one.policy(), tally.capacity_blocks, block_size, tally, facts.workflow)
    learned = replay.steering.state.learned
    if cell.prior is not None:
        learned.begin_with(_learned(cell.trace, cell.coarsen, cell.prior, cell.policy))
    wrong = memory(cell.hints, learned.pauses.fresh, cell.seed)
    if wrong is not None:
        wrong.wanted = learned.pauses.wanted
        learned.pauses = wrong
    for call in _told(chain([first], calls), cell.hints):
        before = tally.block_hits, tally.recomputed_tokens
        replay.feed(call)
        sums = by_session.setdefault(call.request.owner.session or call.request.id, [0, 0, 0])
        sums[0] += len(call.hashes)
        sums[1] += tally.block_hits - before[0]
        sums[2] += tally.recomputed_tokens - before[1]
    replay.end()


def _told(calls: Iterator[Call], hints: str) -> Iterator[Call]:
    return (told(call, hints) for call in calls)


def _trace(cell: Cell) -> tuple[Trace, int, int]:
    """(the trace, its unique blocks, tokens of a block)."""
    how = Interleaving(seed=cell.seed, coarsen=cell.coarsen, sample=cell.sample, part=cell.part)
    return _named(cell.trace, how), *_size(cell.trace, how)


@lru_cache(maxsize=2)
def _learned(name: str, coarsen: int, part: str, policy: str) -> dict[str, Any]:
    """What a server has learned that has served these sessions, and no others."""
    how = Interleaving(seed=1, coarsen=coarsen, part=part)
    replay: Replay | None = None
    for call in find(name, how, how.seed)[0].calls(Facts()):
        if replay is None:
            replay = Replay(contender(policy).policy(), 1, call.request.block_size, Tally(policy, False, 1), None)
        replay.feed(call)
    assert replay is not None  # a trace without a call is refused by its reader
    learned = replay.steering.state.learned
    return learned.export(next(iter(learned.tenants()), Owner().tenant))


def _named(name: str, how: Interleaving) -> Trace:
    return mixed(how.seed) if name == MIXED else find(name, how, how.seed)[0]


@lru_cache(maxsize=8)
def _size(name: str, how: Interleaving) -> tuple[int, int]:
    facts = Facts()
    for _ in _named(name, how).calls(facts):
        pass
    return facts.unique_blocks, facts.block_size
