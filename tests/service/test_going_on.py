"""Whatever one caller asks at length, others' requests go on meanwhile: it is done in steps, in bounds, or in a thread.

Counted in turns of the event loop, never in time: a coroutine beside the call counts how often it had its turn.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from itertools import count, pairwise
from typing import Any

import orjson
import pytest

from kvpolicy.faults import InputFault
from kvpolicy.service import beside
from kvpolicy.service import desk as desk_module
from kvpolicy.service import holding as holding_module
from kvpolicy.service import workflows as workflows_module
from kvpolicy.service.decisions import Decisions
from kvpolicy.service.desk import Desk
from kvpolicy.service.doctor import Doctor
from kvpolicy.service.exchange import Exchange
from kvpolicy.service.meaning.annotations import MOST_EVENTS, TOO_MANY
from kvpolicy.service.meaning.body_field import from_body
from kvpolicy.service.meaning.headers import from_headers
from kvpolicy.service.outbox import Outbox
from kvpolicy.service.workflows import Workflows
from kvpolicy.store.awaited import AwaitedStore
from kvpolicy.store.memory import MemoryStore
from kvpolicy.workflow.events import Event
from tests.bench.service_sessions import SECRET, TENANT, one
from tests.bench.service_sessions import made as over_nothing
from tests.service.turns import turns

ROW = {"id": "r", "owner": {"session": "s"}, "model": "m", "block_size": 16, "tokens": 80,
       "spans": [{"kind": "system", "start": 0, "end": 40}]}  # fmt: skip
SPANS = [{"kind": "turn", "start": number, "end": number + 1} for number in range(201)]
ROWS = 60


@pytest.fixture
def decisions() -> Decisions:
    """Decisions with no engine behind, and time to plan on a slow machine."""
    found = over_nothing()
    found.planning._pace.within = 60.0
    return found


@pytest.fixture
def desk(decisions: Decisions) -> Desk:
    async def ask(*_: Any) -> None: ...

    return Desk(decisions, ask)


async def sent(body: bytes) -> AsyncIterator[bytes]:
    yield body


# --- many rows --------------------------------------------------------------------------------------------------------


def test_between_the_plans_of_one_call(desk: Desk) -> None:
    had, rows = turns(lambda: desk.plans(TENANT, {}, [ROW] * ROWS))
    assert len(rows) == ROWS
    assert had >= ROWS - 1


def test_between_the_lines_of_a_stream(desk: Desk) -> None:
    async def read() -> list[bytes]:
        body = b"\n".join([orjson.dumps(ROW)] * ROWS)
        return [line async for line in desk.stream(TENANT, sent(body), lambda: TENANT)]

    had, lines = turns(read)
    assert len(lines) == ROWS
    assert had >= ROWS - 2  # behind the last line nothing follows


def test_between_the_events_of_one_call(desk: Desk) -> None:
    row = {"event": "tool_call", "session": "s", "tool": "grep"}
    had, hints = turns(lambda: desk.events(TENANT, [row] * ROWS))
    assert len(hints) == ROWS
    assert had >= ROWS - 1


def test_between_the_spans_of_an_explanation(desk: Desk, decisions: Decisions) -> None:
    asyncio.run(one(decisions, Doctor(SECRET), 0, ROWS))
    had, told = turns(lambda: desk.explain(TENANT, "p-0"))
    assert len(told["spans"]) >= ROWS
    assert had >= ROWS - 1


# --- one long one -----------------------------------------------------------------------------------------------------


def test_a_plan_has_its_bound_of_processor_time(
    desk: Desk, decisions: Decisions, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = count()
    monkeypatch.setattr(decisions.planning._pace, "_timer", lambda: 100 * next(steps))  # each look is far beyond it
    with pytest.raises(InputFault, match="too long"):
        asyncio.run(desk.plan(TENANT, {"request": ROW}))
    rows = asyncio.run(desk.plans(TENANT, {}, [ROW, ROW]))
    assert ["too long" in orjson.loads(row)["error"] for row in rows] == [True, True]


@pytest.mark.parametrize(
    ("step", "document"),
    [
        ("read_request", {"request": {**ROW, "tokens": 201, "spans": SPANS}}),
        ("as_json", {"request": {**ROW, "tokens": 16 * 2001}}),
        ("run_state", {"request": ROW, "state": {"events": [{"at": 1, "event": "tool_call", "tool": "x"}]}}),
    ],
)
def test_a_long_document_is_read_and_written_in_a_thread(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, step: str, document: dict[str, Any]
) -> None:
    where = []
    do = getattr(desk_module, step)

    def noticed(*args: Any, **kwargs: Any) -> Any:
        where.append(threading.get_ident())
        return do(*args, **kwargs)

    monkeypatch.setattr(desk_module, step, noticed)
    short = asyncio.run(desk.plan(TENANT, {"request": ROW}))
    long = asyncio.run(desk.plan(TENANT, document))
    assert where
    assert where[-1] != threading.get_ident()
    assert set(short) == set(long)


def test_a_graph_is_read_in_a_thread(monkeypatch: pytest.MonkeyPatch, decisions: Decisions) -> None:
    where = []
    sound = workflows_module.Graph.sound

    def noticed(*args: Any) -> Any:
        where.append(threading.get_ident())
        return sound(*args)

    monkeypatch.setattr(workflows_module.Graph, "sound", noticed)
    made = Workflows(decisions.state, AwaitedStore(MemoryStore()), lambda: ("t",))
    asyncio.run(made.put("t", "w", {"nodes": ["a", "b"], "edges": [["a", "b"]]}))
    assert where
    assert where[0] != threading.get_ident()


# --- events -----------------------------------------------------------------------------------------------------------


def test_a_request_brings_so_many_events_and_no_more() -> None:
    many = [f"tool-call;tool=x;call=c{number}" for number in range(MOST_EVENTS + 1)]
    read = from_headers({"x-kvp-event": ", ".join(many)})
    assert len(read.events) == MOST_EVENTS
    assert read.warned == (TOO_MANY,)
    assert from_headers({"x-kvp-event": ", ".join(many[1:])}).warned == ()
    rows = [{"event": "tool_call", "tool": "x", "call": f"c{number}"} for number in range(MOST_EVENTS + 1)]
    said = from_body({"kvp": {"events": rows}})
    assert len(said.events) == MOST_EVENTS
    assert said.warned == (TOO_MANY,)
    assert from_body({"kvp": {"events": rows[1:]}}).warned == ()


def test_the_events_of_a_request_are_heard_before_plans_are_read_again_once(decisions: Decisions) -> None:
    doctor = Doctor(SECRET)

    async def asked() -> int:
        await one(decisions, doctor, 0, 4)
        before = decisions.holding.counts["replans"]
        rows = [{"event": "tool_call", "tool": "x", "call": f"c{number}"} for number in range(MOST_EVENTS)]
        body = {"model": "m", "messages": [{"role": "user", "content": "another head"}], "kvp": {"events": rows}}
        await decisions.enter(Exchange("p-1", "chat", TENANT, {"x-session-id": "s0"}, body, 0.0, False, {}))
        return decisions.holding.counts["replans"] - before

    assert asyncio.run(asked()) == 1  # of the chain that was there


def test_an_event_of_very_many_owners_has_their_plans_read_again_by_and_by(decisions: Decisions) -> None:
    holding, doctor, owners = decisions.holding, Doctor(SECRET), 3 * holding_module.AT_ONCE

    async def run() -> list[int]:
        for number in range(owners):
            await one(decisions, doctor, number, 2)
        read, now = [holding.counts["replans"]], decisions.clock()
        assert (await decisions.happened(Event(now, "compact", {"tenant": TENANT.name}))).reached == owners
        read.append(holding.counts["replans"])
        while holding.tick(now) <= 0:
            read.append(holding.counts["replans"])
        read.append(holding.counts["replans"])
        return [after - before for before, after in pairwise(read)]

    steps = asyncio.run(run())
    assert sum(steps) == owners
    assert max(steps) == holding_module.AT_ONCE


def test_what_is_due_wakes_the_job_that_reads_it_again(decisions: Decisions, monkeypatch: pytest.MonkeyPatch) -> None:
    """The job sleeps for an hour where nothing wakes it; plans beyond the first few are left to it."""
    monkeypatch.setattr(beside, "LONGEST_TICK_S", 3600.0)
    holding, doctor, owners = decisions.holding, Doctor(SECRET), 3 * holding_module.AT_ONCE

    async def run() -> None:
        for number in range(owners):
            await one(decisions, doctor, number, 2)
        nobody = Outbox(lambda url, message: None, lambda url: True)
        async with beside.running(beside.tick(holding, nobody, decisions.clock)):
            for _ in range(2):  # once it sleeps, and once it was woken and sleeps again
                await asyncio.sleep(0.1)
                before = holding.counts["replans"]
                told = await decisions.happened(Event(decisions.clock(), "compact", {"tenant": TENANT.name}))
                assert told.reached == owners
                assert holding.counts["replans"] == before + holding_module.AT_ONCE
                async with asyncio.timeout(20):
                    while holding.counts["replans"] < before + owners:
                        await asyncio.sleep(0.01)

    asyncio.run(run())
