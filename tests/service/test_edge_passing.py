"""What goes out is what came in, and what comes back is what the engine said: bytes, headers, targets, breaks."""

from __future__ import annotations

import asyncio
import gzip
import socket
import threading
import time

import httpx
import orjson
import pytest

from kvpolicy.service.exchange import Exchange
from tests.service.gateway import gateway
from tests.service.upstream import OK, Asked, upstream

CHAT = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
PATH = "/v1/chat/completions"


def chunked(*parts: bytes) -> bytes:
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts)


STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def until(holds: object, within: float = 20.0) -> bool:
    ends = time.monotonic() + within
    while time.monotonic() < ends:
        if holds():  # type: ignore[operator]
            return True
        time.sleep(0.02)
    return False


def raw(url: str, data: bytes, within: float = 20.0) -> bytes:
    """Everything that comes back for these bytes, until the other side closes or is silent behind an answer."""
    host, port = url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=within) as connection:
        connection.sendall(data)
        got = b""
        try:
            while part := connection.recv(65536):
                got += part
                connection.settimeout(0.3)
        except (TimeoutError, ConnectionResetError):
            pass
        return got


# --- out ------------------------------------------------------------------------------------------------------


def test_targets_and_headers_go_out_as_they_came() -> None:
    with upstream() as engine, gateway(engine.url) as (at, _):
        head = (
            "GET /files/caf%C3%A9%2Fa%20b;x=1?q=%zz&q=2&%C3%A4 HTTP/1.1\r\nhost: elsewhere\r\nx-one: a\r\nx-one: b\r\n"
            "X-Mixed: Ä\r\nconnection: close, x-hop\r\nx-hop: 1\r\n\r\n"
        )
        assert raw(at, head.encode()).startswith(b"HTTP/1.1 200")
        asked = engine.asked[0]
        assert asked.line == "GET /files/caf%C3%A9%2Fa%20b;x=1?q=%zz&q=2&%C3%A4 HTTP/1.1"
        assert asked.named("x-one") == ["a", "b"]
        assert asked.named("x-mixed") == ["Ä".encode().decode("latin-1")]
        assert asked.named("x-hop") == []
        assert asked.named("host") == [engine.url.removeprefix("http://")]
        for name in ("user-agent", "accept", "accept-encoding", "content-type"):
            assert asked.named(name) == [], name  # nothing is added


@pytest.mark.parametrize("target", ["http://203.0.113.9/x", "//203.0.113.9/x"])
def test_where_a_request_goes_is_the_configurations_word(target: str) -> None:
    with upstream() as engine, gateway(engine.url) as (at, _):
        raw(at, f"GET {target} HTTP/1.1\r\nhost: 203.0.113.9\r\nx-forwarded-host: 203.0.113.9\r\n\r\n".encode(), 2)
        (asked,) = engine.asked
        assert asked.named("host") == [engine.url.removeprefix("http://")]


