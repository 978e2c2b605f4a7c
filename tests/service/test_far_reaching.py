"""An event that means very many owners: no request waits for all, nobody is left out, each owner's order holds."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

from kvpolicy.request import Owner, Request
from kvpolicy.service.decisions import Decisions
from kvpolicy.service.desk import Desk
from kvpolicy.service.holding import REACHED_AT_ONCE
from kvpolicy.service.outbox import Outbox, Said
from kvpolicy.service.telling import Together
from kvpolicy.service.tenants import Tenant
from kvpolicy.store.awaited import AwaitedStore
from kvpolicy.store.memory import MemoryStore
from kvpolicy.store.replica import answer_record, event_record, request_record
from kvpolicy.workflow.events import Event
from kvpolicy.workflow.spreading import MOST
from kvpolicy.workflow.state import RunState
from tests.service.test_caps import TOKENS, exchange, made, sent
from tests.service.through import Through, until
from tests.simulated.running import running

POLICY = "policy p\nturn { priority: 60 }\non tool_call until tool_result { paused: any { retention: hold 20s } }\n"
MANY = 50


def held() -> tuple[Any, list[tuple[str, Said]]]:
    """Decisions with MANY owners' plans at an engine, and what that is told."""
    decisions, told = made(POLICY), []
    decisions.holding._send = lambda url, said: told.append((url, said))
    come(decisions, MANY)
    return decisions, told


def come(decisions: Decisions, sessions: int) -> None:
    """Each with one prompt at an engine, answered; what reaches many goes in parts."""
    decisions.state.at_once, decisions.state.reached = REACHED_AT_ONCE, decisions.holding.reached

    async def all_of_them() -> None:
        for number in range(sessions):
            asked = exchange(Tenant("t"), {"prompt": TOKENS, "kvp": {"session": f"s{number}"}}, name=f"e-{number}")
            await decisions.enter(asked)
            asked.upstream, asked.status = "http://e", 200
            decisions.telling.answer(asked.notes["decisions"].request, decisions.clock(), [], True, 1)

    asyncio.run(all_of_them())


def owners(told: list[tuple[str, Said]], event: str) -> list[str | None]:
    return [said.owner.session for _, said in told if said.event == event]


def test_one_step_reaches_a_few_and_all_are_reached_once() -> None:
    decisions, told = held()
    decisions.state.observe(Event(decisions.clock(), "tool_call", {"tenant": "t", "tool": "grep"}))
    assert decisions.holding.sooner.is_set()
    assert owners(told, "tool_call") == []
    steps = 0
    while decisions.state.is_behind:
        before = len(owners(told, "tool_call"))
        decisions.state.go_on()
        assert len(owners(told, "tool_call")) - before <= REACHED_AT_ONCE
        steps += 1
    assert steps >= MANY // REACHED_AT_ONCE
    assert sorted(owners(told, "tool_call")) == sorted(f"s{n}" for n in range(MANY))


def test_whose_turn_has_not_come_is_told_in_its_own_order() -> None:
    decisions, told = held()
    at = decisions.clock
    decisions.state.observe(Event(at(), "session_end", {"tenant": "t"}))
    again = exchange(Tenant("t"), {"prompt": TOKENS, "kvp": {"session": "s40"}}, name="again")
    asyncio.run(decisions.enter(again))  # a new life, after the end: what ends, ends before
    assert [said.do for _, said in told if said.owner.session == "s40"][:2] == ["event", "end"]
    assert decisions.state.phase(Owner("t", "s40")) == "running"
    while decisions.state.go_on():
        pass
    assert decisions.state.phase(Owner("t", "s40")) == "running"
    assert decisions.state.phase(Owner("t", "s41")) == "ended"
    assert owners(told, "session_end").count("s40") == 1


def test_what_reaches_many_of_one_run_goes_through_it_once(monkeypatch: pytest.MonkeyPatch) -> None:
    decisions = made("policy p\nturn when fan_out() >= 2 { priority: 60 }\nsystem { priority: 50 }\n")
    for number in range(MANY):
        place = {"session": "s", "run": "r", "branch": f"b{number}"}
        sent(decisions, exchange(Tenant("t"), {"prompt": TOKENS, "kvp": {"context": place}}, name=f"e-{number}"))
    now = decisions.clock()
    while decisions.holding.tick(now) <= 0:
        pass
    rows = [(owner, held) for owner, plans in decisions.holding.plans.all() for held in plans]
    assert len(rows) == MANY and not any(held.due for _, held in rows)
    looks, mates = [], decisions.state.run_mates
    monkeypatch.setattr(decisions.state, "run_mates", lambda owner: looks.append(owner) or mates(owner))
    reached = [owner for owner, _ in rows[:REACHED_AT_ONCE]]
    for _ in range(2):  # however often, before their turn
        decisions.holding.happened(Event(now, "tool_call", {"run": "r"}), reached)
    assert looks == [], "and not while whoever told of it waits"
    decisions.holding._step(now)
    assert len(looks) == 1
    assert {owner for owner, held in rows if held.due} == {owner for owner, _ in rows[REACHED_AT_ONCE:]}
    while decisions.holding.tick(now) <= 0:
        pass
    for part in (rows[:2], rows[2:4]):  # who did something first has not heard of the others
        decisions.holding.happened(Event(now, "tool_result", {"run": "r"}), [owner for owner, _ in part])
    decisions.holding._step(now)
    assert {owner for owner, held in rows if not held.due} == {owner for owner, _ in rows[2:4]}


