"""Nothing that a client may say without end is taken so: rows, names, keys, texts; each refusal says its limit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import orjson
import pytest

from kvpolicy.service.app import Gateway
from kvpolicy.service.meaning.annotations import LONGEST_NAME, MOST_WARNED
from kvpolicy.service.meaning.body_field import from_body
from kvpolicy.service.meaning.sessions import Sessions
from kvpolicy.workflow.events import LONGEST_TEXT
from tests.service.test_edge_failing_open import assembled, engine_like
from tests.service.test_own_routes import ROW
from tests.service.upstream import upstream

EVENT = {"at": 1.0, "event": "tool_call", "tool": "grep", "session": "s"}
MOST = 50


@pytest.fixture(scope="module")
def running() -> Iterator[tuple[str, Gateway]]:
    with upstream(engine_like) as engine, assembled(engine.url, limits={"state_rows": MOST}) as made:
        yield made


def plan(at: str, document: Any, **more: Any) -> httpx.Response:
    return httpx.post(f"{at}/v1/plan", json=document, timeout=60, **more)


GRAPH = {"nodes": [f"n{n}" for n in range(10 * MOST + 1)], "edges": []}
TOO_LONG = [
    ({"events": [EVENT] * (MOST + 1)}, f"{MOST + 1} events; {MOST} are allowed"),
    ({"functions": [{"call": "idle()", "value": "1s"}] * (MOST + 1)}, f"{MOST + 1} functions; {MOST} are allowed"),
    ({"workflow": GRAPH}, f"{10 * MOST + 1} nodes; {10 * MOST} are allowed"),
    ({"workflow": {"nodes": ["a"], "edges": [["a", "a"]] * 600}}, f"600 edges; {10 * MOST} are allowed"),
]


@pytest.mark.parametrize(("state", "said"), TOO_LONG)
def test_a_state_is_told_within_a_limit_that_is_said(running: tuple[str, Gateway], state: Any, said: str) -> None:
    at, _ = running
    for document in ({"request": ROW, "state": state}, {"requests": [ROW], "state": state}):
        told = plan(at, document)
        assert told.status_code == 413
        assert said in told.json()["error"]["message"]
    lines = b"\n".join(orjson.dumps(each) for each in ({"request": ROW, "state": state}, ROW))
    answer = httpx.post(f"{at}/v1/plan", content=lines, headers={"content-type": "application/x-ndjson"}, timeout=60)
    first, second = (orjson.loads(line) for line in answer.content.splitlines())
    assert said in first["error"]
    assert "directives" in second


def test_a_state_within_it_is_planned_for_but_not_again_and_again(running: tuple[str, Gateway]) -> None:
    at, _ = running
    state = {"events": [EVENT] * MOST}
    assert "directives" in plan(at, {"request": ROW, "state": state}).json()
    assert len(plan(at, {"requests": [ROW] * 20, "state": state}).json()["plans"]) == 20
    told = plan(at, {"requests": [ROW] * 21, "state": state})
    assert told.status_code == 413
    assert f"{20 * MOST} are allowed in one call" in told.json()["error"]["message"]


@pytest.mark.parametrize("value", ["x" * (LONGEST_TEXT + 1), ["a"], {"a": 1}, [["x"] * 1000]])
def test_a_field_of_an_event_is_short(running: tuple[str, Gateway], value: Any) -> None:
    at, _ = running
    hints = httpx.post(f"{at}/v1/events", json={"events": [{"event": "tool_call", "session": value}]}, timeout=60)
    (hint,) = hints.json()["hints"]
    assert hint["status"] == "rejected"
    assert f"at most {LONGEST_TEXT} characters" in hint["reason"]
    said = from_body({"kvp": {"events": [{"event": "tool_call", "tool": value, "call": "c"}]}})
    assert [event.attributes for event in said.events] == [{"call": "c"}]
    assert said.warned == ("malformed",)


def test_the_warnings_of_a_request_have_an_end() -> None:
    many: dict[str, Any] = {f"{n}" + "k" * 1000: n for n in range(5000)}
    kvp = {
        **many,
        "context": many,
        "spans": [many] * 600,
        "events": [{"event": "tool_call", **many}] * 20,
        "policy": many,
    }
    said = from_body({"kvp": kvp})
    assert len(said.warnings) <= MOST_WARNED
    assert all(len(each.about or "") <= LONGEST_NAME for each in said.warnings)


@pytest.mark.parametrize("kind", [[], {}, None, 1, True, "x" * 10_000])
def test_what_is_no_kind_is_answered(kind: Any) -> None:
    said = from_body(
        {"kvp": {"spans": [{"kind": kind, "messages": [0, 1]}], "mode": kind, "policy": kind, "events": kind}}
    )
    assert said.marks == ()
    assert "unknown_tag" in said.warned


def test_a_long_document_is_read_as_a_short_one_is(running: tuple[str, Gateway]) -> None:
    """Aside, by another reader: numbers that are none and texts that are no Unicode are refused by both."""
    at, _ = running
    for fill in ("", " " * 300_000):
        for wrong in ("NaN", "1e400", '"\\ud800"', "[" * 100_000, "{", '{"a":1,}'):
            text = fill + '{"request": {"id": "r", "owner": {"session": ' + wrong + "}}}"
            told = httpx.post(f"{at}/v1/plan", content=text.encode(), timeout=60)
            assert told.status_code == 400, (wrong, told.text)
            assert "error" in told.json()
        row = orjson.dumps({"request": ROW}).decode()
        assert "directives" in httpx.post(f"{at}/v1/plan", content=(fill + row).encode(), timeout=60).json()


def test_no_two_processes_name_chains_alike() -> None:
    from kvpolicy.service.meaning import dialects
    from kvpolicy.service.meaning.annotations import Context

    names = set()
    for _ in range(2):
        sessions = Sessions()
        for number in range(3):
            body = {"messages": [{"role": "user", "content": f"{number}"}]}
            conversation = dialects.read("chat", body, b"k" * 32)
            assert conversation is not None
            names.add(sessions.arrive("t", Context(), conversation, 1.0).owner.session)
    assert len(names) == 6
    assert all(name is not None and name.startswith("~") for name in names)
