"""A server that is not there, hangs, comes back or comes back empty, and what replicas make of it: real servers."""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path
from typing import Any

from kvpolicy.store.contract import Gap
from kvpolicy.store.redis import RedisStore
from tests.store.conftest import Open
from tests.store.looks import QUICK, count, is_shared, numbers, record, reopened
from tests.store.servers import Server, until


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
        reopened(apart)
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
        reopened(apart)
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
