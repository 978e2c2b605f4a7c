"""Engines that answer oddly, for real on a socket: a client reads what they said, or that they said nothing right."""

from __future__ import annotations

import asyncio
import gzip
import socket
import struct
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import httpx
import orjson
import pytest

from tests.service.test_edge_failing_open import assembled, stage
from tests.service.test_edge_passing import CHAT, PATH, raw
from tests.service.test_edge_refusals import hashed
from tests.service.through import until
from tests.service.upstream import Asked, upstream
from tests.simulated.running import running

BODY = orjson.dumps(
    {
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"content": "so"}}],
        "usage": {"prompt_tokens": 4, "completion_tokens": 1},
    }
)
STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
TOLD = 'data: {"choices":[{"index":0,"delta":{"content":"\u4f60\u597d"},"finish_reason":"stop"}]}\r\n\r\n'.encode()


def whole(*headers: bytes, status: bytes = b"200 OK", body: bytes = BODY) -> bytes:
    lines = b"".join(line + b"\r\n" for line in headers)
    return b"HTTP/1.1 %s\r\n%scontent-length: %d\r\n\r\n%s" % (status, lines, len(body), body)


def chunked(*parts: bytes, end: bytes = b"0\r\n\r\n") -> bytes:
    return STREAM + b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + end


def saying(data: bytes, *, close: bool = False) -> Callable[[Asked, asyncio.StreamWriter], Awaitable[None]]:
    async def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        if "/tokenize" in asked.line:
            writer.write(b"HTTP/1.1 404 No\r\ncontent-length: 0\r\n\r\n")
            return
        for at in range(0, len(data), 7):  # letters and lines come in pieces
            writer.write(data[at : at + 7])
            await writer.drain()
        if close:
            writer.close()

    return answer


def asked(data: bytes, *, close: bool = False, stream: bool = False) -> httpx.Response:
    """The answer to a chat request."""
    with upstream(saying(data, close=close)) as engine, running("serve", "--upstream", engine.url) as at:
        body = {**CHAT, "stream": stream}
        answer = httpx.post(at + PATH, json=body, headers={"x-session-id": "s"}, timeout=30)
        assert httpx.get(f"{at}/readyz", timeout=30).status_code == 200
        return answer


@pytest.mark.parametrize("data", [b"HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n", b"HTTP/1.1 100 Continue\r\n\r\n"])
def test_what_comes_before_an_answer_is_not_the_answer(data: bytes) -> None:
    answer = asked(data + whole())
    assert (answer.status_code, answer.content) == (200, BODY)


@pytest.mark.parametrize("status", [b"101 Switching Protocols", b"600 More", b"777 More", b"999 More"])
def test_an_answer_for_which_nobody_asked_is_none(status: bytes) -> None:
    answer = asked(whole(b"upgrade: x", b"connection: upgrade", status=status))
    assert answer.status_code == 502
    assert f"answered {status[:3].decode()}" in answer.json()["error"]["message"]


def test_nobody_behind_the_gateway_speaks_for_it() -> None:
    forged = (b'X-KVP-Decision: id="x", status=accepted', b"x-kvp-warn: FORGED", b"x-kvp-doctor: at=1", b"x-other: 1")
    answer = asked(whole(*forged))
    assert len(answer.headers.get_list("x-kvp-decision")) == 1
    assert "accepted" not in answer.headers["x-kvp-decision"]
    assert not {"x-kvp-warn", "x-kvp-doctor"} & set(answer.headers)
    assert answer.headers["x-other"] == "1"


def test_a_header_that_cannot_be_sent_on_costs_no_answer() -> None:
    answer = asked(whole(b"x-odd: a\x01b", b"x-even: b", b"x-latin: caf\xe9"))
    assert (answer.status_code, answer.content) == (200, BODY)
    assert (answer.headers.get("x-odd"), answer.headers["x-even"], answer.headers["x-latin"]) == (None, "b", "café")


@pytest.mark.parametrize(
    ("data", "body"),
    [
        (chunked(b": a comment\r\n\r\nevent: x\r\n", TOLD, b"data: [DONE]\r\n\r\n"), None),
        (chunked(TOLD[:45], TOLD[45:], end=b"0\r\nx-trailer: 1\r\nx-kvp-decision: forged\r\n\r\n"), TOLD),
        (whole(b"content-encoding: gzip", body=gzip.compress(BODY, mtime=0)), BODY),
        (whole(status=b"500 Oops"), BODY),
        (whole(b"x-big: " + b"y" * 60_000), BODY),
    ],
    ids=["comments", "trailers", "gzip", "error", "long-head"],
)
def test_an_answer_goes_through_as_it_is(data: bytes, body: bytes | None) -> None:
    answer = asked(data, stream=True)
    assert body is None or answer.content == body
    assert len(answer.headers.get_list("x-kvp-decision")) == 1


@pytest.mark.parametrize(
    "data",
    [whole(b"x-big: " + b"y" * 200_000), STREAM + b"zz\r\nxx\r\n", b"HTTP/1.1 2000 OK\r\n\r\n", b"SSH-2.0-x\r\n"],
)
def test_an_answer_that_cannot_be_read_is_a_502(data: bytes) -> None:
    answer = asked(data, close=True)
    assert answer.status_code == 502
    assert answer.json()["error"]["type"] == "api_error"


