"""What comes behind a head that nobody reads: trailers are bounded, and a refusal does not wait for a body's rest."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from tests.service.gateway import gateway
from tests.service.test_edge_passing import PATH, raw, until
from tests.service.test_edge_refusals import hashed, status_of
from tests.service.upstream import upstream

LIMITS = {"header_bytes": 2048, "client_idle_s": 5, "body_s": 20}
CHUNKED = f"POST {PATH} HTTP/1.1\r\nhost: x\r\nx-api-key: a\r\ntransfer-encoding: chunked\r\n".encode()
TENANTS = [
    {"name": "a", "keys": [hashed("a")]},
    {"name": "b", "keys": [hashed("b")], "caps": {"requests_per_minute": 1}},
]


@pytest.fixture(scope="module")
def edge() -> Iterator[Any]:
    with upstream() as engine, gateway(engine.url, limits=LIMITS, tenant=TENANTS) as (at, made):
        yield at, made, engine


def test_no_trailer_is_kept(edge: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    at, _, engine = edge
    kept: list[int] = []
    complete = HttpToolsProtocol.on_message_complete

    def looked(self: HttpToolsProtocol) -> None:
        kept.append(sum(name == b"x-t" for name, _ in self.headers))
        complete(self)

    monkeypatch.setattr(HttpToolsProtocol, "on_message_complete", looked)
    body = b'{"model":"m","messages":[]}'
    data = CHUNKED + b"connection: close\r\n\r\n" + b"%x\r\n" % len(body) + body + b"\r\n0\r\n" + b"x-t: 1\r\n" * 50
    assert status_of(raw(at, data + b"\r\n", 10)) == 200
    assert kept == [0]
    assert "x-t" not in dict(engine.asked[-1].headers)


@pytest.mark.parametrize("line", [b"x-t: " + b"a" * 60, b"x-" + b"t" * 60 + b": 1\r\n", b"a" * 64, b"x-t: 1\r\n" * 8])
def test_trailers_without_an_end_are_cut_off(edge: Any, line: bytes) -> None:
    at, made, engine = edge
    before, host = len(engine.asked), at.removeprefix("http://").split(":")
    sent = 0
    with socket.create_connection((host[0], int(host[1])), timeout=10) as client:
        client.sendall(CHUNKED + b"\r\n2\r\n{}\r\n0\r\n")
        with suppress(ConnectionError):
            while sent < 8 << 20:
                sent += client.send(line * 64)
            client.shutdown(socket.SHUT_WR)
    assert sent < 8 << 20, "all of it was taken"
    assert until(lambda: made.proxy.running == 0)
    assert len(engine.asked) == before


@pytest.mark.parametrize(
    ("path", "key", "status"),
    [
        (PATH, "nobody", 401),
        (PATH, "b", 429),
        ("/reset_prefix_cache", "a", 403),
        ("//v1/chat/completions", "a", 404),
        ("/v1/../x", "a", 400),
    ],
)
@pytest.mark.parametrize("length", ["content-length: 1000000", "transfer-encoding: chunked"])
def test_a_refusal_does_not_wait_for_the_rest_of_the_body(
    edge: Any, path: str, key: str, status: int, length: str
) -> None:
    at, _, _ = edge
    if status == 429:
        raw(at, f"GET /v1/models HTTP/1.1\r\nhost: x\r\nx-api-key: {key}\r\nconnection: close\r\n\r\n".encode(), 10)
    host = at.removeprefix("http://").split(":")
    head = f"POST {path} HTTP/1.1\r\nhost: x\r\nx-api-key: {key}\r\n{length}\r\n\r\n"
    with socket.create_connection((host[0], int(host[1])), timeout=10) as client:
        client.sendall(head.encode())
        answer = b""
        while part := client.recv(65536):  # until the gateway closes: a TimeoutError where it does not
            answer += part
    assert status_of(answer) == status
    assert b"connection: close" in answer.lower()
