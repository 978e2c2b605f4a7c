"""Plans, events, workflows, runs and explanations over HTTP; every example of the OpenAPI document is sent."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

from tests.service.through import Through, through, until
from tests.simulated.running import running

CHAIN = {"nodes": ["plan", "write", "judge"], "edges": [["plan", "write"], ["write", "judge"]]}
SHORT = {"nodes": ["plan", "judge"], "edges": [["plan", "judge"]]}
KEYS = {"one": "key-of-one", "two": "key-of-two"}


@pytest.fixture(scope="module")
def gateway() -> Iterator[Through]:
    with through() as made:
        yield made


def ask(gateway: Through, session: str, headers: dict[str, str] | None = None) -> str:
    """A request's id."""
    body = {"model": "sim", "messages": [{"role": "user", "content": f"hello from {session} " * 20}], "max_tokens": 4}
    told = {"x-session-id": session, **(headers or {})}
    answer = httpx.post(f"{gateway.url}/v1/chat/completions", json=body, headers=told, timeout=30)
    assert answer.status_code == 200
    return answer.headers["x-kvp-decision"].split('"')[1]


# --- the OpenAPI document -------------------------------------------------------------------------------------------


def test_every_route_is_described_and_every_example_is_taken(gateway: Through) -> None:
    document = gateway.get("/openapi.json")
    held = ask(gateway, "for the examples")
    until(lambda: len(gateway.owners("for the examples")), 1)
    values = {"request_id": held, "span": "0", "block": "0", "run": "r", "name": "coding_agent"}
    expected = {
        "/v1/plan", "/v1/events", "/v1/explain/{request_id}", "/v1/explain/{request_id}/{span}", "/v1/owners",
        "/v1/explain/{request_id}/blocks/{block}", "/v1/workflows", "/v1/workflows/{name}", "/v1/runs/{run}",
        "/admin/policies", "/admin/policies/{name}/diff", "/admin/release-all", "/admin/tenants", "/healthz", "/readyz",
        "/metrics",
    }  # fmt: skip
    assert expected <= set(document["paths"])
    sent = 0
    for path, operations in document["paths"].items():
        at = path
        for name, value in values.items():
            at = at.replace("{" + name + "}", value)
        assert "{" not in at, f"{path}: a parameter that no value is known for"
        for method, operation in operations.items():
            assert operation["summary"], path
            content = operation.get("requestBody", {}).get("content", {}).get("application/json")
            if method in ("post", "put") and content is None:
                assert path == "/admin/release-all", f"{path} takes a body that is not described"
                continue
            for name, example in (content or {}).get("examples", {}).items():
                answer = httpx.request(method.upper(), gateway.url + at, json=example["value"], timeout=30)
                assert answer.status_code < 300, f"{path}: {name}: {answer.text}"
                sent += 1
    assert sent >= 7


# --- plans and events -------------------------------------------------------------------------------------------------

ROW = {"id": "r1", "owner": {"session": "s"}, "model": "m", "block_size": 16, "tokens": 80,
       "spans": [{"kind": "system", "start": 0, "end": 40}]}  # fmt: skip


def test_plans_single_batch_and_streaming_are_the_same(gateway: Through) -> None:
    single = httpx.post(f"{gateway.url}/v1/plan", json={"request": ROW}, timeout=30).json()
    batch = httpx.post(f"{gateway.url}/v1/plan", json={"requests": [ROW, {**ROW, "tokens": -1}]}, timeout=30).json()
    lines = b"\n".join([orjson.dumps({"request": ROW}), b"{", orjson.dumps({"request": ROW})])
    kind = {"content-type": "application/x-ndjson"}
    streamed = httpx.post(f"{gateway.url}/v1/plan", content=lines, headers=kind, timeout=30).text.splitlines()
    for row in (single, batch["plans"][0]):
        del row["at"]
    assert batch["plans"][0] == single
    assert "tokens" in batch["plans"][1]["error"]
    rows = [orjson.loads(line) for line in streamed]
    assert all({key: value for key, value in row.items() if key != "at"} == single for row in (rows[0], rows[2]))
    assert "not JSON" in rows[1]["error"]


def test_every_event_is_answered(gateway: Through) -> None:
    ask(gateway, "e1")
    assert gateway.phase("idle", "e1") in ("idle", "running", "human_pause")
    rows = [
        {"event": "tool_call", "session": "e1", "tool": "grep", "call": "c9"},
        {"event": "tool_call", "session": "nobody", "tool": "grep"},
        {"event": "no such event"},
        "no object",
        {"event": "tool_call", "session": "e1", "tool": "grep", "tenant": "another", "call": "c10"},
    ]
    hints = httpx.post(f"{gateway.url}/v1/events", json={"events": rows}, timeout=30).json()["hints"]
    assert [hint["status"] for hint in hints] == ["accepted", "ignored", "rejected", "rejected", "accepted"]
    assert all({"status", "requested", "granted", "reason"} <= set(hint) for hint in hints)
    assert gateway.phase("tool_pause", "e1") == "tool_pause"


# --- workflows and runs ---------------------------------------------------------------------------------------------