def test_of_many_that_mean_many_some_wait_and_that_is_said() -> None:
    """No request brings about more than a few: begun ones are gone on with between requests, never within one."""
    decisions, told = held()
    said = {"kvp": {"session": "new", "events": [{"event": "tool_call", "session": "s1", "tool": "t"}]}}
    far = [{"event": "tool_call", "agent": None, "tool": f"t{n}"} for n in range(MOST + 2)]
    asked = exchange(Tenant("t"), {"prompt": TOKENS, "kvp": {"session": "x", "events": far}}, name="far")
    asyncio.run(decisions.enter(asked))
    assert "TOO_MANY_EVENTS" in asked.answer_headers["x-kvp-warn"]
    assert owners(told, "tool_call") == []
    hint = asyncio.run(Desk(decisions, None).event(Tenant("t"), {"event": "tool_result", "agent": None}))  # type: ignore[arg-type]
    assert hint["status"] == "rejected"
    assert "on their way" in hint["reason"]
    other = asyncio.run(Desk(decisions, None).event(Tenant("u"), {"event": "tool_result"}))  # type: ignore[arg-type]
    assert other["status"] == "ignored"
    near = exchange(Tenant("t"), {"prompt": TOKENS, **said}, name="near")  # one that means few need not wait
    asyncio.run(decisions.enter(near))
    assert "TOO_MANY" not in near.answer_headers.get("x-kvp-warn", "")
    assert owners(told, "tool_call") == ["s1"] * (MOST + 1)
    while decisions.state.go_on():
        pass
    assert owners(told, "tool_call").count("s2") == MOST


def test_time_brings_about_a_few_at_a_time_too() -> None:
    decisions, _ = held()
    decisions.state.observe(Event(decisions.clock(), "tool_call", {"tenant": "t"}))
    decisions.state.observe(Event(decisions.clock(), "tool_result", {"tenant": "t", "call": None}))
    while decisions.state.go_on():
        pass
    late = decisions.state.now + 1000.0
    lapsed = []
    while part := decisions.state.advance(late):
        assert len(part) <= REACHED_AT_ONCE
        lapsed += part
    assert sorted(owner.session for owner in lapsed) == sorted(f"s{n}" for n in range(MANY))
    assert not decisions.state.is_behind


def test_an_engine_without_room_is_told_later_and_in_order() -> None:
    sent: list[tuple[str, Any]] = []
    room = {"a": True, "b": True}

    def send(url: str, message: Mapping[str, Any]) -> None:
        sent.append((url, message["event"]))

    box = Outbox(send, lambda url: room[url])
    box.put("a", Said("event", Owner("t", "s"), event="1"))
    room["a"] = False
    for number in "234":
        box.put("a", Said("event", Owner("t", "s"), event=number))
        box.put("b", Said("event", Owner("t", "s"), event=number))
    assert [event for url, event in sent if url == "a"] == ["1"]
    assert [event for url, event in sent if url == "b"] == ["2", "3", "4"]
    room["a"] = True
    box.put("a", Said("event", Owner("t", "s"), event="5"))  # there is room, but not before the others
    box.pump()
    assert [event for url, event in sent if url == "a"] == ["1", "2", "3", "4", "5"]
    room["a"] = False
    box.put("a", Said("event", Owner("t", "s"), event="6"))
    box.clear()
    room["a"] = True
    assert not box.pump() and not box and len(sent) == 8


def test_what_another_replica_told_reaches_those_alone_whom_it_means() -> None:
    """Time that has passed meanwhile ends others' graces: that is no event of theirs, and ends nothing they hold."""
    reached: list[Owner] = []
    store = MemoryStore()
    here = Together(AwaitedStore(store), RunState(), lambda event, who: reached.extend(who), lambda owner, model: None)
    asked = Request("there-1", Owner("t", "asks"), 64, 16)
    store.append(request_record(asked, 1.0))
    store.append(answer_record(asked, 2.0, tool_calls=[]))  # nobody says how it ended: two seconds to find out
    other = Request("there-2", Owner("t", "ends"), 64, 16)
    store.append(request_record(other, 2.0))
    here.apply_news()
    store.append(event_record(Event(100.0, "session_end", {"tenant": "t", "session": "ends"})))
    assert set(here.apply_news()) == {Owner("t", "asks"), Owner("t", "ends")}
    assert reached == [Owner("t", "ends")]


def test_through_real_processes_everybody_is_reached(tmp_path: Path) -> None:
    at = f"unix:{tmp_path}/c"
    with (
        running("engine", "--blocks", "2000", "--decode-s", "0.0001", "--channel", at) as engine,
        running("serve", "--upstream", engine, "--channel", at) as url,
    ):
        gateway = Through(url, engine)
        body = {"model": "sim", "max_tokens": 1, "messages": [{"role": "user", "content": "Where is it? " * 12}]}
        with httpx.Client(base_url=url, timeout=30) as client:
            for number in range(2 * MANY):
                said = {"x-kvp-context": f'session="s{number}", run="r"'}
                assert client.post("/v1/chat/completions", json=body, headers=said).status_code == 200
            assert until(lambda: len(gateway.owners()), 2 * MANY) == 2 * MANY
            for event, phase in (("tool_call", "tool_pause"), ("session_end", "ended")):
                row = {"event": event, "run": "r", "tool": "grep"}
                hint = client.post("/v1/events", json=row).json()["hints"][0]
                assert hint["status"] in ("accepted", "deferred")
                assert hint["requested"] == 2 * MANY and hint["heard"] == 1
                assert until(lambda: {r["phase"] for r in gateway.owners()}, {phase}) == {phase}
        assert gateway.counter("kvpolicy_outbox_total", what="dropped") == 0
        assert until(lambda: httpx.get(f"{engine}/sim/blocks").json()["protected"], 0) == 0
