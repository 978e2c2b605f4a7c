"""Where requests go among several engines: by residency from KV events against load, and where a session is pinned."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kvpolicy.residency.events import STORED, KvEvent
from kvpolicy.residency.holdings import root_key, token_key
from kvpolicy.service.config import Limits, Upstream
from kvpolicy.service.config import Routing as Settings
from kvpolicy.service.exchange import DONE, Exchange
from kvpolicy.service.meaning import dialects
from kvpolicy.service.meaning.offsets import Places
from kvpolicy.service.residents import Residents
from kvpolicy.service.routing import Routing
from kvpolicy.service.tenants import Tenant
from kvpolicy.service.upstreams import Upstreams
from kvpolicy.store import MemoryStore
from kvpolicy.store.awaited import AwaitedStore

A, B = "http://a:1", "http://b:1"
SIZE = 4
TOKENS = list(range(100, 140))
SALT = "kvp-salt"


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Plan:
    def __init__(self, place: str) -> None:
        self.directives = [type("D", (), {"place": place})()]


def conversation() -> dialects.Conversation:
    messages = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]
    made = dialects.read("chat", {"model": "m", "messages": messages}, b"k" * 32)
    assert made is not None
    return made


class Desk:
    """Routing over two engines, one of which has some blocks."""

    def __init__(self, **settings: Any) -> None:
        self.clock = Clock()
        self.upstreams = Upstreams((Upstream(url=A), Upstream(url=B)), Limits())
        self.residents = Residents((), "vllm", self.clock)
        for url in (A, B):
            self.residents._feeds[url] = object()  # type: ignore[assignment]  # events are handed over below
            self.residents.residency.worker(url, 0.0, block_size=SIZE)
        self.store = AwaitedStore(MemoryStore(clock=self.clock))
        self.routing = Routing(Settings(**settings), self.upstreams, self.store, self.residents, self.clock)
        self.number = 0

    def stored(self, url: str, tokens: int, *, medium: str = "gpu", salt: str | None = SALT) -> None:
        """The engine says that it has the first tokens of the prompt."""
        count = tokens // SIZE
        hashes = tuple(f"{url}{index}" for index in range(count))
        event = KvEvent(STORED, hashes, None, medium, SIZE, tuple(TOKENS[: count * SIZE]), salt=salt)
        self.residents.residency.take(url, 0, 0, event, 0.0)

    def ask(self, session: str = "s", place: str = "anywhere", salt: str = SALT) -> Exchange:
        self.number += 1
        asked = Exchange(f"e{self.number}", "chat", Tenant("t"), {}, {}, 0.0)
        asked.sent["cache_salt"] = salt
        owner = type("O", (), {"tenant": "t", "session": session, "run": None})()
        arrived = type("R", (), {"owner": owner})()
        asked.notes["decisions"] = type(
            "S", (), {"conversation": conversation(), "plan": Plan(place), "arrived": arrived}
        )()
        asyncio.run(self.routing.enter(asked))
        return asked

    def went(self, asked: Exchange, url: str) -> None:
        asked.upstream = url
        self.routing.leave(asked, DONE)

    def choice(self, asked: Exchange) -> str:
        return self.upstreams.candidates("m", asked.prefer, self.clock.now)[0].url

    def running(self, **counts: int) -> None:
        for url, count in ((A, counts.get("a", 0)), (B, counts.get("b", 0))):
            engine = self.upstreams.of(url)
            assert engine is not None
            engine.running = count


def learned(desk: Desk, salt: str = SALT) -> None:
    desk.residents.learn(conversation(), Places(40, (20, 38), tokens=TOKENS), salt)


def test_the_engine_that_has_the_longer_prefix_is_asked() -> None:
    desk = Desk(load_tokens=1)
    learned(desk)
    desk.stored(A, 20)
    desk.stored(B, 36)
    found = desk.residents.find(conversation(), SALT)
    assert {url: row.tokens for url, row in found.items()} == {A: 20, B: 36}
    assert desk.choice(desk.ask()) == B


def test_a_lower_tier_counts_for_less() -> None:
    desk = Desk(load_tokens=1)
    learned(desk)
    desk.stored(A, 36, medium="disk")
    desk.stored(B, 20)
    assert desk.choice(desk.ask()) == B


def test_load_outweighs_residency_at_some_point() -> None:
    desk = Desk(load_tokens=5)
    learned(desk)
    desk.stored(A, 36)
    desk.running(a=7)
    assert desk.choice(desk.ask()) == A
    desk.running(a=8)
    assert desk.choice(desk.ask()) == B


def test_blocks_under_another_salt_are_another_tenants() -> None:
    desk = Desk(load_tokens=1)
    learned(desk)
    desk.stored(A, 36, salt="kvp-other")
    assert desk.residents.find(conversation(), SALT) == {}
    assert desk.residents.find(conversation(), "kvp-other") == {}


def test_names_are_those_of_the_residency() -> None:
    key = root_key(SALT)
    for at in range(0, 36, SIZE):
        key = token_key(key, TOKENS[at : at + SIZE])
    desk = Desk()
    learned(desk)
    desk.stored(A, 36)
    assert desk.residents.residency.source(A, 0).named(key) == f"{A}8"


def test_a_session_stays_on_its_worker_for_a_while() -> None:
    desk = Desk(pin_s=60)
    first = desk.ask(place="same_worker")
    desk.went(first, B)
    desk.running(b=5)
    assert desk.choice(desk.ask(place="same_worker")) == B
    assert desk.choice(desk.ask(place="anywhere")) == A
    assert desk.choice(desk.ask("another", "same_worker")) == A
    desk.clock.now = 59.0
    desk.went(desk.ask(place="same_worker"), B)
    desk.clock.now = 100.0
    assert desk.choice(desk.ask(place="same_worker")) == B
    desk.clock.now = 120.0
    assert desk.choice(desk.ask(place="same_worker")) == A


@pytest.mark.parametrize("why", ["busy", "resting"])
def test_a_pin_gives_way_and_moves(why: str) -> None:
    desk = Desk(pin_slack=3)
    desk.went(desk.ask(place="same_worker"), B)
    if why == "busy":
        desk.running(b=4)
    else:
        engine = desk.upstreams.of(B)
        assert engine is not None
        engine.resting_until = 100.0
    asked = desk.ask(place="same_worker")
    assert desk.choice(asked) == A
    desk.went(asked, A)
    desk.running(a=1, b=0)
    assert desk.choice(desk.ask(place="same_worker")) == A


def test_a_refused_request_pins_nothing() -> None:
    desk = Desk()
    asked = desk.ask(place="same_worker")
    asked.upstream = B
    desk.routing.leave(asked, "failed")
    desk.running(b=1)
    assert desk.choice(desk.ask(place="same_worker")) == A