def test_no_client_writes_the_log_and_probes_may_be_heads(tmp_path: Path) -> None:
    """Bad requests, upgrades, and engines that break off are counted: lines of a log are for what goes wrong here."""
    log, settings = tmp_path / "log", tmp_path / "kvp.toml"
    with upstream(saying(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nabc", close=True)) as engine:
        settings.write_text(
            f'[[upstream]]\nurl = "{engine.url}"\n[policy]\nmode = "shadow"\n'
            f'[[tenant]]\nname = "t"\nkeys = ["{hashed("k")}"]\n'
        )
        with running("serve", "--config", str(settings), log=log) as at:
            for path in ("/healthz", "/readyz"):
                head = httpx.head(at + path, timeout=30)
                assert (head.status_code, head.content) == (200, b""), path
            raw(at, b"nonsense\r\n\r\n")
            upgrade = b"upgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-version: 13\r\n"
            got = raw(at, b"GET /v1/realtime HTTP/1.1\r\nhost: x\r\n" + upgrade + b"\r\n")
            assert b" 401 " in got.split(b"\r\n")[0] + b" "
            with pytest.raises(httpx.RemoteProtocolError):
                httpx.post(at + PATH, json=CHAT, headers={"x-api-key": "k"}, timeout=30)
            assert until(lambda: 'outcome="broken"} 1.0' in httpx.get(f"{at}/metrics", timeout=30).text, True)
    assert log.read_text() == ""


# --- answers whose end is told by nothing, or by a break -------------------------------------------------------------

EVENT = b'data: {"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":null}]}\n\n'
SSE = b"content-type: text/event-stream\r\n"


def _closing(data: bytes, how: str) -> Callable[[Asked, asyncio.StreamWriter], Awaitable[None]]:
    async def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        if "/tokenize" in asked.line:
            writer.write(b"HTTP/1.1 404 No\r\ncontent-length: 0\r\n\r\n")
            return
        writer.write(data)
        await writer.drain()
        await asyncio.sleep(0.05)  # it has arrived
        if how == "reset":
            linger = struct.pack("ii", 1, 0)
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            writer.transport.abort()
        elif how == "close":
            writer.close()

    return answer


def _seen(data: bytes, how: str) -> tuple[bytes | None, dict[str, int], str, int]:
    """What a client got of a streamed answer, None where that had no clean end; what was counted; the owner's phase;
    and the status of the next request."""
    with upstream(_closing(data, how)) as engine, assembled(engine.url, limits={"decide_within_s": 5.0}) as (at, made):
        got: bytes | None = None
        with suppress(httpx.RemoteProtocolError):
            told = {"x-session-id": "s"}
            got = httpx.post(at + PATH, json={**CHAT, "stream": True}, headers=told, timeout=20).content
        assert until(lambda: made.proxy.running, 0) == 0
        counts = {name: made.proxy.counts[name] for name in ("broken", "upstream_faults")}
        state = stage(made, "decisions").state
        phase = state.phase(state.owners()[0])
        again = httpx.post(f"{at}/v1/embeddings", json={}, timeout=20).status_code if how == "keep" else 200
        return got, counts, phase, again


@pytest.mark.parametrize("version", [b"1.0", b"1.1"])
def test_an_answer_that_ends_with_its_connection_ends_cleanly(version: bytes) -> None:
    body = EVENT + TOLD + b"data: [DONE]\n\n"
    got, counts, phase, _ = _seen(b"HTTP/%s 200 OK\r\n%s\r\n%s" % (version, SSE, body), "close")
    assert (got, counts["broken"], phase) == (body, 0, "human_pause")


def test_an_old_answer_with_a_length_may_keep_its_connection() -> None:
    head = b"HTTP/1.0 200 OK\r\nconnection: keep-alive\r\ncontent-length: %d\r\n\r\n"
    got, counts, _, again = _seen(head % len(BODY) + BODY, "keep")
    assert (got, counts["upstream_faults"], again) == (BODY, 0, 200)


@pytest.mark.parametrize(
    ("data", "how"),
    [
        (b"HTTP/1.0 200 OK\r\n" + SSE + b"\r\n" + EVENT + TOLD[:30], "reset"),
        (b"HTTP/1.1 200 OK\r\n" + SSE + b"\r\n" + EVENT + TOLD[:30], "reset"),
        (chunked(EVENT, TOLD[:30], end=b""), "reset"),
        (chunked(EVENT, TOLD[:30], end=b""), "close"),
        (chunked(EVENT, end=b"40\r\n" + TOLD[:30]), "close"),
        (chunked(EVENT, TOLD, b"data: [DONE]\n\n", end=b""), "close"),
        (chunked(EVENT, TOLD, end=b"0\r\nx-trai"), "close"),
    ],
    ids=["old reset", "reset", "chunked reset", "half an event", "half a chunk", "no last chunk", "half a trailer"],
)
def test_a_break_in_the_middle_of_an_event_is_a_break_for_the_client(data: bytes, how: str) -> None:
    got, counts, phase, _ = _seen(data, how)
    assert (got, counts, phase) == (None, {"broken": 1, "upstream_faults": 1}, "running")


def test_what_comes_before_an_answer_may_come_often_and_is_no_answer_alone() -> None:
    hints = b"HTTP/1.1 102 Processing\r\n\r\n" * 20 + b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n"
    assert _seen(hints + whole(), "keep")[0] == BODY
    answer = asked(hints, close=True)
    assert (answer.status_code, answer.json()["error"]["type"]) == (502, "api_error")


def test_a_trailer_that_was_said_to_come_is_not_passed_on() -> None:
    data = STREAM[:-2] + b"trailer: x-trailer\r\n\r\n" + chunked(TOLD, end=b"0\r\nx-trailer: 1\r\n\r\n")[len(STREAM) :]
    got, counts, phase, _ = _seen(data, "keep")
    assert (got, counts["broken"], phase) == (TOLD, 0, "human_pause")
