"""Whatever breaks on our side, the engine gets the request as if we were not there, but for the salt, and serves on.

A fault is put into every step that a request takes through the assembled gateway, one after the other; what hangs
(planning, Redis, tokenizer, control channel, events) is left hanging.
"""

from __future__ import annotations

import asyncio
import re
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from operator import attrgetter
from typing import Any

import httpx
import orjson
import pytest

from kvpolicy.listening import Bounds
from kvpolicy.service import decisions as decisions_module
from kvpolicy.service.app import Gateway
from kvpolicy.service.assembly import assemble
from kvpolicy.service.config import checked_config
from kvpolicy.service.exchange import Exchange
from tests.service.gateway import gateway, served
from tests.service.test_edge_passing import CHAT, PATH, until
from tests.service.upstream import OK, Asked, Upstream, upstream

TOKENS = list(range(64))
ANSWER = orjson.dumps(
    {
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "so"}}],
        "usage": {"prompt_tokens": 64, "completion_tokens": 1, "total_tokens": 65},
    }
)


def reply(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)


async def engine_like(asked: Asked, writer: asyncio.StreamWriter) -> None:
    if asked.line.startswith("POST /tokenize"):
        writer.write(reply(orjson.dumps({"count": len(TOKENS), "tokens": TOKENS})))
    else:
        writer.write(reply(ANSWER))


@contextmanager
def assembled(url: str, **settings: Any) -> Iterator[tuple[str, Gateway]]:
    entry = {"url": url, **settings.pop("entry", {})}
    config = checked_config({"upstream": [entry], **settings}, "test")
    app, made = assemble(config)
    with served(app, Bounds()) as at:
        yield at, made


def stage(made: Gateway, name: str) -> Any:
    return next(each for each in made.proxy.stages if each.name == name)


def models(engine: Upstream) -> list[dict[str, Any]]:
    return [orjson.loads(asked.body) for asked in engine.asked if PATH in asked.line]


def ask(at: str, text: str = "hello") -> httpx.Response:
    body = {**CHAT, "messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": text}]}
    return httpx.post(at + PATH, json=body, headers={"x-session-id": "s1"}, timeout=30)


def planned(at: str, made: Gateway, engine: Upstream) -> None:
    """Ask until a request carries a plan: the places of its messages are known by then."""
    ask(at)
    assert until(lambda: ask(at).status_code == 200 and "kvpolicy" in str(models(engine)[-1]))


def broken(*_: Any, **__: Any) -> Any:
    raise RuntimeError("planted")


async def broken_async(*_: Any, **__: Any) -> Any:
    raise RuntimeError("planted")


# Where the fault is put: an object's path from the gateway, its attribute; whether the salt is minted before it.
IN_DECISIONS = [
    ("sessions", "arrive", False),
    ("policies", "choose", False),
    ("telling", "arrive", True),
    ("holding", "replan", True),
    ("holding", "hold", True),
    ("holding.plans", "last", True),
    ("offsets", "known", True),
    ("planning", "make", True),
    ("planning", "lower", True),
]
IN_MODULE = ["from_headers", "from_body", "merged", "identified", "located"]
STAGES = ["decisions", "doctor", "routing"]


@pytest.fixture(scope="module")
def running() -> Iterator[tuple[str, Gateway, Upstream]]:
    with upstream(engine_like) as engine, assembled(engine.url) as (at, made):
        planned(at, made, engine)
        yield at, made, engine


def unharmed(running: tuple[str, Gateway, Upstream], *, same_salt: bool | None) -> None:
    """Two requests reach the engine unchanged, under salts that are theirs."""
    at, made, engine = running
    before = len(models(engine))
    for _ in range(2):
        answer = ask(at)
        assert (answer.status_code, answer.content) == (200, ANSWER)
    bodies = models(engine)[before:]
    salts = [body.pop("cache_salt") for body in bodies]
    for body in bodies:
        assert set(body) == {"model", "messages"}
    assert all(salt.startswith("kvp-") for salt in salts)
    if same_salt is not None:
        assert (salts[0] == salts[1]) is same_salt
    assert until(lambda: made.proxy.running == 0)


def test_without_a_fault_there_is_a_plan(running: Any) -> None:
    at, _, engine = running
    ask(at)
    assert "kvpolicy" in models(engine)[-1]["vllm_xargs"]


@pytest.mark.parametrize(("part", "step", "salted"), IN_DECISIONS)
def test_a_step_of_deciding_that_breaks(
    running: Any, monkeypatch: pytest.MonkeyPatch, part: str, step: str, salted: bool
) -> None:
    at, made, _ = running
    target = attrgetter(part)(stage(made, "decisions"))
    fault = broken_async if asyncio.iscoroutinefunction(getattr(target, step)) else broken
    before = made.proxy.counts["stage_faults"]
    monkeypatch.setattr(type(target), step, fault)
    unharmed(running, same_salt=salted)
    assert made.proxy.counts["stage_faults"] > before
    assert "FAILED_OPEN" in ask(at).headers["x-kvp-warn"]


