"""The parts by themselves: what is loaded, names of keys, the clock, the breaker, counts, the feed."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter, OrderedDict
from collections.abc import ItemsView, Iterator, KeysView, ValuesView
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvpolicy.faults import InputFault
from kvpolicy.request import Owner
from kvpolicy.store.breaker import LONGEST_S, Breaker
from kvpolicy.store.clock import ServerClock
from kvpolicy.store.contract import Gap
from kvpolicy.store.counting import Counting
from kvpolicy.store.feed import Feed
from kvpolicy.store.keys import Keys
from kvpolicy.store.log import KEY_WINDOW_S, MOST_KEYS, Log, Seen
from kvpolicy.store.memory import MemoryStore
from kvpolicy.store.opening import open_store
from kvpolicy.store.record import Record, decode, encode, shard_of
from kvpolicy.store.scripts import SOURCES
from kvpolicy.store.settings import Settings
from kvpolicy.store.stream import Stream

S = Owner("t", "s")


@pytest.mark.parametrize("module", ["kvpolicy", "kvpolicy.store", "kvpolicy.store.awaited", "kvpolicy.store.replica"])
def test_redis_is_loaded_only_where_it_is_used(module: str) -> None:
    program = f"import sys, {module}; print('redis' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "False"


def test_without_an_address_the_store_is_in_process(tmp_path: Path) -> None:
    store = open_store(None, Settings(secret=b"s" * 16, kept=7), tmp_path)
    assert isinstance(store, MemoryStore) and store.salt("t").lasting
    assert store.shelf is not None and store.shelf.folder == tmp_path
    with pytest.raises(InputFault, match="no address"):
        open_store("mailto:somebody")


# --- names and records ----------------------------------------------------------------------------------------


@given(st.lists(st.text(max_size=8), min_size=2, max_size=4), st.lists(st.text(max_size=8), min_size=2, max_size=4))
def test_no_two_names_share_a_key(one: list[str], two: list[str]) -> None:
    keys = Keys("p")
    alike = keys.of(one[0], "p", *one[1:]) == keys.of(two[0], "p", *two[1:])
    assert alike == (one == two)


@given(st.text(max_size=30), st.text(max_size=30))
def test_what_comes_from_outside_stays_out_of_the_names_of_keys(tenant: str, session: str) -> None:
    key = Keys("p").of(tenant, "p", session)
    assert key.startswith("p:{p.") and key.count("{") == key.count("}") == 1
    assert set(key) <= set("0123456789abcdefp:{}.")


@pytest.mark.parametrize("prefix", ["", "with space", "{tag}", "x" * 65, "ä"])
def test_prefixes_that_would_break_names_are_refused(prefix: str) -> None:
    with pytest.raises(InputFault):
        Keys(prefix)


@pytest.mark.parametrize(
    "changes", [{"budget": 0}, {"timeout": -1.0}, {"poll": "10ms"}, {"kept": 0}, {"secret": b"short"}, {"budget": True}]
)
def test_settings_that_cannot_be_meant_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(InputFault):
        Settings(**changes)


@given(st.binary(max_size=60))
def test_bytes_that_are_no_record_are_none(data: bytes) -> None:
    assert decode(data) is None


@given(
    st.builds(Owner, st.text(min_size=1, max_size=5), *[st.none() | st.text(max_size=5)] * 5),
    st.dictionaries(st.text(max_size=5), st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=9)),
)
def test_records_survive_the_way(owner: Owner, body: dict[str, object]) -> None:
    record = Record("event", owner, body, 12.5, "k")
    try:
        data = encode(record)
    except InputFault:
        return  # half a surrogate pair
    assert decode(data) == record


def test_one_run_has_one_shard_and_the_shards_are_used() -> None:
    run = [Owner("t", f"s{number}", "r") for number in range(50)]
    assert len({shard_of(owner, 8) for owner in run}) == 1
    assert len({shard_of(Owner("t", f"s{number}"), 8) for number in range(100)}) == 8


def test_every_script_touches_only_the_keys_it_is_given() -> None:
    for name, source in SOURCES.items():
        calls = source.split("redis.call(")[1:]
        assert all(call.split(",")[1].strip().startswith("KEYS[") for call in calls), name


# --- clock and breaker ----------------------------------------------------------------------------------------


class Ticking:
    """A clock that stands until it is moved."""

    def __init__(self) -> None:
        self.at = 0.0

    def __call__(self) -> float:
        return self.at


def test_the_clock_follows_the_server_not_this_machine() -> None:
    ticking = Ticking()
    clock = ServerClock(lambda: 5_000.0, ticking)
    assert clock.now() == 5_000.0
    ticking.at = 10.0
    clock.heard(9_000.0, 9.8, 10.0)
    assert clock.now() == pytest.approx(9_000.1)
    ticking.at = 20.0
    clock.heard(9_500.0, 15.0, 20.0)  # slow, so it says little
    assert clock.now() == pytest.approx(9_010.1)
    clock.forget()
    clock.heard(1_000.0, 20.0, 20.01)  # another server, whose clock is behind
    assert clock.now() == pytest.approx(9_010.1)  # it stands, and never goes back
    ticking.at = 9_000.0
    assert clock.now() == pytest.approx(9_980.0, abs=0.1)


def test_a_breaker_waits_longer_each_time_and_not_for_ever() -> None:
    breaker = Breaker()
    assert not breaker.asks
    waits = []
    for _ in range(12):
        breaker.failed("x")
        waits.append(breaker.pause())
    assert waits[0] < 0.1 and waits[4] > waits[0] and max(waits) <= LONGEST_S * 1.3
    assert breaker.well() and not breaker.well()
    assert breaker.asks and breaker.pause() == 0.0
    breaker.late = True
    assert not breaker.asks and breaker.closed


# --- counts ---------------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.floats(0, 30), st.integers(1, 4)), max_size=60))
def test_a_window_never_grants_much_more_than_its_limit(steps: list[tuple[float, int]]) -> None:
    """No window of 10 s, wherever it begins, holds more than twice the limit; no aligned one more than the limit."""
    counting, now, granted = Counting(), 1000.0, []
    for wait, amount in steps:
        now += wait
        if counting.spend(("t", "w"), amount, 10, 10.0, now).granted:
            granted.append((now, amount))
    for start, _ in granted:
        assert sum(amount for at, amount in granted if start <= at < start + 10.0) <= 20
        begin = start // 10.0 * 10.0
        assert sum(amount for at, amount in granted if begin <= at < begin + 10.0) <= 10


def test_what_has_ended_is_forgotten() -> None:
    now = [1000.0]
    store = MemoryStore(clock=lambda: now[0])
    for number in range(3000):
        store.pin("t", f"s{number}", "w", 5)
        store.begin("t", f"k{number}", 5)
        store.spend("t", f"w{number}", 1, 5, 5)
        store.enter("t", f"c{number}", "a", 5, 5)
        now[0] += 0.1
    assert len(store._counting) < 4 * 400


# --- streams and feed -----------------------------------------------------------------------------------------


def answer(*rows: tuple[str, str, int], last: str | None = None) -> list[Any]:
    """What the server says: (id, number, what the record says)."""
    flat: list[Any] = [b"1", b"0", (last if last is not None else rows[-1][0]).encode()]
    for identifier, number, says in rows:
        flat += [identifier.encode(), number.encode(), encode(Record("event", S, {"n": says}, 1.0, f"k{says}"))]
    return flat


def read(stream: Stream, answered: list[Any]) -> list[object]:
    return [each.lost if isinstance(each, Gap) else each.body["n"] for each in stream.read(answered)]


def test_a_stream_tells_what_it_missed() -> None:
    stream = Stream(0)
    assert read(stream, answer(("5000-0", "e.41", 1))) == [1]  # who comes late has missed nothing
    assert read(stream, answer(("5000-1", "e.42", 2), ("5001-0", "e.43", 3))) == [2, 3]
    assert read(stream, answer(last="5001-0")) == []
    assert read(stream, answer(("6000-0", "e.50", 4))) == [6, 4]
    assert read(stream, answer(("6001-0", "f.1", 5))) == [None, 5]  # another stream
    assert read(stream, answer(("6002-0", "f.1", 6))) == [None, 6]  # it lost what had been read
    assert read(stream, answer(last="6001-0")) == [None]  # it ends before
    assert stream.cursor == "0-0"
    assert read(stream, answer(("6002-0", "f.1", 6), ("7000-0", "f.2", 7))) == [6, 7]
    assert read(stream, answer(last="")) == [None]  # it is gone
    assert read(stream, answer(last="")) == []
    assert read(stream, answer(("8000-0", "nonsense", 8), ("8000-1", "g.1", 9))) == [9]
    assert stream.unreadable == 1


@given(st.lists(st.tuples(st.floats(0, 300), st.integers(0, 9)), max_size=80), st.integers(1, 6))
def test_keys_are_known_for_their_window_and_up_to_their_number(steps: list[tuple[float, int]], most: int) -> None:
    seen, told, now = Seen(most), list[tuple[str, float]](), 1000.0
    for wait, number in steps:
        now += wait
        while told and (len(told) > most or told[0][1] <= now - KEY_WINDOW_S):
            told.pop(0)
        key = f"k{number}"
        new = all(key != other for other, _ in told)
        assert seen.first(key, now) is new
        if new:
            told.append((key, now))


class Counted(OrderedDict[str, float]):
    """Counts the keys that are passed. Where a dict looks for its first key, it passes those that have gone unseen."""

    passed = 0

    def __iter__(self) -> Iterator[str]:
        for key in super().__iter__():
            self.passed += 1
            yield key

    def keys(self) -> Any:
        return KeysView(self)

    def values(self) -> Any:
        return ValuesView(self)

    def items(self) -> Any:
        return ItemsView(self)


def test_the_oldest_key_is_found_without_passing_the_others() -> None:
    feed, log = feed_with(), Log()
    for seen in (feed._seen, log._seen):
        assert seen._most == MOST_KEYS
        assert isinstance(seen._keys, OrderedDict)
    for wait in (0.0, KEY_WINDOW_S / 500):  # more than its number, and longer ago than its window
        seen = Seen(1000)
        seen._keys = keys = Counted()
        for number in range(5000):
            seen.first(f"k{number}", number * wait)
        assert len(keys) in (500, 1000, 1001)
        assert keys.passed <= 2 * 5000, "each is looked at when it comes and when it goes"


def feed_with(*told: int, wait: bool = True, most: int = 1000) -> Feed:
    feed = Feed(1, Counter(), most)
    for number in told:
        record = Record("event", S, {"n": number}, 1.0, f"k{number}")
        feed.append(record, encode(record), wait, 1.0)
    return feed


def taken(feed: Feed) -> list[object]:
    return [record.body["n"] for record in feed.take(100) if isinstance(record, Record)]


def back(*numbers: int) -> list[Record | Gap]:
    return [Record("event", S, {"n": number}, 1.0, f"k{number}") for number in numbers]


def test_own_records_come_in_the_order_of_all() -> None:
    feed = feed_with(1, 2)
    assert taken(feed) == []
    feed.outgoing(10)
    future = feed.settled()
    feed.arrived(back(7, 1, 8), 1.0)
    assert not future.done()
    feed.arrived(back(2), 1.0)
    assert future.result(0) is True
    assert taken(feed) == [7, 1, 8, 2]


def test_what_was_delivered_early_does_not_come_again() -> None:
    feed = feed_with(1, 2)
    future = feed.settled()
    feed.deliver_early()
    assert future.result(0) is False and taken(feed) == [1, 2]
    feed.arrived(back(7, 1, 2, 1), 1.0)
    assert taken(feed) == [7]


def test_nor_after_a_long_time_without_a_server() -> None:
    feed = feed_with(1, wait=False)
    assert taken(feed) == [1]
    feed.arrived(back(1), 90_000.0)  # by then keys in general are forgotten
    assert taken(feed) == []


def test_records_are_sent_again_in_their_order() -> None:
    feed = feed_with(1, 2, 3)
    sent = feed.outgoing(2)
    assert [record.key for record in sent] == ["k1", "k2"]
    feed.unsent(sent)
    assert [record.key for record in feed.outgoing(10)] == ["k1", "k2", "k3"]


def test_what_never_comes_back_counts_here() -> None:
    feed = feed_with(1, 2, 3)
    feed.outgoing(2)
    feed.give_up()
    assert taken(feed) == [1, 2]  # the third is still on its way out
    feed.arrived(back(3), 1.0)
    assert taken(feed) == [3]
