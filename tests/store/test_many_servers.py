"""A cluster, a Sentinel's master and TLS: each for real, with the master killed."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from kvpolicy.faults import InputFault
from kvpolicy.request import Owner
from kvpolicy.store.contract import Gap
from kvpolicy.store.record import Record, shard_of
from kvpolicy.store.redis import RedisStore
from kvpolicy.store.wire import connect, shown
from tests.store.conftest import Open
from tests.store.servers import Server, cluster, sentinel, until


def record(number: int, session: str = "s") -> Record:
    return Record("event", Owner("t", session), {"number": number})


def numbers(store: RedisStore) -> list[Any]:
    return [r.body["number"] for r in store.take() if isinstance(r, Record)]


def test_the_keys_of_a_store_lie_on_all_nodes_of_a_cluster(nodes: list[Server], open_store: Open, prefix: str) -> None:
    url = f"redis+cluster://127.0.0.1:{nodes[2].port}"
    first, second = open_store(url, shards=8), open_store(url, shards=8)
    sessions = [f"s{number}" for number in range(40)]
    assert len({shard_of(Owner("t", session), 8) for session in sessions}) > 4
    for number in range(160):
        first.append(record(number, sessions[number % 40]))
        first.pin("t", sessions[number % 40], f"w{number % 3}", 60)
        first.begin(f"t{number}", "k", 60)
    assert first.settle()
    for store in (first, second):
        got: list[Any] = []
        until(lambda store=store, got=got: got.extend(numbers(store)) or len(got) >= 160)  # type: ignore[misc]
        by_session = [[number for number in got if number % 40 == which] for which in range(40)]
        assert by_session == [list(range(which, 160, 40)) for which in range(40)]  # each run in its order
    held = []
    for node in nodes:
        with contextlib.closing(node.client()) as client:
            keys = list(client.scan_iter(f"{prefix}*"))
            held.append(len(keys))
            assert all(int(client.pttl(key)) > 0 for key in keys)  # type: ignore[arg-type]
    assert min(held) > 10


def test_a_cluster_whose_node_is_killed_fails_over(tmp_path: Path, open_store: Open, prefix: str) -> None:
    with cluster(tmp_path / "cluster") as nodes, contextlib.ExitStack() as stack:
        with contextlib.closing(nodes[0].client()) as client:
            slot = int(client.execute_command("CLUSTER", "KEYSLOT", f"{{{prefix}.e0}}"))
        master = nodes[slot * 3 // 16384 if slot < 16383 else 2]
        replica = stack.enter_context(
            Server(tmp_path / "replica", cluster_enabled="yes", cluster_node_timeout="700", appendonly="no")
        )
        with contextlib.closing(replica.client()) as client, contextlib.closing(master.client()) as its:
            client.execute_command("CLUSTER", "MEET", "127.0.0.1", master.port)
            name = its.execute_command("CLUSTER", "MYID").decode()
            until(lambda: name in client.execute_command("CLUSTER", "NODES").decode())
            until(lambda: _replicates(client, name))
            until(lambda: b"master_link_status:up" in _text(client, "INFO", "replication"))
        url = "redis+cluster://" + ",".join(f"127.0.0.1:{node.port}" for node in nodes)
        store = open_store(url, budget=0.05, timeout=0.3)
        assert store.status().mode == "shared", store.status()
        store.append(record(1))
        assert store.settle(5)
        assert numbers(store) == [1]
        _until_copied(master, replica)
        master.kill()
        until(lambda: store.status().mode == "local")
        store.append(record(2))
        assert not store.settle()
        assert numbers(store) == [2]
        until(lambda: store.status().mode == "shared", 30)
        other = open_store(url)
        got: list[Any] = []
        until(lambda: got.extend(numbers(other)) or len(got) >= 2)
        assert got == [1, 2]


def _replicates(client: Any, name: str) -> bool:
    with contextlib.suppress(Exception):
        return bool(client.execute_command("CLUSTER", "REPLICATE", name))
    return False


def _until_copied(master: Server, replica: Server) -> None:
    """Wait until the replica has what the master has now.

    Redis answers a write before its replica has it, so a master that dies at once takes the write along: that loss is
    Redis's own, and what a store makes of it is tested below.
    """
    with contextlib.closing(master.client()) as its:
        written = _offset(its, "master_repl_offset")
    with contextlib.closing(replica.client()) as client:
        until(lambda: _offset(client, "slave_repl_offset") >= written)


def _offset(client: Any, name: str) -> int:
    rows = dict(row.partition(":")[::2] for row in _text(client, "INFO", "replication").decode().split())
    return int(rows[name])


def _text(client: Any, *command: str) -> bytes:
    answer = client.execute_command(*command)
    if isinstance(answer, dict):
        return "\n".join(f"{name}:{value}" for name, value in answer.items()).encode()
    return bytes(answer)


def test_a_sentinel_fails_over_and_the_store_follows(tmp_path: Path, open_store: Open) -> None:
    with contextlib.ExitStack() as stack:
        master = stack.enter_context(Server(tmp_path / "master"))
        replica = stack.enter_context(Server(tmp_path / "replica", replicaof=f"127.0.0.1 {master.port}"))
        with contextlib.closing(replica.client()) as client:
            until(lambda: b"master_link_status:up" in _text(client, "INFO", "replication"))
        with sentinel(tmp_path / "sentinel", master) as port:
            url = f"redis+sentinel://127.0.0.1:{port}/main"
            store = open_store(url, budget=0.05, timeout=0.3)
            other = open_store(url, timeout=0.3)
            store.publish("p", {"a": "1"})
            store.append(record(1))
            assert store.settle(5) and numbers(store) == [1]
            until(lambda: numbers(other) == [1])
            _until_copied(master, replica)
            master.kill()
            until(lambda: store.status().mode == "local")
            store.append(record(2))
            assert not store.settle() and numbers(store) == [2]
            until(lambda: store.status().mode == "shared" and other.status().mode == "shared", 40)
            got: list[Any] = []
            until(lambda: got.extend(numbers(other)) or got)
            assert got == [2]
            version = open_store(url).policy("p")
            assert version is not None and version.files == {"a": "1"}


def test_a_server_that_took_over_too_early_is_noticed(tmp_path: Path, own_server: Server, open_store: Open) -> None:
    """The records that a replica had read are not on the server that took over: it is told so, and goes on."""
    store = open_store(own_server.url, timeout=0.5)
    for number in range(5):
        store.append(record(number))
        assert store.settle()
    prefix = store.settings.prefix
    key = f"{prefix}:{{{prefix}.e0}}:records"
    assert numbers(store) == [0, 1, 2, 3, 4]
    with contextlib.closing(own_server.client()) as client:
        rows: Any = client.xrange(key)
        client.xtrim(key, maxlen=0)
        client.delete(key)
        for identifier, fields in rows[:3]:
            client.xadd(key, fields, id=identifier)
    taken: list[Any] = []
    until(lambda: taken.extend(store.take()) or taken)
    assert isinstance(taken[0], Gap) and len(taken) == 1
    store.append(record(5))
    assert store.settle()
    assert numbers(store) == [5]


# --- TLS ------------------------------------------------------------------------------------------------------


def test_tls(tmp_path: Path, open_store: Open) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificates of this test: install it")
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    subject = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *subject, *files]
    subprocess.run(command, check=True, capture_output=True)
    server = Server(
        tmp_path / "redis",
        tls_cert_file=str(certificate),
        tls_key_file=str(key),
        tls_ca_cert_file=str(certificate),
        tls_auth_clients="yes",
    )
    server.options |= {"tls_port": str(server.port), "port": "0"}
    server.tls = {
        "ssl": "yes",
        "ssl_ca_certs": str(certificate),
        "ssl_certfile": str(certificate),
        "ssl_keyfile": str(key),
    }
    with server:
        options = f"ssl_ca_certs={certificate}&ssl_certfile={certificate}&ssl_keyfile={key}"
        store = open_store(f"rediss://127.0.0.1:{server.port}/0?{options}")
        assert store.status().mode == "shared"
        store.append(record(1))
        assert store.settle() and numbers(store) == [1]
        nobody = open_store(f"rediss://127.0.0.1:{server.port}/0", timeout=0.5)  # it does not trust the certificate
        plain = open_store(f"redis://127.0.0.1:{server.port}/0", timeout=0.5)
        assert (nobody.status().mode, plain.status().mode) == ("local", "local")


# --- addresses ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1",
        "127.0.0.1:6379",
        "redis+cluster://127.0.0.1:nonsense",
        "redis+cluster://127.0.0.1:99999",
        "redis+sentinel://127.0.0.1:26379",
        "redis+gossip://127.0.0.1",
        "redis://127.0.0.1:nonsense",
        "redis://127.0.0.1/0?socket_timeout=nonsense",
    ],
)
def test_addresses_that_cannot_be_used_are_said(url: str) -> None:
    with pytest.raises(InputFault):
        connect(url, 1.0)


def test_passwords_go_to_the_server_as_they_are_meant(tmp_path: Path, open_store: Open) -> None:
    """One of digits stays a text, one with an at sign is written with %40."""
    with Server(tmp_path, user="app on >12@34 ~test* +@all") as server:
        good = open_store(f"redis://app:12%4034@127.0.0.1:{server.port}/0")
        assert good.status().mode == "shared"
    wire: Any = connect("redis+cluster://app:12%4034@127.0.0.1:1", 0.1)
    assert wire._options["password"] == "12@34"
    sentinel_wire: Any = connect("redis+sentinel://127.0.0.1:1/main?sentinel_password=0123&password=456", 0.1)
    pool = sentinel_wire._client.connection_pool
    assert pool.connection_kwargs["password"] == "456"
    (watcher,) = pool.sentinel_manager.sentinels
    assert watcher.connection_pool.connection_kwargs["password"] == "0123"


def test_an_address_is_shown_without_its_password() -> None:
    assert shown("rediss://me:secret@host:1/0?ssl_keyfile=x") == "rediss://host:1/0"
