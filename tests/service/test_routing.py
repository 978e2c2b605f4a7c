"""Where requests go among several engines: by residency from KV events against load, and where a session is pinned."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from kvpolicy.residency import Residency
from kvpolicy.residency.events import CLEARED, STORED, KvEvent
from kvpolicy.residency.holdings import root_key, token_key
from kvpolicy.residency.index import SILENT_S
from kvpolicy.residency.source import Source
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
from tests.service.test_edge_passing import until

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

    def went(self, asked: Exchange, url: str, how: str = DONE) -> None:
        """Its end, and what is done beside it."""

        async def leave() -> None:
            self.routing.leave(asked, how)
            await asyncio.gather(*self.routing._tasks)

        asked.upstream = url
        asyncio.run(leave())

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
    desk.went(asked, B, "failed")
    desk.running(b=1)
    assert desk.choice(desk.ask(place="same_worker")) == A


# --- the thread that takes events -------------------------------------------------------------------------------------


class Halfway:
    """A feed whose turn has two events: it stops between them until it is let go on."""

    def __init__(self, desk: Desk) -> None:
        self.desk, self.between, self.go_on, self.turns = desk, threading.Event(), threading.Event(), 0

    def take(self, residency: Residency, now: float, wait_s: float = 0.0) -> None:
        self.turns += 1
        if self.turns == 1:
            self.desk.stored(A, 36)
            self.between.set()
            assert self.go_on.wait(30)
            residency.take(A, 0, 1, KvEvent(CLEARED, ()), now)

    def close(self) -> None:
        self.go_on.set()


def test_nobody_sees_a_turn_of_events_half_applied_and_no_request_waits_for_its_end() -> None:
    desk = Desk()
    learned(desk)
    feed = Halfway(desk)
    desk.residents._feeds = {A: feed}
    desk.residents.start()
    try:
        assert feed.between.wait(30)
        assert desk.residents.find(conversation(), SALT) == {}  # the thread is at it: routed without
        assert desk.residents.counts["busy"] == 1
        desk.residents.sent(A)
        assert desk.residents.states() == [(A, 0, "stale")]  # as before the turn, and at once
        feed.go_on.set()
        assert until(lambda: desk.residents.states() == [(A, 0, "live")])
        assert until(lambda: desk.residents._stood == [(A, 0, "live")])
    finally:
        feed.go_on.set()
        desk.residents.close()
    assert desk.residents.counts["faults"] == 0
    assert desk.residents.find(conversation(), SALT) == {}
    assert desk.residents.counts["busy"] == 1


def test_states_copy_no_blocks_and_know_who_owes_events(monkeypatch: pytest.MonkeyPatch) -> None:
    def copied(self: Source) -> list[Any]:
        raise AssertionError("every block of an engine, for one word")

    monkeypatch.setattr(Source, "present", copied)
    desk = Desk()
    desk.stored(A, 36)
    desk.residents.residency.worker(B, 0.0)
    assert desk.residents.states() == [(A, 0, "live"), (B, 0, "stale")]
    desk.residents.sent(A)
    desk.clock.now = SILENT_S
    assert desk.residents.states() == [(A, 0, "no_events"), (B, 0, "no_events")]
