"""What happens to the server, and what a replica makes of it: real servers, stopped, restarted, filled and refused."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from pathlib import Path
from typing import Any

from kvpolicy.request import Owner
from kvpolicy.store.contract import Gap
from kvpolicy.store.record import Record
from kvpolicy.store.redis import RedisStore
from tests.store.conftest import Open
from tests.store.servers import Server, free_port, until

S = Owner("t", "s")
QUICK: dict[str, Any] = {"budget": 0.02, "patience": 0.1, "timeout": 0.2}


def record(number: int, **fields: Any) -> Record:
    return Record("event", S, {"number": number}, **fields)


def numbers(store: RedisStore) -> list[object]:
    return [r.body["number"] for r in store.take() if isinstance(r, Record)]


def is_shared(store: RedisStore) -> bool:
    return store.status().mode == "shared"


def count(store: RedisStore, name: str) -> int:
    return store.status().counters.get(name, 0)


def test_absent_then_there(tmp_path: Path, open_store: Open) -> None:
    server = Server(tmp_path)
    first, second = open_store(server.url, **QUICK), open_store(server.url, **QUICK)
    assert first.status().reason == "no connection"
    first.append(record(1))
    assert not first.settle()
    assert numbers(first) == [1]
    published = first.publish("p", {"a": "1"})
    assert published.accepted and not published.shared
    assert first.begin("t", "k", 60) and not first.spend("t", "w", 1, 5, 60).shared
    assert first.pin("t", "s", "w0", 60).worker == "w0"
    with server:
        until(lambda: is_shared(first) and is_shared(second))
        got: list[object] = []
        until(lambda: got.extend(numbers(second)) or got == [1])
        until(lambda: second.policy("p") is not None and first.policy("p") is not None)
        version = second.policy("p")
        assert version is not None and (version.serial, version.files) == (1, {"a": "1"})
        assert numbers(first) == []  # its own record does not come a second time
        first.append(record(2))
        assert first.settle(5)
        assert numbers(first) == [2]
        until(lambda: got.extend(numbers(second)) or got == [1, 2])
        assert first.salt("t").lasting and first.salt("t") == second.salt("t")


def test_hung_one_call_waits_and_no_other(own_server: Server, open_store: Open) -> None:
    store = open_store(own_server.url, budget=0.02, timeout=60.0)
    assert is_shared(store)
    own_server.hang()
    try:
        for number in range(300):
            store.append(record(number))
            store.settle()
            assert not store.spend("t", "w", 1, 1000, 60).shared
            assert not store.pin("t", f"s{number}", "w0", 60).shared
            assert store.pinned("t", f"s{number}") is not None
        # The connection is only given up after a minute: whoever waited for it would have been there for as long.
        assert count(store, "late") == 1
        assert numbers(store) == list(range(300))
    finally:
        own_server.go_on()
    until(lambda: store.spend("t", "w", 1, 1000, 60).shared)
    assert count(store, "opened") == 0  # it was late, and nothing else
    store.append(record(300))
    assert store.settle(5)
    assert numbers(store) == [300]


def test_hung_the_connection_is_given_up_and_taken_up_again(own_server: Server, open_store: Open) -> None:
    store = open_store(own_server.url, **QUICK)
    own_server.hang()
    store.append(record(1))
    until(lambda: store.status().reason == "no answer in time")
    assert numbers(store) == [1]
    assert not store.publish("p", {"a": "1"}).shared
    own_server.go_on()
    until(lambda: is_shared(store))
    until(lambda: _serial(own_server, store) == 1)


def _serial(server: Server, store: RedisStore) -> int:
    with contextlib.closing(server.client()) as client:
        return int(client.hget(f"{store.settings.prefix}:{{{store.settings.prefix}.b}}:serials", "p") or 0)  # type: ignore[arg-type]


def test_a_port_that_accepts_and_never_answers(open_store: Open) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(16)
        store = open_store(f"redis://127.0.0.1:{listener.getsockname()[1]}/0", **QUICK)
        until(lambda: store.status().reason == "no answer in time")
        store.append(record(1))
        assert not store.settle() and numbers(store) == [1]
        assert store.enter("t", "running", "a", 1, 60).granted
        assert count(store, "late") == 0  # nobody waited: it was never there


def test_restarted_empty(own_server: Server, open_store: Open) -> None:
    first, second = open_store(own_server.url, **QUICK), open_store(own_server.url, **QUICK)
    for text in "12":
        first.publish("p", {"a": text})
    first.keep("learned", "t", "a", {"n": 1})
    first.append(record(1))
    first.settle(5)
    salt = first.salt("t")
    until(lambda: numbers(second) == [1])
    until(lambda: second.policy("p") == first.policy("p"))
    own_server.kill()
    until(lambda: not is_shared(first) and not is_shared(second))
    assert first.salt("t") == salt and first.policy("p") == second.policy("p") != None  # noqa: E711
    first.append(record(2))
    own_server.start()
    until(lambda: is_shared(first) and is_shared(second))
    taken: list[Any] = []
    until(lambda: taken.extend(second.take()) or len(taken) >= 2)
    assert isinstance(taken[0], Gap) and taken[0].lost is None
    assert [r.body["number"] for r in taken[1:]] == [2]
    until(lambda: _serial(own_server, first) == 2)
    third = open_store(own_server.url)
    version = third.policy("p")
    assert version == first.policy("p") and version is not None and version.files == {"a": "2"}
    assert third.salt("t") == salt
    assert [d.body for d in first.kept("learned", "t")] == [{"n": 1}]
    back = third.roll_back("p")  # the version before came back, too
    assert back.accepted and back.version is not None and back.version.files == {"a": "1"}


def test_of_two_versions_made_apart_the_servers_counts(tmp_path: Path, open_store: Open) -> None:
    server = Server(tmp_path)
    apart = open_store(server.url, **QUICK)
    alone = apart.publish("p", {"a": "apart"})
    assert alone.accepted and not alone.shared
    apart.link.close(0.1)
    with server:
        other = open_store(server.url)
        assert other.publish("p", {"a": "shared"}).shared
        _reopened(apart)
        until(lambda: apart.policy("p") == other.policy("p"))
        version = apart.policy("p")
        assert version is not None and (version.serial, version.files) == (1, {"a": "shared"})
        assert count(apart, "conflicts") == 1


def test_a_replica_that_knows_more_than_the_server_tells_it(tmp_path: Path, open_store: Open) -> None:
    server = Server(tmp_path)
    apart = open_store(server.url, **QUICK)
    for text in "123":
        apart.publish("p", {"a": text})
    apart.link.close(0.1)
    with server:
        other = open_store(server.url)
        other.publish("p", {"a": "shared"})
        _reopened(apart)
        until(lambda: (v := other.policy("p")) is not None and (v.serial, v.files) == (3, {"a": "3"}))


def test_each_key_of_a_version_is_told_anew_where_it_was_evicted(own_server: Server, open_store: Open) -> None:
    first = open_store(own_server.url)
    version = first.publish("p", {"a": "1"}).version
    for pattern in ("serials", "v:*"):
        with contextlib.closing(own_server.client()) as client:
            (key,) = client.scan_iter(f"{first.settings.prefix}:*:{pattern}")
            client.delete(key)
            until(lambda client=client, key=key: client.exists(key) and _serial(own_server, first) == 1)  # type: ignore[misc]
        later = open_store(own_server.url)
        until(lambda later=later: later.policy("p") == version)  # type: ignore[misc]


def test_a_replica_alone_grants_its_share(own_server: Server, open_store: Open) -> None:
    one, two = open_store(own_server.url, **QUICK), open_store(own_server.url, **QUICK)
    until(lambda: one.status().replicas == two.status().replicas == 2)
    assert one.enter("t", "running", "before", 8, 60).shared
    own_server.kill()
    until(lambda: one.status().mode == two.status().mode == "local")
    granted = [one.enter("t", "running", str(number), 8, 60).granted for number in range(8)]
    assert granted == [True] * 3 + [False] * 5  # the place it had granted counts
    assert [two.spend("t", "w", 1, 8, 6000).granted for _ in range(6)] == [True] * 4 + [False] * 2


def test_evicting(tmp_path: Path, open_store: Open) -> None:
    with Server(tmp_path, maxmemory="6mb", maxmemory_policy="allkeys-lru") as server:
        first, second = open_store(server.url, **QUICK), open_store(server.url, **QUICK)
        first.publish("p", {"a": "1"})
        first.append(record(1))
        first.settle(5)
        until(lambda: numbers(second) == [1])
        with contextlib.closing(server.client()) as client:
            for number in range(3000):
                client.set(f"junk{number}", b"x" * 8192)
            keys = list(client.scan_iter("test.*"))
        assert len(keys) < 6  # something of ours was evicted
        for number in range(2, 12):
            first.append(record(number))
            first.settle(5)
        got: list[Any] = []
        until(
            lambda: got.extend(second.take()) or (got and isinstance(got[-1], Record) and got[-1].body["number"] == 11)
        )
        third = open_store(server.url, **QUICK)
        until(lambda: third.policy("p") is not None)
        assert is_shared(first) and is_shared(second)
        until(lambda: third.salt("t") == first.salt("t"))


def test_an_evicted_stream_is_noticed(own_server: Server, open_store: Open) -> None:
    first, second = open_store(own_server.url), open_store(own_server.url)
    first.append(record(1))
    first.settle()
    until(lambda: numbers(second) == [1])
    prefix = first.settings.prefix
    with contextlib.closing(own_server.client()) as client:
        client.delete(f"{prefix}:{{{prefix}.e0}}:records")
    taken: list[Any] = []
    until(lambda: taken.extend(second.take()) or taken)
    assert isinstance(taken[0], Gap)
    first.append(record(2))
    first.settle()
    until(lambda: numbers(second) == [2])


def test_read_only(tmp_path: Path, own_server: Server, open_store: Open) -> None:
    with Server(tmp_path / "replica", replicaof=f"127.0.0.1 {own_server.port}") as replica:
        store = open_store(replica.url, **QUICK)
        until(lambda: store.status().reason == "read-only: it is a replica")
        store.append(record(1))
        assert not store.settle() and numbers(store) == [1]
        assert store.begin("t", "k", 60).first and not store.begin("t", "k", 60).first
        with contextlib.closing(replica.client()) as client:
            client.replicaof("NO", "ONE")
        until(lambda: is_shared(store))
        second = open_store(replica.url)
        until(lambda: numbers(second) == [1])


def test_full(own_server: Server, open_store: Open) -> None:
    store = open_store(own_server.url, **QUICK)
    with contextlib.closing(own_server.client()) as client:
        client.config_set("maxmemory", "1mb")
        client.config_set("maxmemory-policy", "noeviction")
        store.append(record(1))
        until(lambda: store.status().reason == "full: it takes no more writes")
        assert numbers(store) == [1]
        assert store.enter("t", "running", "a", 1, 60).granted
        client.config_set("maxmemory", "0")
    until(lambda: is_shared(store))
    second = open_store(own_server.url)
    until(lambda: numbers(second) == [1])


def test_refused_by_password_or_permission(tmp_path: Path, open_store: Open) -> None:
    with Server(tmp_path, user="app on >right-secret ~test* +@all -evalsha -eval") as server:
        wrong = open_store(f"redis://app:wrong-secret@127.0.0.1:{server.port}/0", **QUICK)
        until(lambda: "password" in wrong.status().reason)
        right = open_store(f"redis://app:right-secret@127.0.0.1:{server.port}/0", **QUICK)
        until(lambda: "permit" in right.status().reason)
        assert "secret" not in repr(wrong.status()) + repr(right.status()) + repr(right.settings)
        assert right.pin("t", "s", "w0", 60).worker == "w0"
        with contextlib.closing(server.client()) as client:
            client.execute_command("ACL", "SETUSER", "app", "+eval", "+evalsha")
        until(lambda: is_shared(right))


def test_somebody_else_writes_under_the_prefix(own_server: Server, open_store: Open, prefix: str) -> None:
    with contextlib.closing(own_server.client()) as client:
        client.set(f"{prefix}:{{{prefix}.e0}}:records", "not a stream")
        store = open_store(own_server.url, **QUICK)
        until(lambda: store.status().reason != "not connected yet")
        assert not is_shared(store) and "WRONGTYPE" in store.status().reason.upper()
        store.append(record(1))
        store.settle()
        assert numbers(store) == [1]
        client.delete(f"{prefix}:{{{prefix}.e0}}:records")
        until(lambda: is_shared(store))
        client.xadd(f"{prefix}:{{{prefix}.e0}}:records", {"n": "no number", "b": "no record"})
        until(lambda: count(store, "failures") or count(store, "unreadable_records"))
        assert store.enter("t", "running", "a", 1, 60).granted


def test_other_layouts_are_refused(own_server: Server, open_store: Open) -> None:
    one = open_store(own_server.url, shards=2)
    other = open_store(own_server.url, shards=3)
    assert is_shared(one)
    assert other.status().mode == "local" and "2 shards" in other.status().reason
    other.append(record(1))
    other.settle()
    assert numbers(other) == [1] and numbers(one) == []


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
    again = _reopened(away)
    got: list[object] = []
    until(lambda: got.extend(numbers(again)) or len(got) >= 50)
    assert got == list(range(1, 51))
    again.link.close(1.0)
    for number in range(51, 251):
        writer.append(record(number))
        if number % 25 == 0:
            assert writer.settle()
    last = _reopened(again)
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


def _reopened(store: RedisStore) -> RedisStore:
    """The same replica with a new thread, as after a long time without a connection."""
    from kvpolicy.store.link import Link

    old = store.link
    store.link = Link(old._connect, store._round, store.settings.poll)
    return store


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
