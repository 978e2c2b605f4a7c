"""Whatever comes in, the gateway answers with a status that fits, says nothing of itself, and goes on.

Every operation of the OpenAPI description with made-up parameters and bodies (schemathesis), random bytes and headers
over sockets, and engines that answer with random bytes. `KVPOLICY_FUZZ=20` runs twenty times as many.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import httpx
import orjson
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.service.gateway import gateway
from tests.service.test_edge_passing import CHAT, PATH, until
from tests.service.upstream import Asked, Upstream, upstream
from tests.simulated.running import running

TIMES = int(os.environ.get("KVPOLICY_FUZZ", "1"))
CLIENT = httpx.Client(limits=httpx.Limits(max_keepalive_connections=0))
LOUD = (b"Traceback", b'File "', b"site-packages", b"0x7f")


def quiet(data: bytes) -> None:
    for word in LOUD:
        assert word not in data, data[:500]


# --- the description ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def at(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    log = tmp_path_factory.mktemp("fuzz") / "stderr"
    with running("engine") as engine, running("serve", "--upstream", engine, log=log) as found:
        yield found
        assert httpx.get(f"{found}/healthz").status_code == 200
    quiet(log.read_bytes())


def test_every_operation_takes_anything(at: str) -> None:
    found = list(schemathesis.openapi.from_url(f"{at}/openapi.json").get_all_operations())
    assert len(found) >= 8
    for each in found:
        operation = each.ok()

        @settings(max_examples=5 * TIMES, deadline=None, database=None, suppress_health_check=list(HealthCheck))
        @given(case=operation.as_strategy())
        def check(case: Any) -> None:
            answer = case.call(timeout=30)
            assert answer.status_code < 500 or answer.status_code == 503, (answer.status_code, answer.text[:300])
            quiet(answer.content)
            if answer.status_code >= 400 and "json" in answer.headers.get("content-type", [""])[0]:
                assert {"error", "detail", "diagnostics", "items"} & set(orjson.loads(answer.content))

        check()


@pytest.mark.parametrize("path", [PATH, "/v1/completions", "/v1/responses", "/v1/messages"])
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_model_requests_of_any_shape(at: str, path: str, data: st.DataObject) -> None:
    plain = st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=8) | st.floats(allow_nan=False)
    deep = st.recursive(plain, lambda v: st.lists(v, max_size=3) | st.dictionaries(st.text(max_size=6), v, max_size=3))
    part = st.fixed_dictionaries({}, optional=dict.fromkeys(("type", "text", "cache_control", "id", "input"), deep))
    call = st.fixed_dictionaries({}, optional={"id": deep, "function": deep, "type": deep})
    message = st.fixed_dictionaries(
        {},
        optional={
            "role": st.sampled_from(["user", "assistant", "system", "tool", "developer"]) | deep,
            "content": deep | st.lists(part, max_size=3),
            "tool_calls": deep | st.lists(call, max_size=2),
            "tool_call_id": deep,
            "reasoning_content": deep,
        },
    )
    body = data.draw(
        st.fixed_dictionaries(
            {},
            optional={
                "model": deep,
                "messages": deep | st.lists(message | deep, max_size=4),
                "prompt": deep,
                "input": deep | st.lists(message, max_size=3),
                "tools": deep | st.lists(call, max_size=2),
                "system": deep,
                "stream": deep,
                "kvp": deep,
                "vllm_xargs": deep,
                "session_id": deep,
                "prompt_cache_key": deep,
                "metadata": deep,
                "max_tokens": st.integers(-1, 4) | deep,
            },
        )
    )
    try:
        content = orjson.dumps(body)
    except TypeError:  # half a surrogate
        return
    answer = CLIENT.post(at + path, content=content, headers={"content-type": "application/json"}, timeout=30)
    assert answer.status_code in (200, 400, 422), (answer.status_code, answer.text[:300])
    quiet(answer.content)
    if isinstance(body.get("vllm_xargs"), dict | None):  # what else stands there the engine itself refuses
        assert "FAILED_OPEN" not in answer.headers.get("x-kvp-warn", ""), body


# --- bytes and headers ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def edge() -> Iterator[tuple[str, Any, Upstream]]:
    limits = {"header_s": 0.15, "client_idle_s": 0.15, "idle_s": 2.0, "first_byte_s": 2.0, "header_bytes": 4096}
    with upstream() as engine, gateway(engine.url, limits=limits) as (found, made):
        yield found, made, engine


def exchanged(found: str, data: bytes) -> bytes:
    host, port = found.removeprefix("http://").split(":")
    got = b""
    with socket.create_connection((host, int(port)), timeout=5) as client:
        client.sendall(data)
        with suppress(ConnectionError, TimeoutError):
            while part := client.recv(65536):
                got += part
                client.settimeout(0.05)
    return got


NAMES = [
    "x-kvp-context",
    "x-kvp-spans",
    "x-kvp-event",
    "x-kvp-policy",
    "x-session-id",
    "authorization",
    "x-api-key",
    "content-type",
    "transfer-encoding",
    "content-length",
    "connection",
    "host",
    "expect",
    "upgrade",
    "traceparent",
    "idempotency-key",
]
HEADER = st.tuples(
    st.sampled_from(NAMES).map(str.encode) | st.binary(min_size=1, max_size=8),
    st.binary(max_size=40)
    | st.sampled_from([b"chunked", b"close", b"upgrade", b"100-continue", b"0", b"7, 7", b"h2c"]),
)


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(headers=st.lists(HEADER, max_size=6), body=st.binary(max_size=40), ours=st.booleans())
def test_any_headers(
    edge: tuple[str, Any, Upstream], headers: list[tuple[bytes, bytes]], body: bytes, ours: bool
) -> None:
    found, made, _ = edge
    data = orjson.dumps(CHAT) if ours else body
    lines = b"".join(name + b": " + value + b"\r\n" for name, value in headers)
    head = b"POST " + PATH.encode() + b" HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n" % len(data)
    answer = exchanged(found, head + lines + b"\r\n" + data)
    quiet(answer)
    if answer:
        assert answer.startswith(b"HTTP/1.1 ")
        assert int(answer[9:12]) not in (500, 502), answer[:300]
    assert until(lambda: made.proxy.running == 0)


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.binary(max_size=300) | st.binary(max_size=200).map(lambda b: b"GET / HTTP/1.1\r\n" + b))
def test_any_bytes(edge: tuple[str, Any, Upstream], data: bytes) -> None:
    found, made, _ = edge
    quiet(exchanged(found, data))
    assert until(lambda: made.proxy.running == 0)


# --- engines --------------------------------------------------------------------------------------------------


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    data=st.binary(max_size=200)
    | st.tuples(
        st.sampled_from([b"200 OK", b"100 Continue", b"204 No Content", b"999 X", b"abc", b"500 X"]),
        st.lists(HEADER, max_size=4),
        st.binary(max_size=60),
    ).map(lambda t: b"HTTP/1.1 " + t[0] + b"\r\n" + b"".join(n + b": " + v + b"\r\n" for n, v in t[1]) + b"\r\n" + t[2])
)
def test_an_engine_that_answers_anything(broken: tuple[str, Any, list[bytes]], data: bytes) -> None:
    found, made, says = broken
    says[:] = [data]
    try:
        answer = CLIENT.post(found + PATH, json=CHAT, timeout=20)
        quiet(answer.content)
        assert answer.status_code != 500 or b" 500 " in data
    except (httpx.RemoteProtocolError, httpx.ReadError, httpx.DecodingError):
        pass  # an answer that was begun and could not be ended
    assert until(lambda: made.proxy.running == 0)
    assert CLIENT.get(f"{found}/healthz").status_code == 200


@pytest.fixture(scope="module")
def broken() -> Iterator[tuple[str, Any, list[bytes]]]:
    says: list[bytes] = [b""]

    async def answer(_: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(says[0])
        await writer.drain()
        writer.close()

    limits = {"idle_s": 0.5, "first_byte_s": 0.5}
    with upstream(answer) as engine, gateway(engine.url, limits=limits) as (found, made):
        yield found, made, says
