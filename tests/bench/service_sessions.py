"""Memory of live sessions in the gateway: 10,000 of them, each with a paused tool and a plan that is held.

    python tests/bench/service_sessions.py [SESSIONS] [MESSAGES]

Requests go through `Decisions` and the prefix doctor as the proxy hands them over, with an answer each; where
messages lie is made up. Prints what the process takes before and after, and per session.
"""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import orjson

from kvpolicy.adapter import find_adapter
from kvpolicy.service.config import PolicySection
from kvpolicy.service.decisions import Decisions
from kvpolicy.service.doctor import Doctor
from kvpolicy.service.edge import stripped
from kvpolicy.service.exchange import DONE, Exchange
from kvpolicy.service.holding import Holding
from kvpolicy.service.isolation import mint
from kvpolicy.service.meaning.offsets import Places
from kvpolicy.service.planning import Planning
from kvpolicy.service.policies import Policies
from kvpolicy.service.telling import Alone
from kvpolicy.service.tenants import Tenant
from kvpolicy.workflow.state import RunState
from tests.bench.conditions import processor

SECRET = b"s" * 32
LIMIT_MB = 500
TENANT = Tenant("t")
CALL = {"id": "c", "type": "function", "function": {"name": "grep", "arguments": "{}"}}


def made() -> Decisions:
    """Decisions over the packaged policy, with no engine behind."""
    state = RunState()
    planning = Planning(state, find_adapter("vllm"))
    live = Policies(PolicySection(), {}, lambda policy: state.watch(policy.intervals))
    holding = Holding(planning, lambda url, message: None)
    decisions = Decisions(
        live, planning, holding, Alone(state), lambda o, s: mint(SECRET, o, s), SECRET, time.monotonic
    )
    decisions.fetch = place
    return decisions


def place(conversation: Any, offsets: Any, found: Any) -> None:
    """Where units lie, as if an engine had been asked: 100 tokens each."""
    ends = tuple(100 * (number + 1) for number in range(len(conversation.units)))
    for unit, end in zip(conversation.units, ends, strict=True):
        offsets._keep(offsets._ends, (conversation.model, unit.digest), end)
    offsets._keep(offsets._totals, (conversation.model, conversation.units[-1].digest), ends[-1])
    found(Places(ends[-1], ends))


async def one(decisions: Decisions, doctor: Doctor, number: int, messages: int) -> None:
    """A session's request, and the answer that asks for a tool."""
    rows: list[dict[str, Any]] = [{"role": "system", "content": "You are an agent. " * 30}]
    for turn in range(messages):
        rows.append(
            {"role": "user" if turn % 2 == 0 else "assistant", "content": f"session {number} turn {turn} " * 20}
        )
    body = {"model": "m", "messages": rows}
    asked = Exchange(f"p-{number}", "chat", TENANT, {"x-session-id": f"s{number}"}, body, 0.0, False, stripped(body))
    await decisions.enter(asked)
    await doctor.enter(asked)
    asked.upstream = "http://engine"
    answer = {
        "choices": [{"index": 0, "finish_reason": "tool_calls", "message": {"content": "", "tool_calls": [CALL]}}],
        "usage": {"prompt_tokens": 100 * (messages + 1), "completion_tokens": 5},
    }
    decisions.chunk(asked, orjson.dumps(answer))
    decisions.leave(asked, DONE)
    asked.body, asked.sent, asked.headers = {}, {}, {}


def resident_mb() -> float:
    """What this process takes, MB."""
    with open("/proc/self/status", encoding="ascii") as status:
        return next(int(row.split()[1]) for row in status if row.startswith("VmRSS")) / 1024


def main(sessions: int = 10_000, messages: int = 20) -> None:
    decisions, doctor = made(), Doctor(SECRET)
    asyncio.run(one(decisions, doctor, sessions, messages))
    gc.collect()
    before = resident_mb()

    async def all_of_them() -> None:
        for number in range(sessions):
            await one(decisions, doctor, number, messages)

    asyncio.run(all_of_them())
    gc.collect()
    after = resident_mb()
    assert len(decisions.holding.plans) == sessions + 1
    assert decisions.state.phase(next(iter(decisions.holding.plans.all()))[0]) == "tool_pause"
    print(f"{processor()}, load {os.getloadavg()[0]:.1f}")
    print(
        f"{sessions:,} live sessions of {messages + 1} messages: {after:.0f} MB, {before:.0f} MB of it before; "
        f"{(after - before) * 1024 / sessions:.1f} KiB a session (target: {LIMIT_MB} MB)"
    )


if __name__ == "__main__":
    main(*(int(word) for word in sys.argv[1:]))
