"""Tenants and keys while requests come: they follow the configuration's file, all or nothing, and what runs goes on."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.service.live import Live, live, tenant
from tests.service.test_edge_failing_open import engine_like
from tests.service.test_edge_passing import CHAT
from tests.service.test_edge_refusals import hashed
from tests.service.test_own_routes import LINE, ROW, streaming
from tests.service.through import until
from tests.service.upstream import Asked, upstream

WRONG = 'kvpolicy_refused_on_disk{what="configuration"}'


@pytest.fixture
def url() -> Iterator[str]:
    with upstream(engine_like) as engine:
        yield engine.url


@pytest.fixture(scope="module")
def steady(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """One that is left as it was found: tenant a has the key one."""
    with upstream(engine_like) as engine, live(tmp_path_factory.mktemp("live"), engine.url, tenant("a", "one")) as made:
        yield made


def test_a_key_that_is_gone_opens_nothing_and_a_new_one_does(tmp_path: Path, url: str) -> None:
    with live(tmp_path, url, tenant("a", "one"), tenant("b", "other")) as made:
        assert [made.status(key) for key in ("one", "two", "other")] == [200, 401, 200]
        with httpx.Client(headers={"x-api-key": "one"}) as kept:
            assert kept.get(f"{made.at}/v1/owners").status_code == 200
            made.write(tenant("a", "two"), tenant("b", "other"))  # nobody is told: the file changed
            assert until(lambda: made.status("two"), 200) == 200
            assert kept.get(f"{made.at}/v1/owners").status_code == 401, "over a connection that it had opened"
        assert [made.status(key) for key in ("one", "two", "other")] == [401, 200, 200]
        made.write(tenant("b", "other"), tenant("c", "third"))
        assert made.admin("POST", json={"reload": True}).json()["tenants"][1]["name"] == "c"
        assert [made.status(key) for key in ("two", "other", "third")] == [401, 200, 200]


def test_what_runs_goes_on(tmp_path: Path) -> None:
    async def slowly(_: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        for number in range(1000):
            piece = b"data: %d\n\n" % number
            writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            await writer.drain()
            await asyncio.sleep(0.01)
            if ended:
                break
        writer.write(b"0\r\n\r\n")

    ended: list[bool] = []
    with upstream(slowly) as engine, live(tmp_path, engine.url, tenant("a", "one")) as made:
        told = {"x-api-key": "one"}
        with httpx.stream("POST", f"{made.at}/v1/chat/completions", json=CHAT, headers=told, timeout=30) as answer:
            pieces = answer.iter_raw()
            next(pieces)
            made.write(tenant("a", "two"))
            assert made.admin("POST", json={"reload": True}).status_code == 200
            assert httpx.get(f"{made.at}/v1/owners", headers=told).status_code == 401
            next(pieces)
            ended.append(True)
            assert b"".join(pieces).endswith(b"\n\n")


def test_a_stream_of_plans_ends_at_the_line_after_its_key(tmp_path: Path, url: str) -> None:
    with live(tmp_path, url, tenant("a", "one")) as made:
        with streaming(made.at, "one") as stream:
            made.write(tenant("a", "two"))
            assert made.admin("POST", json={"reload": True}).status_code == 200
            stream.sendall(LINE)
            told = b""
            while part := stream.recv(65536):
                told += part
        assert b"a known API key is needed" in told
        assert b"directives" not in told


def test_caps_and_mode_are_those_of_the_next_request(tmp_path: Path, url: str) -> None:
    with live(tmp_path, url, tenant("a", "one")) as made:
        assert [made.status("one") for _ in range(4)] == [200] * 4
        made.write(tenant("a", "one", more='mode = "off"\ncaps = { requests_per_minute = 1 }'))
        time.sleep(0.1)
        made.admin("POST", json={"reload": True})
        assert 429 in [made.status("one") for _ in range(3)]
        made.write(tenant("a", "one"))
        made.admin("POST", json={"reload": True})
        assert [made.status("one") for _ in range(4)] == [200] * 4
        (row,) = made.seen()["tenants"]
        assert row["mode"] is None


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ("[[tenant\n", "not TOML"),
        (tenant("a", "two").replace(hashed("two"), "two"), "tenant.0.keys.0: the SHA-256 of a key is needed"),
        (tenant("a", "two", more='plam = "gold"'), "did you mean 'plan'"),
        (tenant("a", "two") + tenant("a", "two"), "tenant 'a' is there twice"),
        (tenant("a", "two", more='policy = "absent.kvp"'), "absent.kvp"),
        ("", "anybody is let in without tenants and tokens"),
    ],
    ids=["toml", "hash", "word", "twice", "policy", "open"],
)
def test_a_bad_file_is_refused_with_a_message_and_what_was_stands(steady: Live, bad: str, said: str) -> None:
    before = len(steady.log.read_text())
    steady.write(bad)
    steady.signal()
    assert until(lambda: said in (steady.seen()["fault"] or ""), True)
    refused = steady.admin("POST", json={"reload": True})
    assert refused.status_code == 400 and said in refused.json()["error"]["message"]
    assert [steady.status(key) for key in ("one", "two", "nobody")] == [200, 401, 401]
    logged = steady.log.read_text()[before:]
    assert "configuration: what is on disk is not taken up" in logged and said in logged
    assert steady.metric(WRONG) == 1
    steady.write(tenant("a", "one", "three"))
    assert until(lambda: steady.status("three"), 200) == 200, "once the file is right, nobody has to be told"
    assert steady.seen()["fault"] is None and steady.metric(WRONG) == 0
    steady.write(tenant("a", "one"))
    assert steady.admin("POST", json={"reload": True}).status_code == 200


def test_a_file_that_is_gone_and_a_policy_with_errors_are_told_to_who_asked(tmp_path: Path, url: str) -> None:
    own = tmp_path / "own.kvp"
    own.write_text("policy own\nturn { prority: 1 }\n")
    with live(tmp_path, url, tenant("a", "one")) as made:
        for gone, said in ((False, f"{own}:2:8"), (True, f"{made.file}: No such file or directory")):
            made.write(tenant("a", "one", more=f'policy = "{own}"'))
            if gone:
                made.file.unlink()
            refused = made.admin("POST", json={"reload": True})
            assert refused.status_code == 400 and said in refused.json()["error"]["message"]
            assert said in made.seen()["fault"]
        assert made.status("one") == 200
        assert "Traceback" not in made.log.read_text()


def test_a_tenant_s_new_policy_is_read_and_followed(tmp_path: Path, url: str) -> None:
    def priority() -> int:
        told = httpx.post(f"{made.at}/v1/plan", json={"request": ROW}, headers={"x-api-key": "one"}, timeout=30)
        return next((row["priority"] for row in told.json()["directives"]), 0)

    own, part = tmp_path / "own.kvp", tmp_path / "part.kvp"
    own.write_text('policy own\nuse "part.kvp"\n')
    with live(tmp_path, url, tenant("a", "one")) as made:
        before = priority()
        made.write(tenant("a", "one", more=f'policy = "{own}"'))
        made.signal()
        # Read twice: a file that had not been looked at before may have come meanwhile.
        assert until(lambda: made.metric('kvpolicy_configuration_total{result="bad"}') >= 2, True)
        assert "part.kvp" in made.seen()["fault"]
        part.write_text("policy part\nsystem { priority: 71 }\n")  # the file comes later, and nobody says so
        assert until(priority, 71) == 71 != before
        part.write_text("policy part\nsystem { priority: 72 }\n")
        assert until(priority, 72) == 72
        made.write(tenant("a", "one"))
        made.signal()
        assert until(priority, before) == before
        own.unlink()  # nobody wants it any more, so it is missed by nobody
        made.signal()
        told = {"authorization": "Bearer op"}
        assert httpx.post(f"{made.at}/admin/policies", json={"reload": True}, headers=told, timeout=30).is_success


def test_the_operator_s_keys_follow_and_the_rest_waits(tmp_path: Path, url: str) -> None:
    with live(tmp_path, url, tenant("a", "one")) as made:
        made.head = made.head.replace(hashed("op"), hashed("new"))
        made.write(tenant("a", "one"), "[limits]\nconnect_s = 1.0\n")
        made.signal()
        assert until(lambda: made.admin(key="new").status_code, 200) == 200
        assert made.admin().status_code == 401
        assert httpx.get(f"{made.at}/metrics", headers={"authorization": "Bearer op"}).status_code == 401
        assert made.admin(key="new").json()["waiting"] == ["limits"]
        assert "what changed of limits waits for the next start" in made.log.read_text()


def test_the_key_of_tokens_follows(tmp_path: Path, url: str) -> None:
    jwt = pytest.importorskip("jwt")
    secret = tmp_path / "issuer"
    secret.write_text("a" * 32)
    section = f'[jwt]\nkey_file = "{secret}"\nalgorithms = ["HS256"]\n'

    def token(key: str) -> str:
        return str(jwt.encode({"tenant": "t", "exp": time.time() + 600}, key * 32, algorithm="HS256"))

    with live(tmp_path, url, section) as made:
        assert [made.status(token(key)) for key in "ab"] == [200, 401]
        secret.write_text("b" * 32)
        assert until(lambda: made.status(token("b")), 200) == 200
        assert made.status(token("a")) == 401


def test_no_key_and_no_hash_is_shown(tmp_path: Path, url: str) -> None:
    with live(tmp_path, url, tenant("a", "one", "two")) as made:
        made.signal()
        shown = made.admin().text + made.log.read_text()
        assert made.seen()["tenants"][0]["keys"] == 2
        assert not any(word in shown for word in (hashed("one"), hashed("two"), hashed("op")))