def test_a_redirect_is_told_not_followed() -> None:
    async def moved(_: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 307 T\r\nlocation: http://203.0.113.9/\r\ncontent-length: 0\r\n\r\n")

    with upstream(moved) as engine, gateway(engine.url) as (at, _):
        answer = httpx.get(f"{at}/x")
        assert answer.status_code == 307
        assert answer.headers["location"] == "http://203.0.113.9/"
        assert len(engine.asked) == 1


# --- back -----------------------------------------------------------------------------------------------------


def test_compressed_answers_and_doubled_headers_come_back_as_they_are() -> None:
    packed = gzip.compress(b"x" * 1000)

    async def answer(_: Asked, writer: asyncio.StreamWriter) -> None:
        head = "HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\nset-cookie: a=1\r\nset-cookie: b=2\r\n"
        writer.write(f"{head}content-length: {len(packed)}\r\n\r\n".encode() + packed)

    with upstream(answer) as engine, gateway(engine.url) as (at, _):
        with httpx.stream("GET", f"{at}/file", headers={"accept-encoding": "gzip"}) as got:
            assert b"".join(got.iter_raw()) == packed
            assert got.headers.get_list("set-cookie") == ["a=1", "b=2"]
        assert engine.asked[0].named("accept-encoding") == ["gzip"]


def test_head_has_the_length_and_no_body() -> None:
    async def answer(_: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 123\r\n\r\n")

    with upstream(answer) as engine, gateway(engine.url) as (at, _):
        got = httpx.head(f"{at}/file")
        assert (got.status_code, got.headers["content-length"], got.content) == (200, "123", b"")


@pytest.mark.parametrize("status", [204, 304, 404, 418, 500])
def test_statuses_come_back(status: int) -> None:
    async def answer(_: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(
            f"HTTP/1.1 {status} X\r\n".encode() + (b"" if status in (204, 304) else b"content-length: 0\r\n") + b"\r\n"
        )

    with upstream(answer) as engine, gateway(engine.url) as (at, _):
        assert httpx.post(at + PATH, json=CHAT).status_code == status


def test_a_stream_comes_piece_by_piece_and_stages_see_it() -> None:
    seen: list[bytes] = []
    more = threading.Event()

    class Watching:
        name = "watching"

        async def enter(self, exchange: Exchange) -> None:
            exchange.answer_headers["x-kvp-decision"] = "a"

        def chunk(self, exchange: Exchange, data: bytes) -> None:
            seen.append(data)

        def leave(self, exchange: Exchange, how: str) -> None:
            seen.append(how.encode())

    async def answer(_: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM + chunked(b"data: 1\n\n"))
        await writer.drain()
        while not more.is_set():
            await asyncio.sleep(0.01)
        writer.write(chunked(b"data: \xff\x00 2\n\n") + b"0\r\n\r\n")

    with upstream(answer) as engine, gateway(engine.url, stages=[Watching()]) as (at, _):
        with httpx.stream("POST", at + PATH, json={**CHAT, "stream": True}, timeout=20) as got:
            parts = got.iter_raw()
            assert next(parts) == b"data: 1\n\n"  # before the answer has ended
            more.set()
            assert b"".join(parts) == b"data: \xff\x00 2\n\n"
            assert got.headers["x-kvp-decision"] == "a"
        assert until(lambda: seen[-1:] == [b"done"])
        assert b"".join(seen[:-1]) == b"data: 1\n\ndata: \xff\x00 2\n\n"


# --- breaks ---------------------------------------------------------------------------------------------------


def test_a_client_that_leaves_ends_the_request_at_the_engine() -> None:
    async def answer(_: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM)
        while True:
            writer.write(chunked(b"data: x\n\n"))
            await writer.drain()
            await asyncio.sleep(0.01)

    with upstream(answer) as engine, gateway(engine.url) as (at, made):
        with httpx.stream("POST", at + PATH, json=CHAT) as got:
            next(got.iter_raw())
        assert until(lambda: engine.gone == 1)
        assert until(lambda: made.proxy.running == 0)
        assert made.proxy.counts["cancelled"] == 1


def test_a_client_that_leaves_before_the_first_byte_ends_it_too() -> None:
    async def never(_: Asked, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(60)

    with upstream(never) as engine, gateway(engine.url) as (at, made):
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(at + PATH, json=CHAT, timeout=1)
        assert until(lambda: made.proxy.running == 0)
        assert len(engine.asked) == 1


@pytest.mark.parametrize(
    "begun", [b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{", STREAM + b"9\r\nda"]
)
def test_an_upstream_that_dies_is_asked_once_and_never_ends_cleanly(begun: bytes) -> None:
    async def dying(_: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(begun)
        await writer.drain()
        writer.close()

    with upstream(dying) as engine, upstream() as other, gateway(engine.url, other.url) as (at, made):
        made.upstreams.engines[1].running = 5  # the other one is busy: the dying one is asked first
        try:
            assert httpx.post(at + PATH, json=CHAT, timeout=20).status_code == 502
        except httpx.RemoteProtocolError:
            assert b"\r\n\r\n" in begun  # an answer that was begun is not ended
        assert (len(engine.asked), len(other.asked)) == (1, 0)
        assert until(lambda: made.proxy.running == 0)


def test_an_upstream_that_is_silent_is_given_up() -> None:
    async def half(_: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM + chunked(b"data: 1\n\n"))
        await asyncio.sleep(60)

    async def never(_: Asked, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(60)

    limits = {"idle_s": 0.3, "first_byte_s": 0.3}
    with upstream(never) as engine, gateway(engine.url, limits=limits) as (at, _):
        assert httpx.post(at + PATH, json=CHAT, timeout=20).status_code == 504
    with upstream(half) as engine, gateway(engine.url, limits=limits) as (at, made):
        with pytest.raises(httpx.RemoteProtocolError):
            httpx.post(at + PATH, json=CHAT, timeout=20)
        assert until(lambda: made.proxy.running == 0)


def test_a_connection_that_the_engine_has_closed_is_not_used_again() -> None:
    async def once(_: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(OK)
        await writer.drain()
        writer.close()  # though it said nothing of closing

    with upstream(once) as engine, gateway(engine.url) as (at, _):
        for _ in range(5):
            assert httpx.post(at + PATH, json=CHAT).status_code == 200
            assert until(lambda: engine.open == 0)


def test_a_retry_by_the_client_is_one_more_request_and_never_ours() -> None:
    async def fails(_: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 503 X\r\ncontent-length: 0\r\n\r\n")

    with upstream(fails) as engine, gateway(engine.url) as (at, _):
        headers = {"idempotency-key": "k", "x-stainless-retry-count": "1"}
        assert httpx.post(at + PATH, json=CHAT, headers=headers).status_code == 503
        assert len(engine.asked) == 1
        assert engine.asked[0].named("idempotency-key") == ["k"]
        assert engine.asked[0].named("x-stainless-retry-count") == ["1"]


def test_a_slow_client_holds_the_answer_back_at_the_engine() -> None:
    """50 MB: while the client reads nothing, the engine can write no more than some buffers."""
    size, piece, written = 50 << 20, b"x" * 65536, [0]

    async def big(_: Asked, writer: asyncio.StreamWriter) -> None:
        writer.transport.set_write_buffer_limits(high=65536)
        writer.write(f"HTTP/1.1 200 OK\r\ncontent-length: {size}\r\n\r\n".encode())
        while written[0] < size:
            writer.write(piece)
            await writer.drain()
            written[0] += len(piece)

    with upstream(big) as engine, gateway(engine.url) as (at, made):
        host, port = at.removeprefix("http://").split(":")
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
            client.connect((host, int(port)))
            body = orjson.dumps(CHAT)
            client.sendall(f"POST {PATH} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body)
            before = -1
            while before != written[0]:  # until nothing moves any more
                before = written[0]
                time.sleep(0.5)
            assert 0 < written[0] < 16 << 20, "kernel buffers of two connections and ours, not the answer"
            got = 0
            while got < size and (part := client.recv(1 << 20)):
                got += len(part)
            assert got >= size
        assert until(lambda: made.proxy.running == 0)


def test_a_client_that_never_reads_is_let_go() -> None:
    async def endless(_: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM)
        while True:
            writer.write(chunked(b"x" * 65536))
            await writer.drain()

    with upstream(endless) as engine, gateway(engine.url, limits={"client_idle_s": 0.5}) as (at, made):
        host, port = at.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))) as client:
            body = orjson.dumps(CHAT)
            client.sendall(f"POST {PATH} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body)
            assert until(lambda: made.proxy.counts["stalled"] == 1)
            assert until(lambda: engine.open == 0)
