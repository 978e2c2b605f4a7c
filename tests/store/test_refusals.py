"""A server that answers and does not do what it is asked: it evicts, is full, read-only, locked, or another's."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

from kvpolicy.store.contract import Gap
from kvpolicy.store.record import Record
from tests.store.conftest import Open
from tests.store.looks import QUICK, count, is_shared, numbers, record
from tests.store.servers import Server, until


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
