"""Events on their way: one that cannot be sent costs no other its way, and neither threads nor forks stop anybody."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

import kvpolicy
from kvpolicy.client import once
from kvpolicy.client.sending import AT_ONCE, MOST, MOST_REFUSED, Sender


class Server(ThreadingHTTPServer):
    """Takes batches, and answers with the status that `judge` gives for one."""

    def __init__(self) -> None:
        self.batches: list[list[Any]] = []
        self.judge: Callable[[list[Any]], int] = lambda rows: 200
        self.again: str | None = None  # `retry-after` of what is not taken
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        rows = json.loads(self.rfile.read(int(self.headers["content-length"])))["events"]
        status = self.server.judge(rows)
        if status == 200:
            self.server.batches.append(rows)
        self.send_response(status)
        if status != 200 and self.server.again is not None:
            self.send_header("retry-after", self.server.again)
        self.end_headers()

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as made:
        threading.Thread(target=made.serve_forever, daemon=True).start()
        yield made
        made.shutdown()


def told(server: Server) -> list[str]:
    return [row["session"] for batch in server.batches for row in batch]


def until(done: Callable[[], bool]) -> None:
    ends = time.monotonic() + 20
    while not done() and time.monotonic() < ends:
        time.sleep(0.01)


def queued(service: kvpolicy.Service, sessions: list[Any]) -> None:
    """All of them at once, so that they travel together."""
    with service._sender._change:
        for session in sessions:
            service.event("resume", session=session)
    assert service.flush(20)


def told_in_vain(server: Server, status: int) -> tuple[kvpolicy.Service, list[int]]:
    """501 events to a server that answers so to everything; how many each of its batches had."""
    asked: list[int] = []

    def judge(rows: list[Any]) -> int:
        asked.append(len(rows))
        return status

    server.judge = judge
    service = kvpolicy.Service(server.url)
    queued(service, [f"s{number}" for number in range(500)])
    queued(service, ["more"])
    return service, asked


@pytest.mark.parametrize("status", [400, 413, 422])
def test_a_row_that_the_service_cannot_read_is_refused_alone(server: Server, status: int) -> None:
    server.judge = lambda rows: status if any(row["session"].startswith("bad") for row in rows) else 200
    service = kvpolicy.Service(server.url)
    names = [f"bad{number}" if number in (0, 77, 78, 199) else f"s{number}" for number in range(200)]
    queued(service, names)
    assert told(server) == [name for name in names if name.startswith("s")]
    assert service.counts == {"sent": 196, "refused": 4}


def test_a_row_that_is_no_json_is_refused_where_it_is_put(server: Server) -> None:
    service = kvpolicy.Service(server.url)
    service._sender.put({"event": "resume", "session": object()})
    service._sender.put({"event": "resume", "session": "s", "eta": float("nan")})
    queued(service, ["s1"])
    assert told(server) == ["s1"] and service.counts == {"sent": 1, "refused": 2}


@pytest.mark.parametrize("status", [400, 413, 422])
def test_a_service_that_reads_nothing_is_left_alone_for_a_while(server: Server, status: int) -> None:
    service, asked = told_in_vain(server, status)
    assert len(asked) < 32 and service.counts["refused"] == MOST_REFUSED
    assert service.counts["refused"] + service.counts["dropped"] == 501


@pytest.mark.parametrize("status", [401, 404, 429, 500, 503])
def test_a_service_that_takes_nothing_is_asked_once_and_left_alone_for_a_while(server: Server, status: int) -> None:
    service, asked = told_in_vain(server, status)
    assert len(asked) == 1 and service.counts["failed"] == asked[0]
    assert service.counts["failed"] + service.counts["dropped"] == 501


def test_what_comes_too_often_is_sent_when_the_service_says_and_in_its_order(server: Server) -> None:
    asked: list[float] = []

    def judge(rows: list[Any]) -> int:
        asked.append(time.monotonic())
        return 429 if len(asked) == 1 else 200

    server.judge, server.again = judge, "2"
    service = kvpolicy.Service(server.url)
    names = [f"s{number}" for number in range(AT_ONCE + 50)]
    with service._sender._change:
        for name in names:
            service.event("resume", session=name)
    until(lambda: bool(asked))
    service.event("resume", session="meanwhile")
    assert not service.flush(0.1)  # it waits, and is not lost
    assert service.flush(20)
    assert told(server) == [*names, "meanwhile"] and service.counts == {"sent": len(names) + 1}
    assert len(asked) == 3 and asked[1] - asked[0] >= 2
    assert once.counts == {"later": 1}


def test_no_row_overtakes_those_that_are_sent_later(server: Server) -> None:
    later = iter([False, False, True])

    def judge(rows: list[Any]) -> int:
        return 400 if any(row["session"] == "bad" for row in rows) else 429 if next(later, False) else 200

    server.judge, server.again = judge, "1"
    service = kvpolicy.Service(server.url)
    names = [f"s{number}" for number in range(16)]
    queued(service, [*names[:2], "bad", *names[2:]])
    assert told(server) == names and service.counts == {"sent": 16, "refused": 1}


def test_a_service_that_wants_to_be_asked_at_once_is_asked_once_a_second(server: Server) -> None:
    asked: list[float] = []

    def judge(rows: list[Any]) -> int:
        asked.append(time.monotonic())
        return 429

    server.judge, server.again = judge, "0"
    service = kvpolicy.Service(server.url)
    service.event("resume", session="s")
    until(lambda: len(asked) >= 2)
    service._sender.close(0.1)
    assert asked[1] - asked[0] >= 1
    until(lambda: service.counts == {"dropped": 1})
    assert service.counts == {"dropped": 1}


def test_no_thread_can_be_started(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    service = kvpolicy.Service(server.url)

    def full(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", full)
        for _ in range(3):
            service.event("resume", session="lost")
    assert service.counts == {"dropped": 3} and once.counts == {"thread": 3}
    queued(service, ["s1"])
    assert told(server) == ["s1"]


def test_a_thread_that_died_is_followed_by_another(server: Server) -> None:
    service = kvpolicy.Service(server.url)
    dead = threading.Thread(target=lambda: None)
    dead.start()
    dead.join()
    service._sender._thread = dead
    queued(service, ["s1"])
    assert told(server) == ["s1"]


def test_more_than_may_wait_is_dropped(server: Server) -> None:
    service = kvpolicy.Service(server.url)
    queued(service, [str(number) for number in range(MOST + 5)])
    assert service.counts == {"sent": MOST, "dropped": 5}


FORK = """
import os, signal, sys, threading
import kvpolicy
service = kvpolicy.Service(sys.argv[1])
service.event("resume", session="parent")
assert service.flush()
held, go = threading.Event(), threading.Event()
def hold():
    with service._sender._change:
        service.event("resume", session="of the parent")
        held.set()
        go.wait()
thread = threading.Thread(target=hold)
thread.start()
held.wait()
child = os.fork()
if child == 0:
    signal.alarm(20)
    service.event("resume", session="child")
    os._exit(0 if service.flush() else 1)
_, status = os.waitpid(child, 0)
go.set()
thread.join()
assert service.flush()
sys.exit(os.waitstatus_to_exitcode(status))
"""


def test_a_child_forked_while_another_thread_holds_the_queue(server: Server) -> None:
    command = [sys.executable, "-c", FORK, server.url]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert sorted(told(server)) == ["child", "of the parent", "parent"]


def test_close_takes_no_more(server: Server) -> None:
    sender = Sender(lambda rows: None)
    sender.put({"a": 1})
    sender.close()
    sender.put({"a": 2})
    assert sender.counts == {"sent": 1, "dropped": 1}
