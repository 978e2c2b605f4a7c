"""No word of a prompt, an answer or a name reaches logs, metrics, traces, the store, explanations or errors.

Canary words stand in every place where a client can put text; then everything that the gateway writes, sends beside
the engine's own requests, or shows to others is searched for them. Traces go to a collector that takes OTLP.
"""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.service.test_edge_passing import PATH, until
from tests.service.test_edge_refusals import hashed
from tests.service.upstream import Asked, upstream
from tests.simulated.running import running

CANARY = "zq9canary"


def body(stream: bool = False) -> dict[str, Any]:
    return {
        "model": "sim",
        "stream": stream,
        "max_tokens": 6,
        "messages": [
            {"role": "system", "content": f"{CANARY}-system at 2026-11-30T07:00:00Z"},
            {"role": "user", "content": f"{CANARY}-user", "name": f"{CANARY}-name"},
            {
                "role": "assistant",
                "content": f"{CANARY}-said",
                "tool_calls": [
                    {
                        "id": f"{CANARY}-c",
                        "type": "function",
                        "function": {"name": "grep", "arguments": f'"{CANARY}-a"'},
                    }
                ],
            },
            {"role": "tool", "tool_call_id": f"{CANARY}-c", "content": f"{CANARY}-result"},
        ],
        "tools": [
            {
                "type": "function",
                "function": {"name": "grep", "description": f"{CANARY}-d", "parameters": {"type": "object"}},
            }
        ],
        "sim_reply": {"content": f"{CANARY}-answer"},
        "metadata": {"m": f"{CANARY}-m"},
        "user": f"{CANARY}-u",
        "kvp": {"session": f"{CANARY}-bs", f"{CANARY}-tag": 1},
    }


