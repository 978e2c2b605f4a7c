"""The gateway passes requests on and answers back: bytes as they come, headers, cancels, faults of the upstream."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest

from tests.simulated.running import running

CHAT = {
    "model": "sim",
    "messages": [{"role": "user", "content": "tell me more about it"}],
    "max_tokens": 30,
    "ignore_eos": True,
}


@pytest.fixture(scope="module")
def engine() -> Iterator[str]:
    with running("engine", "--blocks", "200", "--decode-s", "0.001") as at:
        yield at


@pytest.fixture(scope="module")
def gateway(engine: str) -> Iterator[str]:
    with running("serve", "--upstream", engine, "--mode", "off") as at:
        yield at


def without_times(text: str) -> str:
    import re

    return re.sub(r'"(id|created)":("[^"]*"|\d+)', "", text)


def test_a_stream_comes_back_byte_for_byte(engine: str, gateway: str) -> None:
    ask = {**CHAT, "stream": True, "stream_options": {"include_usage": True}}
    httpx.post(f"{engine}/v1/chat/completions", json=ask)  # both of the following find the same cached
    direct = httpx.post(f"{engine}/v1/chat/completions", json=ask)
    through = httpx.post(f"{gateway}/v1/chat/completions", json=ask)
    assert through.headers["content-type"] == direct.headers["content-type"]
    assert without_times(through.text) == without_times(direct.text)


def test_other_paths_go_through_untouched(engine: str, gateway: str) -> None:
    assert httpx.get(f"{gateway}/v1/models").json() == httpx.get(f"{engine}/v1/models").json()
    body = {"prompt": "a b c", "kv_hints": 1}
    assert httpx.post(f"{gateway}/tokenize", json=body).json()["count"] == 3
    assert httpx.get(f"{gateway}/nothing/there").status_code == 404
    assert httpx.post(f"{gateway}/v1/chat/completions", json={"messages": 3}).status_code == 400


def test_a_client_that_leaves_cancels_at_the_engine(engine: str, gateway: str) -> None:
    with running("engine", "--blocks", "100", "--decode-s", "0.05") as slow, running("serve", "--upstream", slow) as at:
        ask = {**CHAT, "max_tokens": 400, "stream": True}
        with httpx.stream("POST", f"{at}/v1/chat/completions", json=ask) as answer:
            lines = answer.iter_lines()
            next(lines)
            assert httpx.get(f"{slow}/sim/blocks").json()["available"] < 100
        ends = time.monotonic() + 10
        while httpx.get(f"{slow}/sim/blocks").json()["available"] < 100 and time.monotonic() < ends:
            time.sleep(0.05)
        assert httpx.get(f"{slow}/sim/blocks").json()["available"] == 100


# --- upstreams that fail --------------------------------------------------------------------------------------


@contextmanager
def upstream(answer: bytes, *, hang: bool = False) -> Iterator[str]:
    """A server that reads a request, sends `answer`, and closes (or hangs)."""
    listener = socket.create_server(("127.0.0.1", 0))
    done = threading.Event()

    def serve() -> None:
        while not done.is_set():
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                connection.recv(65536)
                connection.sendall(answer)
                if hang:
                    done.wait(20)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        done.set()
        listener.close()


@contextmanager
def refused() -> Iterator[str]:
    """Where nobody listens, and nobody else can: the port is taken."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"


def test_an_upstream_that_is_away_is_a_502_and_another_takes_over(engine: str) -> None:
    with refused() as away, running("serve", "--upstream", away) as at:
        answer = httpx.post(f"{at}/v1/chat/completions", json=CHAT)
        assert answer.status_code == 502
        assert "no upstream" in answer.json()["error"]["message"]
    with refused() as away, running("serve", "--upstream", away, "--upstream", engine) as at:
        assert httpx.post(f"{at}/v1/chat/completions", json=CHAT).status_code == 200


def test_an_upstream_that_ends_before_it_answers_is_not_asked_twice() -> None:
    with upstream(b"") as dead, running("serve", "--upstream", dead) as at:
        answer = httpx.post(f"{at}/v1/messages", json={**CHAT, "max_tokens": 4})
        assert answer.status_code == 502
        assert answer.json()["type"] == "error"


def test_an_answer_that_breaks_off_is_not_ended_cleanly() -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    with upstream(head + b"6\r\ndata: \r\n") as dying, running("serve", "--upstream", dying) as at:
        with pytest.raises(httpx.RemoteProtocolError):
            httpx.post(f"{at}/v1/chat/completions", json={**CHAT, "stream": True})
        assert httpx.get(f"{at}/healthz").status_code == 200


@pytest.mark.parametrize(
    ("content", "status", "said"),
    [(b"{", 400, "not JSON"), (b"[]", 400, "JSON object"), (b"\xff\xfe", 400, "not JSON")],
)
def test_bodies_that_are_none_are_refused(gateway: str, content: bytes, status: int, said: str) -> None:
    answer = httpx.post(f"{gateway}/v1/chat/completions", content=content)
    assert answer.status_code == status
    assert said in answer.json()["error"]["message"]


def test_fields_that_steer_the_engine_itself_stay_here() -> None:
    taken = []
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while not taken:
            connection, _ = listener.accept()
            with connection:
                data = connection.recv(65536)
                if not data.startswith(b"GET /health "):  # asked beside requests
                    while b"}}" not in data:
                        data += connection.recv(65536)
                    taken.append(data)
                connection.sendall(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{}")

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    with running("serve", "--upstream", url, "--mode", "off") as at:
        raw = {
            "kv_hints": [1],
            "kv_transfer_params": {"a": 1},
            "priority": 3,
            "cache_salt": "mine",
            "kvp": {"final": True},
        }
        arguments = {"vllm_xargs": {"kvpolicy": "{}", "kept": "{}}"}}
        headers = {"x-kvp-context": 'session="s"', "x-vllm-priority": "1", "x-other": "kept"}
        httpx.post(f"{at}/v1/chat/completions", json={**CHAT, **raw, **arguments}, headers=headers)
    thread.join(5)
    listener.close()
    sent = taken[0].decode()
    assert "kept" in sent
    assert "x-other" in sent
    for word in ("kv_hints", "kv_transfer", "priority", "mine", '"kvp"', "x-kvp", "x-vllm", "kvpolicy"):
        assert word not in sent
