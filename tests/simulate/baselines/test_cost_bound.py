"""The cost-weighted bound: never below what the best choice saves (found by trying all), and close to MIN's hits where
all blocks cost the same."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvpolicy.request import Owner, Request
from kvpolicy.simulate.baselines.cost_bound import Costs, cost_bound, runs
from kvpolicy.simulate.oracle import History, belady_resident
from kvpolicy.simulate.trace import Call, Facts
from kvpolicy.simulate.workloads.catalogue import workload

PATHS = st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=3), min_size=1, max_size=7)
COSTS = Costs(compute_s=1.0, deeper_s=0.5, reload_s=0.4)


def history_of(paths: list[list[int]]) -> History:
    ids: dict[tuple[int, ...], int] = {}
    history = History()
    for path in paths:
        hashes = [ids.setdefault(tuple(path[: i + 1]), len(ids)) for i in range(len(path))]
        history.append(Call(Request("r", Owner(), 16 * len(hashes), 16), hashes, 0.0))
    return history


def best_of_all(history: History, gpu: int, cpu: int) -> float:
    """Every block between two uses on the GPU, below it, or nowhere: the most that fits."""
    single = [(a, b, place + i) for a, b, place, count in runs(history) for i in range(count)]
    best = 0.0
    for choice in itertools.product((0, 1, 2) if cpu else (0, 1), repeat=len(single)):
        saved = sum(
            COSTS.block(place) - (COSTS.reload_s if where == 2 else 0.0)
            for (_, _, place), where in zip(single, choice, strict=True)
            if where
        )
        if saved <= best:
            continue
        for call in range(len(history)):
            on = [where for (a, b, _), where in zip(single, choice, strict=True) if a < call < b]
            if on.count(1) > gpu - min(history.length(call), gpu) or on.count(2) > cpu:
                break
        else:
            best = saved
    return best


@settings(max_examples=60, deadline=None)
@given(PATHS, st.integers(1, 5), st.integers(0, 2))
def test_it_is_never_below_the_best_choice(paths: list[list[int]], gpu: int, cpu: int) -> None:
    history = history_of(paths)
    if sum(count for *_, count in runs(history)) > 8:
        return
    bound = cost_bound(history, gpu, cpu, COSTS, rounds=40)
    assert bound.saved_s >= best_of_all(history, gpu, cpu) - 1e-9
    assert bound.saved_s <= bound.infinite_s <= bound.all_s


@pytest.mark.parametrize(("name", "share"), [("kvflow-many", 0.3), ("tree-docmerge", 0.5), ("pr38514", 0.05)])
def test_with_equal_costs_it_is_close_to_min(name: str, share: float) -> None:
    history, facts = History(), Facts()
    numbers = {"workflows": 5.0, "rounds": 4.0, "sessions": 150.0, "searches": 2.0, "trunk": 5_000.0}
    made = workload(name)
    for call in workload(name, 7, {k: v for k, v in numbers.items() if k in made.settings}).calls(facts):
        history.append(call)
    blocks = int(share * facts.unique_blocks)
    hits = sum(belady_resident(history, blocks)[0])
    bound = cost_bound(history, blocks, 0, Costs(1.0, 0.0, 0.0), rounds=300)
    assert hits <= bound.saved_s + 1e-6
    assert bound.saved_s <= 1.06 * hits


def test_cpu_memory_saves_what_a_reload_is_cheaper() -> None:
    """Two prompts of two blocks in turns, with room for two: without CPU memory all is computed each time, with it
    everything is loaded."""
    history = history_of([[0, 0], [1, 1]] * 4)
    plain, with_cpu = cost_bound(history, 2, 0, COSTS), cost_bound(history, 2, 4, COSTS)
    assert plain.saved_s == pytest.approx(0.0, abs=0.6)
    assert with_cpu.saved_s == pytest.approx(6 * (1.0 + 1.5 - 2 * 0.4))
