"""What must last, lasts: over a restart of the service, a restart of Redis, and a crash in the middle of a write."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kvpolicy.faults import InputFault
from kvpolicy.request import Owner
from kvpolicy.store.learned import keep_learned, take_up
from kvpolicy.store.memory import MemoryStore
from kvpolicy.store.shelf import Shelf
from kvpolicy.workflow.events import Event
from kvpolicy.workflow.learned import Learned
from kvpolicy.workflow.state import RunState
from tests.store.conftest import Open
from tests.store.servers import Server, free_port, until


def taught(tools: int = 5, tenant: str = "t") -> RunState:
    """A run state that has seen some tools return."""
    state = RunState()
    owner = Owner(tenant, "s")
    for number in range(tools):
        state.observe(Event(10.0 * number, "tool_call", {"tool": "grep", "call": f"c{number}"}), owner)
        state.observe(Event(10.0 * number + 3.0, "tool_result", {"tool": "grep", "call": f"c{number}"}), owner)
    return state


# --- files ----------------------------------------------------------------------------------------------------


def test_a_restart_of_the_service_with_files(tmp_path: Path) -> None:
    first = MemoryStore(tmp_path)
    first.publish("p", {"a": "1"})
    first.publish("p", {"a": "2"})
    assert keep_learned(first, taught().learned, "me") == 1
    first.renew_salt("t")
    salt = first.salt("t")
    second = MemoryStore(tmp_path)
    assert second.policy("p") == first.policy("p")
    assert second.salt("t") == salt
    back = second.roll_back("p")
    assert back.version is not None and (back.version.files, back.version.serial) == ({"a": "1"}, 3)
    learned = Learned()
    assert take_up(second, learned, "t")
    assert learned.export("t") == taught().learned.export("t")
    assert not take_up(second, learned, "t")  # no more is known than it knows


def test_the_best_document_is_taken_and_what_does_not_fit_is_passed_over() -> None:
    store = MemoryStore()
    keep_learned(store, taught(9).learned, "old")
    keep_learned(store, taught(2).learned, "young")
    store.keep("learned", "t", "other version", {"version": 99})
    store.keep("learned", "t", "nonsense", {"version": 2, "tool": 5})
    store.keep("learned", "t", "damaged", {**taught(20).learned.export("t"), "sessions": None})
    learned = Learned()
    assert take_up(store, learned, "t")
    assert learned.export("t") == taught(9).learned.export("t")
    assert not take_up(store, Learned(), "u")


def test_looking_for_what_was_learned_makes_no_tenant() -> None:
    store, learned = MemoryStore(), Learned()
    keep_learned(store, learned, "of nobody", ["t"])
    assert not take_up(store, learned, "t")
    assert learned.tenants() == ()


def test_only_its_owner_reads_the_files(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "folder"
    store = MemoryStore(folder)
    store.salt("t")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert [stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()] == [0o600]


@pytest.mark.parametrize("damage", ["cut", "flipped", "emptied", "gone", "another text", "another version"])
def test_a_damaged_file_gives_the_one_before(tmp_path: Path, damage: str) -> None:
    shelf = Shelf(tmp_path)
    for number in (1, 2, 3):
        assert shelf.write("x", {"n": number})
    place = tmp_path / "x"
    data = place.read_bytes()
    if damage == "gone":
        place.unlink()
    else:
        place.write_bytes(
            {
                "cut": data[:-1],
                "flipped": data[:-2] + bytes([data[-2] ^ 1]) + data[-1:],
                "emptied": b"",
                "another text": b'{"n": 3}',
                "another version": data.replace(b"kvpolicy 1", b"kvpolicy 2"),
            }[damage]
        )
    again = Shelf(tmp_path)
    assert again.read("x") == {"n": 2}
    assert again.torn == (damage != "gone")
    assert again.write("x", {"n": 4})  # and the torn file does not take the whole one's place
    place.write_bytes(b"")
    assert Shelf(tmp_path).read("x") == {"n": 2}


def test_what_a_crash_left_lying_is_removed(tmp_path: Path) -> None:
    Shelf(tmp_path).write("x", {"n": 1})
    (tmp_path / "x.new-12345").write_bytes(b"half")
    shelf = Shelf(tmp_path)
    assert shelf.names() == ["x"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x"]


def test_documents_that_are_whole_and_do_not_fit_are_counted(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path)
    shelf.write("versions", {"p": {"current": [1, 1]}})
    shelf.write("documents-1", {"kind": "learned"})
    shelf.write("key", {"key": "no hexadecimals"})
    store = MemoryStore(tmp_path)
    assert store.counters["unreadable"] == 3
    assert store.publish("p", {"a": "1"}).accepted


def test_folders_that_cannot_be_used_are_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputFault, match="folder"):
        MemoryStore(tmp_path / "file")


def test_a_full_disk_is_counted_and_stops_nothing(tmp_path: Path) -> None:
    store = MemoryStore(tmp_path / "x")
    store.publish("p", {"a": "1"})
    shutil.rmtree(tmp_path / "x")  # as root any mode can be written: a folder that went is what cannot
    assert store.publish("p", {"a": "2"}).accepted
    assert store.counters["unwritten"] == 1
    assert not store.keep("learned", "t", "a", {})


WRITES_UNTIL_KILLED = """
import sys
from kvpolicy.store.memory import MemoryStore
store, number = MemoryStore(sys.argv[1]), 0
while True:
    number += 1
    if number == 2:
        print("ready", flush=True)  # something was written
    store.publish("p", {"a": f"{number} " * 5000})
    store.keep("learned", "t", "a", {"n": number, "padding": [number] * 5000})
