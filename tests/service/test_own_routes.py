"""The gateway's own routes have the limits of every other request, and caps as large, counted apart from theirs."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from typing import Any

import httpx
import orjson
import pytest

import kvpolicy
from kvpolicy.service.app import Gateway
from tests.service.test_edge_failing_open import assembled, engine_like
from tests.service.test_edge_passing import raw, until
from tests.service.upstream import upstream

KEY = {"x-api-key": "key"}
OWN = [("GET", "/v1/owners"), ("POST", "/v1/plan"), ("POST", "/v1/events"), ("PUT", "/v1/workflows/w"),
       ("GET", "/v1/doctor"), ("GET", "/v1/runs/r"), ("GET", "/v1/explain/x")]  # fmt: skip
WRITTEN = [(method, path) for method, path in (*OWN, ("POST", "/admin/policies")) if method != "GET"]
ROW: dict[str, Any] = {"id": "r", "owner": {"session": "s"}, "model": "m", "block_size": 16, "tokens": 80,
       "spans": [{"kind": "system", "start": 0, "end": 40}]}  # fmt: skip

_ROW = orjson.dumps(ROW) + b"\n"
LINE = b"%x\r\n%s\r\n" % (len(_ROW), _ROW)  # of a stream, as a chunk


@contextmanager
def running(caps: dict[str, Any] | None = None, **limits: Any) -> Iterator[tuple[str, Gateway]]:
    tenant = [{"name": "t", "keys": [sha256(b"key").hexdigest()], "caps": caps or {}}]
    with upstream(engine_like) as engine, assembled(engine.url, tenant=tenant, limits=limits) as made:
        yield made


@contextmanager
def streaming(at: str, key: str) -> Iterator[socket.socket]:
    """A stream of plans that goes on: the first one has come back."""
    host, port = at.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=20) as stream:
        stream.sendall(
            b"POST /v1/plan HTTP/1.1\r\nhost: x\r\nx-api-key: %s\r\ncontent-type: application/x-ndjson\r\n"
            b"transfer-encoding: chunked\r\n\r\n" % key.encode() + LINE
        )
        told = b""
        while b"directives" not in told:
            told += stream.recv(65536)
        yield stream


def status_of(data: bytes) -> int:
    return int(data.split(b" ", 2)[1])


def test_a_long_head_is_refused() -> None:
    with running(header_bytes=2048) as (at, _):
        for method, path in OWN:
            assert httpx.request(method, at + path, headers={**KEY, "x-long": "x" * 2048}).status_code == 431, path


@pytest.mark.parametrize(("method", "path"), WRITTEN)
def test_a_body_that_stops_coming_is_not_waited_for(method: str, path: str) -> None:
    with running(client_idle_s=0.3) as (at, made):
        head = f"{method} {path} HTTP/1.1\r\nhost: x\r\nx-api-key: key\r\ncontent-length: 100\r\n\r\n{{"
        answer = raw(at, head.encode())
        assert status_of(answer) == 408
        assert b"connection: close" in answer
        assert (
            made.proxy.own_admission._accounts.get("t") is None or made.proxy.own_admission._accounts["t"].running == 0
        )


def test_nor_one_that_takes_for_ever() -> None:
    with running(body_s=0.5, client_idle_s=30) as (at, _):
        host, port = at.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=20) as slow:
            slow.sendall(b"POST /v1/events HTTP/1.1\r\nhost: x\r\nx-api-key: key\r\ncontent-length: 1000\r\n\r\n{")
            slow.settimeout(0.1)
            answer = b""
            for _ in range(100):
                try:
                    answer = slow.recv(65536)
                    break
                except TimeoutError:
                    slow.sendall(b" ")
        assert status_of(answer) == 408


def test_a_body_that_is_too_large_is_refused() -> None:
    with running(body_bytes=4096) as (at, _):
        for method, path in WRITTEN:
            answer = httpx.request(method, at + path, headers=KEY, content=b" " * 5000)
            assert answer.status_code == 413, path


def test_requests_a_minute_are_those_of_own_routes_too() -> None:
    with running({"requests_per_minute": 3}) as (at, _):
        found = [httpx.get(f"{at}/v1/owners", headers=KEY) for _ in range(4)]
        assert [answer.status_code for answer in found] == [200, 200, 200, 429]
        assert int(found[3].headers["retry-after"]) >= 1
        for method, path in OWN:
            assert httpx.request(method, at + path, headers=KEY, content=b"{}").status_code == 429, path


def test_what_a_client_tells_takes_nothing_from_its_model_requests() -> None:
    with running({"requests_per_minute": 2, "concurrent": 1}) as (at, made):
        for _ in range(2):
            assert httpx.post(f"{at}/v1/events", headers=KEY, content=b"[]").status_code == 200
        assert httpx.post(f"{at}/v1/events", headers=KEY, content=b"[]").status_code == 429
        made.proxy.own_admission._accounts["t"].running = 1
        chat = {"model": "m", "messages": [{"role": "user", "content": "x"}]}
        told = [httpx.post(f"{at}/v1/chat/completions", headers=KEY, json=chat).status_code for _ in range(3)]
        assert told == [200, 200, 429]


def test_events_that_come_too_often_arrive_when_the_gateway_said() -> None:
    with running({"requests_per_minute": 60}) as (at, made):
        assert httpx.get(f"{at}/v1/owners", headers=KEY).status_code == 200
        made.proxy.own_admission._accounts["t"].left = 0
        service = kvpolicy.Service(at, key="key")
        service.event("resume", session="s")
        assert service.flush(20)
        assert service.counts == {"sent": 1}


def test_a_stream_of_plans_counts_for_as_long_as_it_runs() -> None:
    with running({"concurrent": 1}) as (at, made):
        with streaming(at, "key"):
            assert httpx.get(f"{at}/v1/owners", headers=KEY).status_code == 429
        assert until(lambda: httpx.get(f"{at}/v1/owners", headers=KEY).status_code == 200)
        assert made.proxy.own_admission._accounts["t"].running == 0


@pytest.mark.parametrize(
    ("row", "most"),
    [
        ({**ROW, "tokens": 16 * 1000}, 200),
        ({**ROW, "spans": [{"kind": "turn", "start": 0, "end": 0}] * 999 + ROW["spans"]}, 100),
    ],
    ids=["blocks", "spans"],
)
def test_the_plans_of_one_call_are_no_more_than_the_longest_of_one(row: dict[str, Any], most: int) -> None:
    with running() as (at, _):
        told = httpx.post(f"{at}/v1/plan", headers=KEY, json={"requests": [row] * (most + 1)}, timeout=60)
        assert told.status_code == 413
        assert "x-ndjson" in told.json()["error"]["message"]
        rows = [row, {**ROW, "tokens": -1}, "none", {**ROW, "block_size": 0}, {**ROW, "spans": 7}]
        plans = httpx.post(f"{at}/v1/plan", headers=KEY, json={"requests": rows}, timeout=60).json()["plans"]
        assert ["directives" in plan for plan in plans] == [True, False, False, False, False]
        alone = httpx.post(f"{at}/v1/plan", headers=KEY, json={"request": row}, timeout=60).json()
        assert plans[0] | {"at": 0, "valid_until": 0} == alone | {"at": 0, "valid_until": 0}


def streamed(at: str, lines: int, last: bytes = b"\n") -> list[dict[str, Any]]:
    sent = b"\n".join([orjson.dumps(ROW)] * lines) + last
    answer = httpx.post(f"{at}/v1/plan", headers={**KEY, "content-type": "application/x-ndjson"}, content=sent)
    assert answer.status_code == 200
    return [orjson.loads(line) for line in answer.content.splitlines()]


@pytest.mark.parametrize("last", [b"\n", b""])
def test_each_line_of_a_stream_is_one_of_a_minute_s_requests(last: bytes) -> None:
    with running({"requests_per_minute": 4}) as (at, made):
        rows = streamed(at, 3, last)
        assert all("directives" in row for row in rows)
        assert len(rows) == 3
        assert httpx.get(f"{at}/v1/owners", headers=KEY).status_code == 200
        assert httpx.get(f"{at}/v1/owners", headers=KEY).status_code == 429
        made.proxy.own_admission._accounts["t"].left = 2
        *planned, said = streamed(at, 3, last)
        assert all("directives" in row for row in planned)
        assert len(planned) == 2
        assert "4 requests in a minute" in said["error"]
        assert 1 <= said["retry_after_s"] <= 15
        assert until(lambda: made.proxy.own_admission._accounts["t"].running == 0)


def test_a_client_that_sends_lines_and_reads_none_loses_its_place() -> None:
    with running({"concurrent": 1}, client_idle_s=0.5, body_s=600) as (at, made):
        host, port = at.removeprefix("http://").split(":")
        long = {**ROW, "tokens": 16 * 20_000, "spans": [{"kind": "system", "start": 0, "end": 16 * 20_000}]}
        line = orjson.dumps(long) + b"\n"
        with socket.create_connection((host, int(port)), timeout=20) as stream:
            stream.sendall(
                b"POST /v1/plan HTTP/1.1\r\nhost: x\r\nx-api-key: key\r\ncontent-type: application/x-ndjson\r\n"
                b"transfer-encoding: chunked\r\n\r\n"
            )
            stream.sendall((b"%x\r\n%s\r\n" % (len(line), line)) * 20)
            assert until(lambda: "t" in made.proxy.own_admission._accounts)
            assert until(lambda: made.proxy.own_admission._accounts["t"].running == 0)
            assert httpx.get(f"{at}/v1/owners", headers=KEY).status_code == 200


def test_a_stream_that_stops_coming_ends_with_a_line_that_says_so() -> None:
    with running(client_idle_s=0.3) as (at, _):
        host, port = at.removeprefix("http://").split(":")
        line, told = orjson.dumps(ROW) + b"\n", b""
        with socket.create_connection((host, int(port)), timeout=20) as stream:
            stream.sendall(
                b"POST /v1/plan HTTP/1.1\r\nhost: x\r\nx-api-key: key\r\ncontent-type: application/x-ndjson\r\n"
                b"transfer-encoding: chunked\r\n\r\n%x\r\n%s\r\n" % (len(line), line)
            )
            while part := stream.recv(65536):  # the connection is closed: what may still come belongs to nobody
                told += part
        assert status_of(told) == 200
        assert b"directives" in told
        assert b"nothing of the body came" in told


@pytest.mark.parametrize(("method", "path"), OWN)
def test_nobodys_request_is_refused_and_its_body_not_waited_for(method: str, path: str) -> None:
    with running() as (at, _):
        head = f"{method} {path} HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n".encode()
        answer = raw(at, head)
        assert status_of(answer) == 401
        assert b"connection: close" in answer
