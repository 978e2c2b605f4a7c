"""The modelled engine of `kvp simulate --engine-model` against vLLM's own scheduler, step by step on the same trace.

Every step takes one second in both, so that arrivals fall between the same steps. Compared are: who is scheduled in
which step for how many tokens, hits, preemptions, and the blocks that nobody holds.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Hashable
from dataclasses import dataclass, field
from math import inf
from typing import Any

import pytest
from vllm import __version__

from kvpolicy.request import Owner, Request
from kvpolicy.simulate.closed.demand import schedule_of
from kvpolicy.simulate.closed.loop import ClosedLoop
from kvpolicy.simulate.closed.models import EngineModel
from kvpolicy.simulate.closed.order import QUEUES
from kvpolicy.simulate.closed.tally import ClosedTally
from kvpolicy.simulate.trace import Answer, Call
from tests.engines.vllm.core.stepped import SIZE, Stepped

WRITTEN = 7  # the token that the stepped scheduler samples
Step = tuple[float, dict[str, int]]


@dataclass
class Turn:
    """One call as both sides see it. pause: after the turn before it ended; at: of a first one."""

    name: str
    tokens: list[int]
    output: int
    session: int
    at: float
    pause: float | None


@dataclass
class Seen:
    """What a side did. steps: (when, tokens by request); free: blocks that nobody holds when a step begins.

    doubled: when vLLM first made a second copy of a block that is resident, as it does where all blocks of a prompt are
    there and the last has to be computed again for its logits. The model has one copy, so from then on memory differs.
    short: when a request was first preempted. From 0.33 on, under priorities, one that preempts itself does not end its
    step, and the model does as 0.32 does.
    """

    steps: list[Step] = field(default_factory=list)
    free: dict[float, int] = field(default_factory=dict)
    hits: dict[str, int] = field(default_factory=dict)
    doubled: float = inf
    short: float = inf
    preempted: dict[str, int] = field(default_factory=dict)


def trace_of(seed: int, sessions: int, longest: int) -> list[Turn]:
    """Sessions with two shared heads, whose prompts grow by answers and results; some rewrite their history."""
    draw = random.Random(seed)
    turns = []
    for session in range(sessions):
        head = [11 + session % 2] * SIZE * draw.randint(0, 3)
        tokens = [*head, *_unlike(draw, 8 + draw.randrange(longest // 3))]
        at = round(draw.uniform(0, 60), 3)
        for index in range(draw.randint(1, 5)):
            if len(tokens) > longest - 40:
                break
            if len(tokens) % SIZE == 0:
                tokens.append(9)
            output = draw.randint(1, 36)
            pause = None if index == 0 else round(draw.choice((0.0, 0.5, 3.25, 20.3)), 3)
            turns.append(Turn(f"s{session}t{index}", list(tokens), output, session, at, pause))
            if draw.random() < 0.15 and len(tokens) > 3 * SIZE:
                tokens = [*tokens[: len(tokens) // 2 // SIZE * SIZE], *_unlike(draw, 20)]
            else:
                tokens = [*tokens, *[WRITTEN] * output, *_unlike(draw, draw.randint(1, 50))]
    return turns


def _unlike(draw: random.Random, count: int) -> list[int]:
    return [draw.randrange(20, 300) for _ in range(count)]


def names_of(tokens: list[int]) -> list[Hashable]:
    """Chained names of the full blocks."""
    names: list[Hashable] = []
    for start in range(0, len(tokens) - SIZE + 1, SIZE):
        names.append((names[-1] if names else None, tuple(tokens[start : start + SIZE])).__hash__())
    return names


def by_the_model(turns: list[Turn], blocks: int, chunk: int, seqs: int, queue: str = "fcfs") -> Seen:
    """The closed loop."""
    calls = [
        Call(
            Request(turn.name, Owner(session=str(turn.session)), len(turn.tokens), SIZE),
            names_of(turn.tokens),  # type: ignore[arg-type]
            turn.at,
            Answer(None, (), turn.output),
            pause=turn.pause,
        )
        for turn in turns
    ]
    model = EngineModel("second", 1.0, 0.0, 1e9, "a test", chunk=chunk, seqs=seqs)
    loop = ClosedLoop(schedule_of(calls), None, blocks, model, ClosedTally("lru", True, blocks), order=QUEUES[queue]())
    seen = Seen()
    engine = loop.engine
    at = 0.0
    schedule, go_on, survey = engine.schedule, engine.go_on, engine.pool.survey

    def surveyed(names: Any, count: int) -> Any:
        task = next(task for task in engine.waiting if task.demand.names is names)
        if task.tokens % SIZE == 0 and survey(names, count + 1)[0] > count:
            seen.doubled = min(seen.doubled, round(at, 6))
        return survey(names, count)

    def scheduled(now: float) -> Any:
        nonlocal at
        at = now
        seen.free[round(now, 6)] = engine.pool.available
        plan = schedule(now)
        if engine.changed:
            seen.short = min(seen.short, round(now, 6))
        for task in engine.admitted:
            seen.hits[task.id] = task.hits
        return plan

    def gone_on(plan: Any, steps: int, began: float) -> None:
        for step in range(steps):
            seen.steps.append((round(at + step, 6), {task.id: new for task, new in plan}))
        go_on(plan, steps, began)
        for task, _ in plan:
            seen.preempted[task.id] = task.preempted

    engine.schedule, engine.go_on = scheduled, gone_on  # type: ignore[method-assign]
    engine.pool.survey = surveyed  # type: ignore[method-assign]
    loop.run()
    return seen


def begins(turns: list[Turn]) -> dict[int, float]:
    """When each session begins."""
    return {turn.session: turn.at for turn in reversed(turns)}


def by_vllm(turns: list[Turn], blocks: int, chunk: int, seqs: int, queue: str = "fcfs") -> Seen:
    """vLLM's own scheduler, with arrivals and pauses as the loop has them."""
    engine = Stepped(
        "stock", blocks=blocks + 1, batched=chunk, max_seqs=seqs, policy="priority" if queue == "session" else "fcfs"
    )
    ages = {name: place for place, name in enumerate(sorted({t.session for t in turns}, key=begins(turns).__getitem__))}
    following: dict[str, Turn] = {}
    last: dict[int, str] = {}
    events: list[tuple[float, int, Turn]] = []
    for number, turn in enumerate(turns):
        if turn.session in last:
            following[last[turn.session]] = turn
        else:
            events.append((turn.at, number, turn))
        last[turn.session] = turn.name
    heapq.heapify(events)
    seen, now, tickets = Seen(), 0.0, len(turns)
    requests: dict[str, Any] = {}
    while events or engine.scheduler.requests:
        if not engine.scheduler.requests:
            now = max(now, events[0][0])
        while events and events[0][0] <= now:
            turn = heapq.heappop(events)[2]
            engine.add(turn.tokens, output=turn.output, name=turn.name, priority=ages[turn.session])
            requests[turn.name] = engine.scheduler.requests[turn.name]
        before = set(engine.scheduler.requests)
        seen.free[round(now, 6)] = engine.free
        planned = engine.step()
        seen.hits = {**engine.hits, **seen.hits}  # those of the first time; 0.33 tells a resumed request like a new one
        if not planned:
            continue  # everybody in it was preempted: nothing runs, no time passes
        seen.steps.append((round(now, 6), dict(planned)))
        now += 1.0
        for name in planned:
            if name in before and name not in engine.scheduler.requests and name in following:
                tickets += 1
                after = following[name]
                assert after.pause is not None
                heapq.heappush(events, (now + after.pause, tickets, after))
    seen.preempted = {name: request.num_preemptions for name, request in requests.items()}
    return seen


