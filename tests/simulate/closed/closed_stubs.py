"""Small traces and runs of the modelled engine, for its tests."""

from __future__ import annotations

import random
from typing import Any

from kvpolicy.policy.policy import Policy
from kvpolicy.request import Owner, Request, Span
from kvpolicy.simulate.closed.demand import Schedule, schedule_of
from kvpolicy.simulate.closed.engine import Engine
from kvpolicy.simulate.closed.loop import ClosedLoop
from kvpolicy.simulate.closed.models import EngineModel
from kvpolicy.simulate.closed.order import Fcfs
from kvpolicy.simulate.closed.tally import ClosedTally
from kvpolicy.simulate.trace import END_TURN, TOOL_USE, Answer, Call

SIZE = 16
MODEL = EngineModel("small", 0.02, 1e-4, 1e9, "a test", chunk=128, seqs=8)
# Of these every time that comes about is a multiple of 2**-13 s, so sums of them are exact in whatever order they are
# made; in the others it often happens that a call comes in the very instant in which a step ends.
EXACT = [
    EngineModel("a token takes time", 2**-6, 2**-13, 2**30, "a test", chunk=128, seqs=8),
    EngineModel("a step takes time", 2**-6, 0.0, 2**30, "a test", chunk=128, seqs=8),
    EngineModel("a step takes as long as its tokens", 0.0, 2**-6, 2**30, "a test", chunk=128, seqs=4),
]


def turn(
    session: str | None,
    tokens: int,
    output: int,
    at: float = 0.0,
    pause: float | None = None,
    ids: list[Any] | None = None,
    tool: str | None = "grep",
    name: str | None = None,
    branch: str | None = None,
    **more: Any,
) -> Call:
    """One call; ids: names of its full blocks, else those of its session's one long prompt."""
    owner = Owner(session=session, branch=branch)
    names = [f"{session}/{branch}/{n}" for n in range(tokens // SIZE)] if ids is None else ids
    answer = Answer(TOOL_USE if tool else END_TURN, (tool,) if tool else (), output)
    request = Request(
        name or f"{session}@{at}/{tokens}/{pause}/{branch}", owner, tokens, SIZE, (Span("turn", 0, tokens),)
    )
    return Call(request, names, at, answer, pause=pause, **more)


def sessions(
    seed: int,
    count: int = 12,
    turns: int = 6,
    per_s: float = 0.5,
    pauses: tuple[float, ...] = (0.0, 0.3, 2.0, 15.0),
    grid: float | None = None,
) -> list[Call]:
    """Agents whose prompts grow by what they wrote and what tools returned. The same seed gives the same calls. grid:
    sessions begin at multiples of so many seconds."""
    draw = random.Random(seed)
    calls, at = [], 0.0
    for number in range(count):
        after = draw.expovariate(per_s)
        at += after if grid is None else round(after / grid) * grid
        tokens, pause = draw.randint(40, 400), None
        for index in range(draw.randint(1, turns)):
            output = draw.randint(1, 60)
            tool = draw.choice(("grep", "pytest", None))
            calls.append(turn(f"s{number}", tokens, output, at, pause, tool=tool, name=f"s{number}t{index}"))
            tokens += output + draw.randint(1, 200)
            pause = draw.choice(pauses)
    return sorted(calls, key=lambda call: call.at)


def run(
    calls: list[Call] | Schedule,
    blocks: int,
    *,
    policy: Policy | None = None,
    model: EngineModel = MODEL,
    order: Fcfs | None = None,
    one_by_one: bool = False,
    **more: Any,
) -> tuple[ClosedTally, ClosedLoop]:
    """A run to its end, and the loop that made it. one_by_one: every step is taken by itself."""
    schedule = calls if isinstance(calls, Schedule) else schedule_of(calls)
    loop = ClosedLoop(schedule, policy, blocks, model, ClosedTally("p", False, blocks), order=order, **more)
    if one_by_one:
        loop.engine.steps_at_once = lambda plan, until, now: 1  # type: ignore[method-assign]
    return loop.run(), loop


def watch(loop: ClosedLoop, look: Any) -> None:
    """`look(engine, now)` after every scheduled step."""
    engine: Engine = loop.engine
    schedule = engine.schedule

    def scheduled(now: float) -> Any:
        plan = schedule(now)
        look(engine, now)
        return plan

    engine.schedule = scheduled  # type: ignore[method-assign]
