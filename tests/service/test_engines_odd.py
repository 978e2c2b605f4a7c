"""Engines that answer oddly, for real on a socket: a client reads what they said, or that they said nothing right."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Awaitable, Callable
from pathlib import Path

import httpx
import orjson
import pytest

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