@pytest.mark.parametrize("queue", ["fcfs", "session"])
@pytest.mark.parametrize("seed", range(20))
def test_the_model_schedules_as_vllm_does(seed: int, queue: str) -> None:
    draw = random.Random(1000 + seed)
    blocks, chunk, seqs = draw.choice((16, 24, 40, 63)), draw.choice((64, 100, 512)), draw.choice((3, 8))
    turns = trace_of(seed, sessions=14, longest=blocks * SIZE - 60)
    model, vllm = by_the_model(turns, blocks, chunk, seqs, queue), by_vllm(turns, blocks, chunk, seqs, queue)
    until = model.doubled if queue == "fcfs" or __version__.startswith("0.32") else model.short
    for mine, theirs in zip(model.steps, vllm.steps, strict=False):
        if mine[0] >= until:
            return
        assert mine == theirs
    assert len(model.steps) == len(vllm.steps)
    assert model.hits == vllm.hits
    assert model.preempted == vllm.preempted
    looked = model.free.keys() & vllm.free.keys()
    assert {at: model.free[at] for at in looked} == {at: vllm.free[at] for at in looked}
    assert len(looked) > len(turns)


def test_the_traces_compared_have_what_the_comparison_is_about() -> None:
    seen = [by_the_model(trace_of(seed, 14, 16 * SIZE - 60), 16, 64, 8) for seed in range(6)]
    assert sum(sum(one.preempted.values()) for one in seen) > 20
    assert sum(1 for one in seen for hits in one.hits.values() if hits) > 60
    assert any(one.steps[n + 1][1] == one.steps[n][1] for one in seen for n in range(len(one.steps) - 1))


def test_a_prompt_that_is_all_there_is_computed_from_its_last_block_on() -> None:
    tokens = [*range(20, 20 + 4 * SIZE)]
    turns = [Turn("a", tokens, 3, 0, 0.0, None), Turn("b", tokens, 3, 1, 9.0, None)]
    model, vllm = by_the_model(turns, 40, 512, 8), by_vllm(turns, 40, 512, 8)
    assert model.hits == vllm.hits == {"a": 0, "b": 3 * SIZE}
    assert model.steps == vllm.steps
