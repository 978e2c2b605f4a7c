"""Decisions a second of one core: requests of chains as the proxy hands them over, and plans for documents.

    python tests/bench/service_plan.py [REQUESTS]

A decision is all that `Decisions.enter` does for a request of 20 messages whose places are known but for the newest:
reading it, its session, the plan, lowering it. Its end is counted apart, and so is the prefix doctor, for heads that
stay and for heads with a clock in line 1. The head is as long as an agent's is. Processor time of this process.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import orjson

from kvpolicy.service.decisions import Decisions
from kvpolicy.service.desk import Desk
from kvpolicy.service.doctor import Doctor
from kvpolicy.service.edge import stripped
from kvpolicy.service.exchange import DONE, Exchange
from tests.bench.conditions import processor
from tests.bench.service_sessions import CALL, SECRET, TENANT, made

TARGET = 1500
SESSIONS = 100
DOCUMENT = {
    "id": "r", "owner": {"session": "s1", "agent": "coder"}, "model": "m", "block_size": 16, "tokens": 2100,
    "spans": [{"kind": "system", "start": 0, "end": 100},
              *({"kind": "turn", "start": 100 * n, "end": 100 * n + 100} for n in range(1, 21))],
}  # fmt: skip


HEAD = "You are an agent that works on a repository of its own.\n" + "".join(
    f"{number}. Before step {number} of the work, look at what step {number - 1} left behind; say what is missing.\n"
    for number in range(1, 81)
)


def exchange(number: int, turns: int, head: str = HEAD) -> Exchange:
    """The next request of one of the sessions."""
    session = number % SESSIONS
    rows: list[dict[str, Any]] = [{"role": "system", "content": head}]
    for turn in range(turns):
        rows.append(
            {"role": "user" if turn % 2 == 0 else "assistant", "content": f"session {session} turn {turn} " * 20}
        )
    body = {"model": "m", "messages": rows}
    headers = {"x-session-id": f"s{session}"}
    return Exchange(f"p-{number}", "chat", TENANT, headers, body, 0.0, False, stripped(body))


async def decided(decisions: Decisions, requests: int) -> tuple[float, float]:
    """Processor seconds of the decisions, and of the answers' ends."""
    entering = leaving = 0.0
    for number in range(requests):
        asked = exchange(number, 20 + number // SESSIONS % 4)
        began = time.process_time()
        await decisions.enter(asked)
        entered = time.process_time()
        asked.upstream = "http://engine"
        answer = {
            "choices": [{"index": 0, "finish_reason": "tool_calls", "message": {"content": "", "tool_calls": [CALL]}}],
            "usage": {"prompt_tokens": 100, "completion_tokens": 5},
        }
        data = orjson.dumps(answer)
        left = time.process_time()
        decisions.chunk(asked, data)
        decisions.leave(asked, DONE)
        leaving += time.process_time() - left
        entering += entered - began
    return entering, leaving


async def doctored(requests: int, *, clock: bool) -> float:
    """Processor seconds of the prefix doctor."""
    decisions, doctor, spent = made(), Doctor(SECRET), 0.0
    for number in range(requests + SESSIONS):
        head = f"It is {number} o'clock. {HEAD}" if clock else HEAD
        asked = exchange(number, 20 + number // SESSIONS % 4, head)
        await decisions.enter(asked)
        began = time.process_time()
        await doctor.enter(asked)
        spent += (time.process_time() - began) * (number >= SESSIONS)
    return spent


def main(requests: int = 3000) -> None:
    decisions = made()
    asyncio.run(decided(decisions, SESSIONS))
    entering, leaving = asyncio.run(decided(decisions, requests))
    desk = Desk(decisions, lambda url, message, within: None)  # type: ignore[arg-type,return-value]

    async def documents() -> None:
        for _ in range(requests):
            orjson.dumps(await desk.plan(TENANT, {"request": DOCUMENT}))

    began = time.process_time()
    asyncio.run(documents())
    planning = time.process_time() - began
    print(f"{processor()}, load {os.getloadavg()[0]:.1f}")
    stays, changes = (asyncio.run(doctored(requests // 4, clock=clock)) / (requests // 4) for clock in (False, True))
    print(f"decisions for requests: {requests / entering:,.0f} a second of one core (target: {TARGET:,})")
    print(f"with the end of each answer: {requests / (entering + leaving):,.0f}")
    print(f"a decision takes {entering / requests * 1e3:.2f} ms; beside it, with a head of {len(HEAD):,} characters,")
    print(f"the prefix doctor {stays * 1e3:.2f} ms, {changes * 1e3:.2f} ms where the head is new each time")
    print(f"plans for documents, as /v1/plan answers them: {requests / planning:,.0f}")


if __name__ == "__main__":
    main(*(int(word) for word in sys.argv[1:]))