async def collect(_: Asked, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/x-protobuf\r\ncontent-length: 0\r\n\r\n")


def spans(sent: list[Asked]) -> list[Any]:
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    found = []
    for asked in sent:
        raw = asked.body
        if asked.named("content-encoding") == ["gzip"]:
            import gzip

            raw = gzip.decompress(raw)
        told = ExportTraceServiceRequest.FromString(raw)
        found += [s for r in told.resource_spans for scope in r.scope_spans for s in scope.spans]
    return found


def test_no_word_of_a_prompt_is_written_anywhere(tmp_path: Path) -> None:
    log, journal, store = tmp_path / "stderr", tmp_path / "decisions.jsonl", tmp_path / "state"
    with running("engine") as engine, upstream(collect) as collector:
        config = tmp_path / "serve.toml"
        config.write_text(
            f'[[upstream]]\nurl = "{engine}"\n[[tenant]]\nname = "a"\nkeys = ["{hashed("key-" + CANARY)}"]\n'
            f'[[tenant]]\nname = "b"\nkeys = ["{hashed("key-b")}"]\n[log]\ndecisions = "{journal}"\n'
            f'[store]\nfile = "{store}"\n[trace]\nendpoint = "{collector.url}/v1/traces"\n',
            encoding="utf-8",
        )
        shown = []
        with running("serve", "--config", str(config), log=log) as at:
            who = {"authorization": f"Bearer key-{CANARY}"}
            headers = {
                **who,
                "x-session-id": f"{CANARY}-s",
                "x-kvp-context": f'agent="{CANARY}-ag", workflow="{CANARY}-w"',
            }
            for stream in (False, True, False):
                assert httpx.post(at + PATH, json=body(stream), headers=headers, timeout=30).status_code == 200
            clock = json.loads(json.dumps(body()).replace("07:00:00", "07:00:31"))
            assert httpx.post(at + PATH, json=clock, headers=headers, timeout=30).status_code == 200
            # What is refused, in every way that the edge knows.
            wrong = [
                httpx.post(at + PATH, content=f'{{"{CANARY}'.encode(), headers=who),
                httpx.post(at + PATH, json=[CANARY], headers=who),
                httpx.post(at + PATH, json=body(), headers={"authorization": f"Bearer {CANARY}"}),
                httpx.post(at + PATH, json={**body(), "model": CANARY + "-model"}, headers={"x-api-key": CANARY}),
                httpx.post(f"{at}/v1/plan", content=f'{{"{CANARY}'.encode(), headers=who),
                httpx.post(f"{at}/admin/policies", content=CANARY.encode()),
            ]
            assert all(400 <= answer.status_code < 500 for answer in wrong)
            shown += [answer.text for answer in wrong]
            other = {"x-api-key": "key-b"}
            shown += [httpx.get(at + p, headers=other).text for p in ("/v1/owners", f"/v1/explain/{CANARY}"[:12])]
            shown += [httpx.get(at + path).text for path in ("/metrics", "/readyz", "/openapi.json", "/admin/policies")]
            assert until(lambda: journal.read_text().count("\n") >= 4)
        assert until(lambda: len(spans(collector.asked)) >= 4)
        rows = [json.loads(line) for line in journal.read_text().splitlines()]
        assert len(rows) == 4
        assert sum(bool(row["prompt_tokens"]) for row in rows) == 3, "it was really written of these requests"
        assert {"unknown_tag", "UNKNOWN_WORKFLOW"} <= set(rows[0]["warned"]), "codes are, what they are about is not"
        written = {path.name: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file() and path != config}
        for name, data in written.items():
            assert CANARY.encode() not in data, name
            assert hashed("key-" + CANARY).encode() not in data, name
        for text in shown:
            assert CANARY not in text
        for asked in collector.asked:
            assert CANARY.encode() not in asked.body
        assert CANARY not in repr(spans(collector.asked))


def test_a_trace_goes_on_to_the_engine_and_says_what_came_of_it(tmp_path: Path) -> None:
    pytest.importorskip("opentelemetry.sdk")
    usage = {
        "prompt_tokens": 9,
        "completion_tokens": 1,
        "total_tokens": 10,
        "prompt_tokens_details": {"cached_tokens": 4},
    }
    answer = json.dumps(
        {
            "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "so"}}],
            "usage": usage,
        }
    ).encode()

    async def engine_like(asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(answer) + answer
        )

    with upstream(engine_like) as engine, upstream(collect) as collector:
        config = tmp_path / "serve.toml"
        config.write_text(f'[[upstream]]\nurl = "{engine.url}"\n[trace]\nendpoint = "{collector.url}/v1/traces"\n')
        trace = "0af7651916cd43dd8448eb211c80319c"
        with running("serve", "--config", str(config)) as at:
            headers = {"traceparent": f"00-{trace}-b7ad6b7169203331-01", "tracestate": "a=b"}
            chat = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
            assert httpx.post(at + PATH, json=chat, headers=headers).status_code == 200
            assert httpx.post(at + PATH, json=chat, headers={"traceparent": "junk"}).status_code == 200
        sent = [asked for asked in engine.asked if PATH in asked.line]
        (parent,) = sent[0].named("traceparent")
        assert re.fullmatch(rf"00-{trace}-[0-9a-f]{{16}}-01", parent)
        assert "b7ad6b7169203331" not in parent, "the gateway's span stands between"
        assert sent[0].named("tracestate") == ["a=b"]
        (new,) = sent[1].named("traceparent")
        assert trace not in new
        assert until(lambda: len(spans(collector.asked)) == 2)
        span = next(s for s in spans(collector.asked) if s.trace_id.hex() == trace)
        assert span.span_id.hex() == parent.split("-")[2]
        assert span.parent_span_id.hex() == "b7ad6b7169203331"
        told = {a.key: a.value.string_value or a.value.int_value for a in span.attributes}
        assert told["gen_ai.operation.name"] == "chat"
        assert told["gen_ai.request.model"] == "m"
        assert told["gen_ai.usage.input_tokens"] == 9
        assert told["gen_ai.usage.cache_read.input_tokens"] == 4
        assert told["kvpolicy.policy"] == "coding_agent"


def test_a_collector_that_is_away_delays_nothing(tmp_path: Path) -> None:
    with upstream() as engine:
        config = tmp_path / "serve.toml"
        config.write_text(f'[[upstream]]\nurl = "{engine.url}"\n[trace]\nendpoint = "http://127.0.0.1:9/v1/traces"\n')
        log = tmp_path / "stderr"
        with running("serve", "--config", str(config), log=log) as at:
            for _ in range(3):
                assert httpx.post(at + PATH, json=body()).status_code == 200
        assert CANARY not in log.read_text()