def test_runs_follow_the_workflow_that_their_requests_name(gateway: Through) -> None:
    put = httpx.put(f"{gateway.url}/v1/workflows/chain", json=CHAIN, timeout=30)
    assert put.status_code == 201
    assert put.json()["nodes"] == ["plan", "write", "judge"]
    assert httpx.put(f"{gateway.url}/v1/workflows/chain", json=CHAIN, timeout=30).status_code == 200
    httpx.put(f"{gateway.url}/v1/workflows/short", json=SHORT, timeout=30)
    assert gateway.get("/v1/workflows/chain") == CHAIN
    assert {"chain", "short"} <= set(gateway.get("/v1/workflows")["workflows"])
    for run, workflow in (("r-1", "chain"), ("r-2", "short")):
        context = f'session="{run}", run="{run}", workflow="{workflow}", node="plan", agent="plan"'
        ask(gateway, run, {"x-kvp-context": context})
    assert until(lambda: steps(gateway, "r-1", "judge"), 2) == 2
    assert until(lambda: steps(gateway, "r-2", "judge"), 1) == 1
    httpx.post(f"{gateway.url}/v1/events", json={"event": "step_end", "run": "r-1", "node": "plan"}, timeout=30)
    httpx.post(f"{gateway.url}/v1/events", json={"event": "step_start", "run": "r-1", "node": "write"}, timeout=30)
    run = gateway.get("/v1/runs/r-1")
    assert run["running"] == ["write"]
    assert run["workflow"] == "chain"
    assert [owner["agent"] for owner in run["owners"]] == ["plan"]
    assert httpx.delete(f"{gateway.url}/v1/workflows/short").status_code == 204
    assert httpx.delete(f"{gateway.url}/v1/workflows/short").status_code == 404
    assert httpx.get(f"{gateway.url}/v1/workflows/short").status_code == 404
    assert steps(gateway, "r-2", "judge") is not None


def test_a_run_without_a_name_goes_by_its_sessions(gateway: Through) -> None:
    httpx.put(f"{gateway.url}/v1/workflows/chain", json=CHAIN, timeout=30)
    ask(gateway, "r-3", {"x-kvp-context": 'session="r-3", workflow="chain", node="plan"'})
    assert until(lambda: steps(gateway, "r-3", "judge"), 2) == 2
    told = httpx.get(f"{gateway.url}/v1/runs/r-33", timeout=30)
    assert (told.status_code, told.json()["error"]["message"]) == (404, "nothing is known of a run or a session 'r-33'")


def steps(gateway: Through, run: str, node: str) -> Any:
    answer = httpx.get(f"{gateway.url}/v1/runs/{run}", timeout=30)
    if answer.status_code != 200:
        return None
    return next((row["steps_to_next_use"] for row in answer.json()["nodes"] if row["name"] == node), None)


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ([], "JSON object"),
        ({"nodes": ["a", "b"], "edges": [["a", "b"], ["b", "a"]]}, "a"),
        ({"nodes": ["a"], "edges": [["a", "z"]]}, "z"),
        ({"knots": []}, "knots"),
    ],
)
def test_a_workflow_that_is_wrong_is_refused_in_words(gateway: Through, document: Any, said: str) -> None:
    answer = httpx.put(f"{gateway.url}/v1/workflows/wrong", json=document, timeout=30)
    assert answer.status_code == 400
    assert said in answer.json()["error"]["message"]
    assert httpx.get(f"{gateway.url}/v1/workflows/wrong", timeout=30).status_code == 404


# --- explanations -----------------------------------------------------------------------------------------------------


def test_a_request_a_span_and_a_block_are_explained(gateway: Through) -> None:
    held = ask(gateway, "explained")
    until(lambda: len(gateway.owners("explained")), 1)
    whole = gateway.get(f"/v1/explain/{held}")
    assert whole["policy"]["name"] == "coding_agent"
    assert whole["engine"] == gateway.engine
    first = gateway.get(f"/v1/explain/{held}/0")
    assert first["spans"] == whole["spans"][:1]
    block = gateway.get(f"/v1/explain/{held}/blocks/1")
    assert (block["start"], block["end"]) == (16, 32)
    assert block["decided"]["index"] == 1
    assert block["answered"] is False  # this engine has no control channel
    for path in ("nothing", f"{held}/99", f"{held}/blocks/9999", f"{held}/blocks/-1"):
        assert httpx.get(f"{gateway.url}/v1/explain/{path}", timeout=30).status_code == 404


def test_a_tenant_sees_its_own_and_nothing_else(gateway: Through, tmp_path: Path) -> None:
    rows = "".join(
        f'[[tenant]]\nname = "{name}"\nkeys = ["{sha256(key.encode()).hexdigest()}"]\n' for name, key in KEYS.items()
    )
    settings = tmp_path / "kvp.toml"
    settings.write_text(f'[[upstream]]\nurl = "{gateway.engine}"\n{rows}')
    with running("serve", "--config", str(settings)) as at:
        with_keys = Through(at, gateway.engine)
        one, two = ({"authorization": f"Bearer {KEYS[name]}"} for name in ("one", "two"))
        held = ask(with_keys, "mine", one)
        until(lambda: len(httpx.get(f"{at}/v1/owners", headers=one).json()["owners"]), 1)
        assert httpx.put(f"{at}/v1/workflows/w", json=CHAIN, headers=one).status_code == 201
        event = {"event": "tool_call", "session": "mine", "tenant": "one", "tool": "x", "call": "c"}
        for headers, status, found in ((one, 200, 1), (two, 404, 0)):
            assert httpx.get(f"{at}/v1/explain/{held}", headers=headers).status_code == status
            assert httpx.get(f"{at}/v1/explain/{held}/blocks/0", headers=headers).status_code == status
            assert httpx.get(f"{at}/v1/workflows/w", headers=headers).status_code == status
            assert len(httpx.get(f"{at}/v1/owners", headers=headers).json()["owners"]) == found
        hints = httpx.post(f"{at}/v1/events", json=event, headers=two).json()["hints"]
        assert hints[0]["status"] == "ignored"
        for path in ("/v1/owners", "/v1/workflows", f"/v1/explain/{held}"):
            assert httpx.get(at + path).status_code == 401
            assert httpx.get(at + path, headers={"authorization": "Bearer wrong"}).status_code == 401