@pytest.mark.parametrize("step", IN_MODULE)
def test_a_reading_that_breaks(running: Any, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    using = [m for n, m in sys.modules.items() if re.fullmatch(r"kvpolicy\.service\.\w+", n) and hasattr(m, step)]
    assert using
    _, made, _ = running
    before = made.proxy.counts["stage_faults"]
    for module in using:
        monkeypatch.setattr(module, step, broken)
    unharmed(running, same_salt=None)
    assert made.proxy.counts["stage_faults"] >= before + 2


def test_a_dialect_that_breaks(running: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decisions_module.dialects, "read", broken)
    unharmed(running, same_salt=False)


def test_a_salt_that_cannot_be_made_is_nobodys(running: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    _, made, _ = running
    monkeypatch.setattr(stage(made, "decisions"), "mint", broken)
    unharmed(running, same_salt=False)


@pytest.mark.parametrize("name", STAGES)
def test_a_whole_stage_that_breaks(running: Any, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    at, made, engine = running
    for method, fault in (("enter", broken_async), ("chunk", broken), ("leave", broken)):
        before = made.proxy.counts["stage_faults"]
        with monkeypatch.context() as patch:
            patch.setattr(type(stage(made, name)), method, fault)
            for _ in range(2):
                answer = ask(at)
                assert (answer.status_code, answer.content) == (200, ANSWER)
                assert models(engine)[-1]["cache_salt"].startswith("kvp-")
            assert until(lambda: made.proxy.running == 0)
        assert made.proxy.counts["stage_faults"] >= before + 2, method


@pytest.mark.parametrize("name", ["AnswerReader", "following"])
def test_reading_the_answer_that_breaks(running: Any, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    at, made, _ = running
    before = made.proxy.counts["stage_faults"]
    monkeypatch.setattr(decisions_module, name, broken)
    assert ask(at).content == ANSWER
    assert until(lambda: made.proxy.counts["stage_faults"] > before)


def test_planning_that_takes_too_long_is_given_up(running: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planning is never interrupted from outside: it looks at its own clock on the way."""
    _, made, _ = running
    decisions = stage(made, "decisions")
    decisions.policies.current("coding_agent").policy.groups.clear()  # what was said of such prompts takes no time
    steps = iter(range(10**9))
    monkeypatch.setattr(decisions.planning._pace, "_timer", lambda: next(steps))  # every look is a second later
    before = decisions.counts["plan_late"]
    unharmed(running, same_salt=True)
    assert decisions.counts["plan_late"] == before + 2


# --- what hangs -----------------------------------------------------------------------------------------------


def test_a_stage_that_hangs_is_left_behind() -> None:
    class Hanging:
        name = "hanging"

        async def enter(self, exchange: Exchange) -> None:
            exchange.sent["begun"] = True
            await asyncio.sleep(60)

        def chunk(self, exchange: Exchange, data: bytes) -> None: ...

        def leave(self, exchange: Exchange, how: str) -> None: ...

    with upstream() as engine, gateway(engine.url, stages=[Hanging()]) as (at, made):
        assert httpx.post(at + PATH, json=CHAT, timeout=20).status_code == 200
        assert made.proxy.counts["stage_late"] == 1
        body = models(engine)[0]
        assert {key: body[key] for key in body if key != "cache_salt"} == CHAT


@contextmanager
def silent() -> Iterator[int]:
    """A port that takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


def test_a_tokenizer_that_hangs_delays_nothing() -> None:
    async def hanging(asked: Asked, writer: asyncio.StreamWriter) -> None:
        if asked.line.startswith("POST /tokenize"):
            await asyncio.sleep(60)
        writer.write(OK)

    with upstream(hanging) as engine, assembled(engine.url) as (at, made):
        for _ in range(3):
            assert ask(at).status_code == 200
        for body in models(engine):
            assert body["messages"][0] == {"role": "system", "content": "be brief"}
            assert "directives" not in str(body)
        assert until(lambda: stage(made, "decisions").counts["places_unknown"] == 3)


def test_redis_channel_and_events_that_are_silent_delay_nothing() -> None:
    with silent() as redis, silent() as channel, silent() as events, upstream(engine_like) as engine:
        entry = {"channel": f"tcp://127.0.0.1:{channel}", "events": f"tcp://127.0.0.1:{events}"}
        with assembled(engine.url, entry=entry, store={"redis": f"redis://127.0.0.1:{redis}/0"}) as (at, made):
            for number in range(5):
                assert ask(at, f"turn {number}").status_code == 200
            assert httpx.get(f"{at}/metrics", timeout=20).status_code == 200
            assert until(lambda: made.proxy.running == 0)
        assert len(models(engine)) == 5
        assert all(body["cache_salt"].startswith("kvp-") for body in models(engine))
