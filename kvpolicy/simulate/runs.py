"""All runs of one process, fed call by call: each contender at each capacity, oracles at the end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING

from kvpolicy.simulate.baselines import BASELINES, FORESIGHT, RULES, Baseline, RadixCache, Rule
from kvpolicy.simulate.names import BELADY, Contender
from kvpolicy.simulate.oracle import History, belady, belady_resident
from kvpolicy.simulate.published import PREFILL_S
from kvpolicy.simulate.tally import Tally
from kvpolicy.simulate.trace import Call
from kvpolicy.workflow.gauges import CostModel

if TYPE_CHECKING:
    from kvpolicy.simulate.replay import Replay

HISTORY_LIMIT = 50_000_000  # block references that the oracles keep, 8 bytes each


@dataclass(frozen=True, slots=True)
class Run:
    """One contender at one capacity (blocks)."""

    contender: Contender
    capacity: int


class Runs:
    """The runs of one process over one trace. tallies: in the order of the runs; those of oracles and of what foresees
    are counted at the end."""

    def __init__(self, runs: list[Run], block_size: int, workflow: Mapping[str, object] | None = None) -> None:
        self.tallies = [Tally(run.contender.name, run.contender.baseline, run.capacity) for run in runs]
        self._feeds: list[Callable[[Call], None]] = []
        self._oracles: list[tuple[Run, Tally]] = []
        self._foresights: list[tuple[Run, Tally]] = []
        self._calls: list[Call] = []  # all of them, for those that know what comes
        self._references = 0
        self._replays: list[Replay] = []
        self._history = History()
        for run, tally in zip(runs, self.tallies, strict=True):
            if run.contender.kind == "oracle":
                self._oracles.append((run, tally))
            elif run.contender.kind == "foresight":
                self._foresights.append((run, tally))
            elif run.contender.kind == "object":
                self._feeds.append(_object_feed(BASELINES[run.contender.name](run.capacity), tally))
            elif run.contender.kind == "rule":
                self._feeds.append(_rule_feed(RULES[run.contender.name](run.capacity), tally))
            else:
                from kvpolicy.simulate.replay import Replay  # the whole engine: only where a run needs it

                replay = Replay(run.contender.policy(), run.capacity, block_size, tally, workflow)
                if run.contender.name == "continuum-paper":
                    replay.steering.measure(CostModel(prefill_tokens_per_s=1 / PREFILL_S))
                self._replays.append(replay)
                self._feeds.append(replay.feed)
        self._keeps_history = bool(self._oracles)
        self._keeps_calls = bool(self._foresights)

    def feed(self, call: Call) -> None:
        """One call to every run."""
        for feed in self._feeds:
            feed(call)
        if self._keeps_history:
            self._history.append(call)
            if self._history.references > HISTORY_LIMIT:
                self._keeps_history = False
                self._history = History()
        if self._keeps_calls:
            self._calls.append(call)
            self._references += len(call.hashes)
            if self._references > HISTORY_LIMIT:
                self._keeps_calls = False
                self._calls = []

    def end(self) -> list[Tally]:
        """The tallies, in the order of the runs. An oracle's is empty where the trace was too long to be kept."""
        for replay in self._replays:
            replay.end()
        if self._keeps_history:
            for run, tally in self._oracles:
                oracle = belady if run.contender.name == BELADY else belady_resident
                began = perf_counter()
                hits, tally.evictions = oracle(self._history, run.capacity)
                tally.wall_s = perf_counter() - began
                self._history.count(tally, hits)
        for run, tally in self._foresights if self._keeps_calls else ():
            cache = RadixCache(run.capacity, FORESIGHT[run.contender.name](self._calls), whole=False)
            feed = _rule_feed(cache, tally)
            for call in self._calls:
                feed(call)
        return self.tallies


def _rule_feed(cache: Rule, tally: Tally) -> Callable[[Call], None]:
    def feed(call: Call) -> None:
        began = perf_counter()
        hits = cache.serve(call)
        tally.wall_s += perf_counter() - began
        tally.evictions = cache.evictions
        tally.add(call, hits)

    return feed


def _object_feed(cache: Baseline, tally: Tally) -> Callable[[Call], None]:
    def feed(call: Call) -> None:
        began = perf_counter()
        hits = cache.use(call.hashes)
        tally.wall_s += perf_counter() - began
        tally.evictions = cache.evictions
        tally.add(call, hits)

    return feed
