"""What the edge refuses, with which status, and that nothing of it reaches an engine: limits, shapes, keys, paths."""

from __future__ import annotations

import socket
import time
from contextlib import suppress
from hashlib import sha256
from typing import Any

import httpx
import orjson
import pytest

from kvpolicy.service.edge import RAW_FIELDS
from kvpolicy.service.paths import canonical
from tests.service.gateway import gateway
from tests.service.test_edge_passing import CHAT, PATH, raw, until
from tests.service.upstream import upstream

LIMITS = {"header_bytes": 2048, "body_bytes": 4096, "header_s": 0.5, "client_idle_s": 0.4, "body_s": 1.2}


def status_of(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


def post(body: bytes, *headers: str, path: str = PATH, length: int | None = None) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "host: x", f"content-length: {len(body) if length is None else length}", *headers]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


BODY = orjson.dumps(CHAT)
CASES = {
    "a header that is too long": (post(BODY, "x-a: " + "a" * 3000), 431),
    "headers that are too many": (post(BODY, *(f"x-{n}: 1" for n in range(250))), 431),
    "a header without an end": (b"GET / HTTP/1.1\r\nhost: x\r\nx-a: " + b"a" * 9000, 431),
    "a target that is too long": (b"GET /" + b"a" * 3000 + b" HTTP/1.1\r\nhost: x\r\n\r\n", 431),
    "a body said to be too long": (post(b"", length=1 << 30), 413),
    "a chunked body that is too long": (
        b"POST /v1/x HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n2000\r\n"
        + b"a" * 0x2000
        + b"\r\n0\r\n\r\n",
        413,
    ),
    "a body that stops": (post(b'{"mo', length=100), 408),
    "a head that stops": (b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n", 408),
    "two keys": (post(BODY, "authorization: Bearer a", "authorization: Bearer b"), 400),
    "no HTTP": (b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", 400),
    "two lengths": (post(BODY, "content-length: 3"), 400),
    "length and chunks": (post(BODY, "transfer-encoding: chunked"), 400),
    "chunks by another name": (post(BODY, "transfer-encoding: xchunked"), 400),
    "a space before the colon": (post(BODY, "x-a : 1"), 400),
    "a length that is none": (b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: +5\r\n\r\nhello", 400),
    "a bare line feed in a name": (b"GET / HTTP/1.1\r\nhost: x\r\nx\na: 1\r\n\r\n", 400),
    "a NUL in a value": (post(BODY, "x-a: a\0b"), 400),
    "chunk size with junk": (
        b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n5x\r\nhello\r\n0\r\n\r\n",
        400,
    ),
    "CONNECT": (b"CONNECT elsewhere:443 HTTP/1.1\r\nhost: x\r\n\r\n", 400),
    "dots": (post(BODY, path="/v1/../v1/chat/completions"), 400),
    "dots in disguise": (post(BODY, path="/v1/%2e%2e/reset_prefix_cache"), 400),
    "dots in deep disguise": (post(BODY, path="/v1/%252e%252e/x"), 400),
    "two slashes": (post(BODY, path="//v1/chat/completions"), 404),
    "a slash behind": (post(BODY, path="/v1/chat/completions/"), 404),
    "a parameter in the path": (post(BODY, path="/v1/chat/completions;x"), 404),
    "an operator's route of the engine": (post(b"", path="/reset_prefix_cache"), 403),
    "that route by another spelling": (post(b"", path="/reset_prefix_cache/"), 403),
    "no JSON": (post(b"{"), 400),
    "no object": (post(b"[]"), 400),
    "no UTF-8": (post(b'{"model": "\xff"}'), 400),
    "half a surrogate": (post(b'{"model": "\\ud800"}'), 400),
    "nested too deeply to be read": (post(b'{"a":' + b"[" * 1500 + b"]" * 1500 + b"}"), 400),
    "nested too deeply to be written": (post(b'{"a":' + b"[" * 600 + b"]" * 600 + b"}"), 400),
}


@pytest.fixture(scope="module")
def edge() -> Any:
    with upstream() as engine, gateway(engine.url, limits=LIMITS) as (at, made):
        yield at, made, engine


@pytest.mark.parametrize("case", CASES)
def test_what_is_wrong_is_refused_and_reaches_no_engine(edge: Any, case: str) -> None:
    at, made, engine = edge
    data, status = CASES[case]
    before = len(engine.asked)
    answer = raw(at, data, 5)
    assert status_of(answer) == status, answer[:300]
    assert len(engine.asked) == before
    assert answer.count(b"HTTP/1.1 ") == 1, "what stands behind it is no second request"
    error = orjson.loads(answer.split(b"\r\n\r\n", 1)[1])["error"]
    assert error["message"]
    assert b"Traceback" not in answer
    assert until(lambda: made.proxy.running == 0)
    assert httpx.get(f"{at}/healthz").status_code == 200


def test_a_body_in_drops_is_bounded_in_all(edge: Any) -> None:
    at, made, engine = edge
    before, host = len(engine.asked), at.removeprefix("http://").split(":")
    with socket.create_connection((host[0], int(host[1])), timeout=10) as client:
        client.sendall(post(b"", length=100))
        try:
            for _ in range(30):  # one byte now and then: never silent, never done
                client.sendall(b" ")
                time.sleep(0.1)
        except ConnectionError:
            pass
        client.settimeout(10)
        with suppress(ConnectionResetError):  # it was told, and closed while we were still sending
            assert status_of(client.recv(65536)) == 408
    assert until(lambda: made.proxy.running == 0)
    assert len(engine.asked) == before


def test_a_connection_that_says_nothing_is_closed(edge: Any) -> None:
    at, _, _ = edge
    assert raw(at, b"", 10) == b""


def test_errors_speak_the_clients_dialect(edge: Any) -> None:
    at, _, _ = edge
    answer = httpx.post(f"{at}/v1/messages", content=b"{")
    assert answer.json() == {
        "type": "error",
        "error": {"type": "invalid_request_error", "message": answer.json()["error"]["message"]},
    }


@pytest.mark.parametrize("path", [PATH, "/v1/messages", "/tokenize", "/generate", "/v1/new"])
def test_raw_fields_reach_no_engine_by_any_path_or_spelling(edge: Any, path: str) -> None:
    at, _, engine = edge
    raw_fields = dict.fromkeys(RAW_FIELDS, "planted")
    body = orjson.dumps({**CHAT, **raw_fields, "vllm_xargs": {"kvpolicy": "planted", "kv_x": "planted", "mine": 1}})
    escaped = body.replace(b'"priority"', b'"\\u0070riority"').replace(b'"cache_salt"', b'"cache\\u005fsalt"')
    for each in (body, escaped):
        assert httpx.post(at + path, content=each).status_code == 200
        sent = orjson.loads(engine.asked[-1].body)
        assert set(sent) & RAW_FIELDS <= {"cache_salt"}
        assert "planted" not in engine.asked[-1].body.decode()
        assert sent["vllm_xargs"] == {"mine": 1}


def test_what_has_no_raw_fields_passes_byte_for_byte(edge: Any) -> None:
    at, _, engine = edge
    for body in (b'{ "prompt" : "a\\u00e9",\n "n": 1.0 }', b"{", b"\xff\xfe", b'[{"kvp": 1}]'):
        httpx.post(f"{at}/tokenize", content=body)
        assert engine.asked[-1].body == body


def test_every_generating_route_has_a_salt_that_the_client_did_not_choose(edge: Any) -> None:
    at, _, engine = edge
    salts = []
    for path in (PATH, "/v1/completions", "/v1/responses", "/v1/messages", "/generate", "/inference/v1/generate"):
        httpx.post(at + path, json={**CHAT, "cache_salt": "mine"})
        salts.append(orjson.loads(engine.asked[-1].body)["cache_salt"])
    assert all(salt.startswith("kvp-") and salt != "mine" for salt in salts)


@pytest.mark.parametrize(
    ("path", "plain"),
    [
        ("/v1/x", "/v1/x"),
        ("//a///b/", "/a/b"),
        ("/a/%2e%2e/b", None),
        ("/a/./b", None),
        ("/a\\..\\b", None),
        ("/ä", "/ä"),
    ],
)
def test_paths_as_the_most_lenient_reader_takes_them(path: str, plain: str | None) -> None:
    assert canonical(path) == plain


# --- who asks -------------------------------------------------------------------------------------------------


def hashed(key: str) -> str:
    return sha256(key.encode()).hexdigest()


def test_keys_decide_and_stay_here() -> None:
    tenant = [{"name": "a", "keys": [hashed("key-a")]}, {"name": "b", "keys": [hashed("key-b")]}]
    with upstream() as engine, gateway(engine.url, tenant=tenant) as (at, _):
        for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": "Basic key-a"}, {"x-api-key": ""}):
            answer = httpx.post(at + PATH, json=CHAT, headers=headers)
            assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
        assert not engine.asked
        for headers in ({"authorization": "Bearer key-a"}, {"x-api-key": "key-b"}, {"authorization": "bearer  key-b"}):
            assert httpx.post(at + PATH, json=CHAT, headers=headers).status_code == 200
        assert "key-" not in repr(engine.asked)


def test_caps_of_a_tenant_are_its_own() -> None:
    tenant = [
        {"name": "a", "keys": [hashed("a")], "caps": {"requests_per_minute": 3}},
        {"name": "b", "keys": [hashed("b")]},
    ]
    with upstream() as engine, gateway(engine.url, tenant=tenant) as (at, _):
        codes = [httpx.post(at + PATH, json=CHAT, headers={"x-api-key": "a"}).status_code for _ in range(4)]
        assert codes == [200, 200, 200, 429]
        late = httpx.get(f"{at}/v1/models", headers={"x-api-key": "a"})
        assert late.status_code == 429
        assert 1 <= int(late.headers["retry-after"]) <= 20
        assert late.json()["error"]["type"] == "rate_limit_error"
        assert httpx.post(at + PATH, json=CHAT, headers={"x-api-key": "b"}).status_code == 200


# --- tokens ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Any:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    own, other = (rsa.generate_private_key(public_exponent=65537, key_size=2048) for _ in range(2))
    public = own.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    file = tmp_path_factory.mktemp("jwt") / "key.pem"
    file.write_bytes(public)
    return str(file), own, other, public


def test_a_token_says_who_asks_only_when_all_of_it_is_right(tokens: Any) -> None:
    import jwt

    file, own, other, public = tokens
    now = int(time.time())
    good = {"tenant": "a", "exp": now + 60, "aud": "kvp", "iss": "us"}
    forged = (
        jwt.utils.base64url_encode(b'{"alg":"none","typ":"JWT"}').decode()
        + "."
        + jwt.utils.base64url_encode(orjson.dumps(good)).decode()
        + "."
    )
    import hmac

    head = ".".join(
        jwt.utils.base64url_encode(part).decode() for part in (b'{"alg":"HS256","typ":"JWT"}', orjson.dumps(good))
    )
    confused = f"{head}.{jwt.utils.base64url_encode(hmac.digest(public, head.encode(), 'sha256')).decode()}"
    bad = {
        "expired": jwt.encode({**good, "exp": now - 60}, own, "RS256"),
        "without an end": jwt.encode({k: v for k, v in good.items() if k != "exp"}, own, "RS256"),
        "for others": jwt.encode({**good, "aud": "them"}, own, "RS256"),
        "by others": jwt.encode({**good, "iss": "them"}, own, "RS256"),
        "not yet": jwt.encode({**good, "nbf": now + 600}, own, "RS256"),
        "signed otherwise": jwt.encode(good, other, "RS256"),
        "unsigned": forged,
        "the public key as a secret": confused,
        "nobody": jwt.encode({**good, "tenant": ""}, own, "RS256"),
        "no name": jwt.encode({**good, "tenant": ["a"]}, own, "RS256"),
        "a name without end": jwt.encode({**good, "tenant": "a" * 300}, own, "RS256"),
        "junk": "a.b.c",
    }
    section = {"key_file": file, "audience": "kvp", "issuer": "us"}
    tenant = [{"name": "a", "caps": {"requests_per_minute": 2}}]
    with upstream() as engine, gateway(engine.url, jwt=section, tenant=tenant) as (at, _):

        def ask(token: str) -> int:
            return httpx.post(at + PATH, json=CHAT, headers={"authorization": f"Bearer {token}"}).status_code

        for name, token in bad.items():
            assert ask(token) == 401, name
        assert not engine.asked
        codes = [ask(jwt.encode(good, own, "RS256")) for _ in range(3)]
        assert codes == [200, 200, 429], "the caps of the tenant that the token names"
        assert ask(jwt.encode({**good, "tenant": "another"}, own, "RS256")) == 200