"""


def test_killed_in_the_middle_of_a_write(tmp_path: Path) -> None:
    latest = 0
    for attempt in range(8):
        command = [sys.executable, "-c", WRITES_UNTIL_KILLED, str(tmp_path)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        time.sleep(0.02 + 0.02 * attempt)
        process.kill()
        process.wait()
        process.stdout.close()
        shelf = Shelf(tmp_path)
        rows = {name: shelf.read(name) for name in shelf.names()}
        assert all(row is not None for row in rows.values())
        assert shelf.torn == 0  # not even the former was needed: a file is moved to its place whole
        store = MemoryStore(tmp_path)
        assert store.counters["unreadable"] == 0
        version = store.policy("p")
        assert version is not None
        assert len(set(version.files["a"].split())) == 1  # all of one write
        for document in store.kept("learned", "t"):
            assert set(document.body["padding"]) == {document.body["n"]}  # type: ignore[call-overload]
        assert version.serial > latest
        latest = version.serial


# --- Redis ----------------------------------------------------------------------------------------------------


def test_a_restart_of_the_service_over_redis(own_server: Server, open_store: Open) -> None:
    first = open_store(own_server.url)
    first.publish("p", {"a": "1"})
    first.publish("p", {"a": "2"})
    assert keep_learned(first, taught().learned, "replica 1") == 1
    salt = first.salt("t")
    first.close()
    second = open_store(own_server.url)
    assert second.policy("p") == first.policy("p")
    assert second.salt("t") == salt
    learned = Learned()
    assert take_up(second, learned, "t")
    assert learned.export("t") == taught().learned.export("t")


def test_a_restart_of_redis_with_persistence_while_no_replica_is_up(tmp_path: Path, open_store: Open) -> None:
    with Server(tmp_path, appendonly="yes", appendfsync="always") as server:
        first = open_store(server.url)
        first.publish("p", {"a": "1"})
        first.publish("p", {"a": "2"})
        keep_learned(first, taught().learned, "replica 1")
        salt = first.salt("t")
        first.close()
        server.restart()
        second = open_store(server.url)
        version = second.policy("p")
        assert version is not None and (version.serial, version.files) == (2, {"a": "2"})
        assert second.salt("t") == salt
        learned = Learned()
        assert take_up(second, learned, "t")
        with contextlib.closing(server.client()) as client:
            assert all(int(client.pttl(key)) > 0 for key in client.scan_iter())  # type: ignore[arg-type]
        back = second.roll_back("p")
        assert back.accepted and back.version is not None and back.version.files == {"a": "1"}


def test_redis_killed_in_the_middle_of_writes_is_readable(tmp_path: Path, open_store: Open) -> None:
    with Server(tmp_path, appendonly="yes", appendfsync="always") as server:
        writer = open_store(server.url, patience=0.5, timeout=0.5)
        serial = 0
        for _ in range(4):
            end = time.monotonic() + 0.15
            while time.monotonic() < end:
                answer = writer.publish("p", {"a": f"{serial + 1} " * 3000})
                assert answer.accepted and answer.version is not None
                serial = answer.version.serial
            server.kill()
            until(lambda: writer.status().mode == "local")
            server.start()
            until(lambda: writer.status().mode == "shared")
            reader = open_store(server.url)
            version = reader.policy("p")
            assert version is not None and version.serial >= serial
            assert len(set(version.files["a"].split())) == 1
            reader.close()


def test_files_stand_in_while_redis_and_the_service_are_down(tmp_path: Path, open_store: Open) -> None:
    url = f"redis://127.0.0.1:{free_port()}/0"
    first = open_store(url, tmp_path / "files", patience=0.1)
    assert first.publish("p", {"a": "1"}).accepted
    assert keep_learned(first, taught().learned, "me") == 1  # on disk
    first.close()
    second = open_store(url, tmp_path / "files", patience=0.1)
    assert second.policy("p") == first.policy("p") is not None
    assert take_up(second, Learned(), "t")


def test_the_file_format_is_what_the_page_says(tmp_path: Path) -> None:
    Shelf(tmp_path).write("x", {"n": 1})
    head, _, body = (tmp_path / "x").read_bytes().partition(b"\n")
    assert head.split()[:2] == [b"kvpolicy", b"1"] and json.loads(body) == {"n": 1}
    assert os.listdir(tmp_path) == ["x"]
