"""Records over connections that break and absences that end: none is lost unsaid, none is there twice."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import Any

from kvpolicy.store.contract import Gap
from kvpolicy.store.record import Record
from kvpolicy.store.redis import RedisStore
from tests.store.conftest import Open
from tests.store.looks import QUICK, count, numbers, record, reopened
from tests.store.servers import Server, free_port, until


def test_connections_that_break_all_the_time_lose_and_double_nothing(own_server: Server, open_store: Open) -> None:
    writer, reader = open_store(own_server.url, timeout=1.0), open_store(own_server.url, timeout=1.0)
    stop = threading.Event()

    def cut() -> None:
        with contextlib.closing(own_server.client()) as client:
            while not stop.wait(0.02):
                client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")

    cutting = threading.Thread(target=cut)
    cutting.start()
    try:
        for number in range(1500):
            writer.append(record(number))
            time.sleep(0.0005)
        until(lambda: count(writer, "opened") > 0)  # on a quick machine a connection may live through all of that
    finally:
        stop.set()
        cutting.join()
    writer.append(record(1500))
    writer.settle(20)
    mine = numbers(writer) + numbers(writer)
    assert sorted(mine) == list(range(1501))  # type: ignore[type-var]
    theirs: list[object] = []
    until(lambda: theirs.extend(numbers(reader)) or len(theirs) >= 1501)
    assert sorted(theirs) == list(range(1501))  # type: ignore[type-var]
    assert count(writer, "opened") > 0
    assert _length(own_server, writer) == 1501  # what was sent twice is there once


def _length(server: Server, store: RedisStore) -> int:
    prefix = store.settings.prefix
    with contextlib.closing(server.client()) as client:
        return int(client.xlen(f"{prefix}:{{{prefix}.e0}}:records"))  # type: ignore[arg-type]


def test_what_two_replicas_tell_is_there_once(own_server: Server, open_store: Open) -> None:
    one, two = open_store(own_server.url, poll=30.0), open_store(own_server.url, poll=30.0)
    for store in (one, two):  # neither has heard of the other's when it tells its own
        store.append(record(1, key="same"))
        assert store.settle()
        assert numbers(store) == [1]
    assert _length(own_server, one) == 1


def test_a_replica_that_was_away_catches_up_or_is_told(own_server: Server, open_store: Open) -> None:
    writer = open_store(own_server.url, kept=100)
    away = open_store(own_server.url, kept=100)
    writer.append(record(0))
    writer.settle()
    until(lambda: numbers(away) == [0])
    away.link.close(1.0)  # its thread stands still; what it had read is kept
    for number in range(1, 51):
        writer.append(record(number))
    assert writer.settle()
    again = reopened(away)
    got: list[object] = []
    until(lambda: got.extend(numbers(again)) or len(got) >= 50)
    assert got == list(range(1, 51))
    again.link.close(1.0)
    for number in range(51, 251):
        writer.append(record(number))
        if number % 25 == 0:
            assert writer.settle()
    last = reopened(again)
    taken: list[Any] = []
    until(lambda: taken.extend(last.take()) or len(taken) >= 101)
    assert taken[0] == Gap(0, 100, "records were trimmed before this replica read them")
    assert [r.body["number"] for r in taken[1:]] == list(range(151, 251))
    assert count(last, "gaps") == 1 and count(last, "lost") == 100
    last.close()


def test_own_records_are_not_lost_to_who_told_them(own_server: Server, open_store: Open) -> None:
    store = open_store(own_server.url, kept=10)
    for number in range(300):
        store.append(record(number))
    assert store.settle()  # it was trimmed before it came back, and that is known at once
    taken = store.take()
    assert sorted(r.body["number"] for r in taken if isinstance(r, Record)) == list(range(300))  # type: ignore[type-var]
    assert store.take() == []


def test_records_that_nobody_could_be_told_are_bounded_and_counted(open_store: Open) -> None:
    store = open_store(f"redis://127.0.0.1:{free_port()}/0", **QUICK)
    store._round.feed._most_out = 100
    for number in range(250):
        store.append(record(number))
    assert numbers(store) == list(range(250))  # here all of them count
    assert count(store, "dropped") == 150


def test_nobody_tells_the_future(own_server: Server, open_store: Open) -> None:
    store = open_store(own_server.url)
    store.append(record(1, at=time.time() + 5000))
    store.settle()
    (got,) = store.take()
    assert isinstance(got, Record) and got.at is not None
    assert abs(got.at - time.time()) < 60


def test_everything_has_an_end(own_server: Server, open_store: Open) -> None:
    store = open_store(own_server.url)
    store.append(record(1))
    store.settle()
    store.publish("p", {"a": "1"})
    store.publish("p", {"a": "2"}, expect=1)
    store.roll_back("p")
    store.renew_salt("t")
    store.keep("learned", "t", "a", {"n": 1})
    store.keep("residency", "t", "a", {"n": 1}, ttl=600)
    store.pin("t", "s", "w0", 60)
    store.pin("t", "s", "w0", 60, move=True)
    store.begin("t", "k", 60)
    store.begin("t", "done", 60)
    store.finish("t", "done", "x", 60)
    store.spend("t", "w", 1, 5, 60)
    store.enter("t", "running", "a", 5, 60)
    assert store.pinned("t", "s") is not None
    with contextlib.closing(own_server.client()) as client:
        keys = list(client.scan_iter())
        assert len(keys) >= 12
        kinds = {key: client.pttl(key) for key in keys}
    assert {key for key, ttl in kinds.items() if int(ttl) <= 0} == set()  # type: ignore[arg-type]
    assert all(key.startswith(store.settings.prefix.encode() + b":{") for key in keys)
    assert not [key for key in keys if b"}:" not in key]
