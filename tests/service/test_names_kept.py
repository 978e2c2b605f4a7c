"""What clients name at any length is kept at a short one, and what they write in other encodings is looked through."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

from kvpolicy.service.edge import RAW_FIELDS, without_raw_fields
from kvpolicy.service.meaning import dialects
from kvpolicy.service.meaning.values import LONGEST_NAME
from kvpolicy.service.paths import SALTED
from tests.service.test_edge_failing_open import engine_like, models
from tests.service.test_edge_passing import CHAT, PATH
from tests.service.test_edge_refusals import hashed
from tests.service.through import until
from tests.service.upstream import upstream
from tests.simulated.running import running

LONG = "n" * 100_000
CALL = {"id": LONG, "type": "function", "function": {"name": LONG, "arguments": "{}"}}
BODIES: dict[str, Any] = {
    "chat": {"model": LONG, "messages": [
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": LONG, "name": LONG, "content": "x"},
    ]},
    "messages": {"model": LONG, "messages": [
        {"role": "assistant", "content": [{"type": "tool_use", "id": LONG, "name": LONG, "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": LONG, "content": "x"}]},
    ]},
    "responses": {"model": LONG, "input": [
        {"type": "function_call", "call_id": LONG, "name": LONG, "arguments": "{}"},
        {"type": "function_call_output", "call_id": LONG, "output": "x"},
    ]},
}  # fmt: skip


@pytest.mark.parametrize("dialect", BODIES)
def test_a_conversation_keeps_no_long_name_and_knows_calls_again(dialect: str) -> None:
    conversation = dialects.read(dialect, BODIES[dialect], b"k" * 32)
    assert conversation is not None
    kept = [conversation.model]
    for unit in conversation.units:
        kept += [unit.tool, unit.name, *unit.answers, *(part for call in unit.calls for part in call)]
    assert all(name is None or len(name) <= LONGEST_NAME for name in kept)
    call, result = conversation.units[-2:]
    assert [each for _, each in call.calls] == list(result.answers)
    assert result.tool == call.calls[0][0]


def test_the_decision_log_has_no_long_line(tmp_path: Path) -> None:
    settings, log = tmp_path / "kvp.toml", tmp_path / "log"
    with upstream(engine_like) as engine:
        settings.write_text(f'[[upstream]]\nurl = "{engine.url}"\n[log]\ndecisions = "{log}"\n')
        with running("serve", "--config", str(settings)) as at:
            answer = httpx.post(at + PATH, json={**CHAT, "model": LONG + '"}\n{"forged": 1'}, timeout=30)
            assert answer.status_code == 200
            assert until(lambda: log.exists() and log.read_text().count("\n"), 1) == 1
        assert models(engine)[-1]["model"].startswith(LONG)
    (line,) = log.read_text().splitlines()
    assert len(line) < 2000
    assert "forged" not in orjson.loads(line)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le"])
def test_no_encoding_hides_what_only_the_gateway_may_say(encoding: str) -> None:
    for field in sorted(RAW_FIELDS):
        data = orjson.dumps({field: "x", "input": "é"}).decode().encode(encoding)
        assert orjson.loads(without_raw_fields(data)) == {"input": "é"}


@pytest.mark.parametrize(
    "data", [b"\x00\x01\x02\x03", b"\xff\xfe\x00\xd8", b"RIFF\x00\x00", b"", b"\xef\xbb\xbf", b"a\x00b"]
)
def test_what_is_no_object_goes_on_as_it_came(data: bytes) -> None:
    assert without_raw_fields(data) == data


def test_every_route_that_computes_a_prompt_has_its_tenants_salt(tmp_path: Path) -> None:
    settings = tmp_path / "kvp.toml"
    with upstream(engine_like) as engine:
        tenants = "".join(f'[[tenant]]\nname = "{name}"\nkeys = ["{hashed(name)}"]\n' for name in ("one", "two"))
        settings.write_text(f'[[upstream]]\nurl = "{engine.url}"\n{tenants}')
        with running("serve", "--config", str(settings)) as at:
            for path in sorted(SALTED):
                salts = []
                for key in ("one", "two", "one"):
                    body = {"model": "m", "input": "x", "cache_salt": "mine"}
                    assert httpx.post(at + path, json=body, headers={"x-api-key": key}, timeout=30).status_code == 200
                    salts.append(orjson.loads(engine.asked[-1].body)["cache_salt"])
                assert salts[0] == salts[2] != salts[1], path
                assert "mine" not in salts
    assert {"/invocations", "/pooling", "/score", "/v1/rerank"} <= SALTED
