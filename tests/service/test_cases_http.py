"""Public fault reports over HTTP: annotations (C36), trust (L10), marks and tool results (C24), two tenants (C20).

Where a case and the design differ, the design holds: a header wins over the body; marks of the client's provider pass
unchanged, also in an order that the provider would refuse, as the engines behind this gateway do not read them.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import http_sf
import httpx
import pytest

from kvpolicy.service.meaning import dialects
from kvpolicy.service.meaning.offsets import Places
from kvpolicy.service.meaning.sessions import ONCE_AFTER
from kvpolicy.service.meaning.spans import CACHE_MARK, located
from tests.service.through import Through, through, until
from tests.simulated.running import running

LONG = " ".join(f"word{number}" for number in range(400))
KEYS = {"t1": "key-of-one", "t2": "key-of-two"}


@pytest.fixture(scope="module")
def gateway() -> Iterator[Through]:
    with through() as made:
        yield made


def ask(gateway: Through, headers: Any = None, body: dict[str, Any] | None = None, text: str = LONG) -> httpx.Response:
    document = {"model": "sim", "messages": [{"role": "user", "content": text}], "max_tokens": 2, **(body or {})}
    return httpx.post(f"{gateway.url}/v1/chat/completions", json=document, headers=headers or {}, timeout=60)


def warned(answer: httpx.Response) -> list[str]:
    """The codes; what they are about stands behind each as a parameter."""
    return [str(item[0]) for item in http_sf.parse(answer.headers.get("x-kvp-warn", "").encode(), tltype="list")]


def spans(gateway: Through, answer: httpx.Response) -> list[str]:
    """Kinds of the request's spans, once they are known."""
    held = answer.headers["x-kvp-decision"].split('"')[1]
    at = f"{gateway.url}/v1/explain/{held}"
    assert until(lambda: httpx.get(at, timeout=30).status_code, 200) == 200
    return [row["span"]["kind"] for row in httpx.get(at, timeout=30).json()["spans"]]


# --- C36: annotations ------------------------------------------------------------------------------------------------


def test_the_header_wins_and_the_conflict_is_answered_each_time(gateway: Through) -> None:
    for number in range(20):
        headers = {"x-kvp-spans": "(0 1);t=document", "x-session-id": f"c36-{number}"}
        body = {"kvp": {"spans": [{"messages": [0, 1], "kind": "scratchpad"}]}}
        answer = ask(gateway, headers, body)
        assert answer.status_code == 200
        assert "CONFLICTING_ANNOTATION" in warned(answer)
    assert "document" in spans(gateway, answer)
    assert "scratchpad" not in spans(gateway, answer)


def test_a_doubled_header_is_joined(gateway: Through) -> None:
    headers = [("x-kvp-spans", "(0 1);t=document"), ("x-kvp-spans", "(1 2);t=scratchpad"), ("x-session-id", "doubled")]
    messages = [{"role": "user", "content": LONG}, {"role": "user", "content": LONG}]
    answer = ask(gateway, headers, {"messages": messages})
    assert spans(gateway, answer)[:2] == ["document", "scratchpad"]


def test_a_name_with_underscores_is_none_of_ours(gateway: Through) -> None:
    answer = ask(gateway, {"x_kvp_spans": "(0 1);t=document", "x-session-id": "underscores"})
    assert answer.status_code == 200
    assert "document" not in spans(gateway, answer)


@pytest.mark.parametrize("header", ["(0 1);t=no_such_tag", '(0 1);t=""', "(0 1)", "(0 1;t=document", "", "ä"])
def test_what_is_not_understood_is_answered_and_costs_nothing(gateway: Through, header: str) -> None:
    answer = ask(gateway, {"x-kvp-spans": header.encode("utf-8"), "x-session-id": f"tag-{header.encode().hex()}"})
    assert answer.status_code == 200
    assert "policy=" in answer.headers["x-kvp-decision"]
    if header:
        assert {"unknown_tag", "malformed"} & set(warned(answer))


def test_a_session_name_that_never_repeats_is_noticed(gateway: Through) -> None:
    first = [{"role": "user", "content": LONG}, {"role": "assistant", "content": "yes"}]
    told = []
    for number in range(ONCE_AFTER + 3):
        messages = [*first, {"role": "user", "content": f"question {number}"}]
        told.append(warned(ask(gateway, {"x-session-id": f"once-{number}"}, {"messages": messages, "max_tokens": 1})))
    assert "SESSION_ID_NEVER_REPEATS" not in told[0]
    assert "SESSION_ID_NEVER_REPEATS" in told[-1]


# --- L10: a client raises itself -------------------------------------------------------------------------------------


def test_raw_fields_and_headers_change_nothing_of_what_is_decided(gateway: Through) -> None:
    raw = {
        "priority": 100,
        "kv_hints": [{"priority": 100}],
        "kv_transfer_params": {"kvpolicy": {"spans": [{"start": 0, "end": 64, "priority": 100}]}},
        "vllm_xargs": {"kvpolicy": '{"spans": [{"start": 0, "end": 64, "priority": 100}]}'},
        "nvext": {"agent_hints": {"priority": 100}},
    }
    headers = {"x-vllm-priority": "1", "x-dynamo-request-priority": "9", "x-kvp-tenant": "t2"}
    plain = ask(gateway, {"x-session-id": "plain"})
    raised = ask(gateway, {"x-session-id": "raised", **headers}, raw)
    for answer in (plain, raised):
        spans(gateway, answer)
    rows = [
        httpx.get(f"{gateway.url}/v1/explain/{a.headers['x-kvp-decision'].split(chr(34))[1]}", timeout=30).json()
        for a in (plain, raised)
    ]
    assert [row["properties"] for row in rows[0]["spans"]] == [row["properties"] for row in rows[1]["spans"]]


# --- C24: marks, parallel results, their order -----------------------------------------------------------------------


def test_marks_pass_unchanged_and_three_results_are_one_unit(gateway: Through) -> None:
    calls = [{"type": "tool_use", "id": f"c{n}", "name": "grep", "input": {}} for n in range(3)]
    results = [{"type": "tool_result", "tool_use_id": f"c{n}", "content": f"{LONG} {n}"} for n in range(3)]
    tool = {"name": "grep", "input_schema": {"type": "object"}, "cache_control": {"type": "ephemeral"}}
    system = [{"type": "text", "text": LONG, "cache_control": {"type": "ephemeral", "ttl": "1h"}}]
    body = {
        "model": "sim", "max_tokens": 2, "tools": [tool], "system": system,
        "messages": [{"role": "user", "content": "look"}, {"role": "assistant", "content": calls},
                     {"role": "user", "content": results}],
    }  # fmt: skip
    taken: list[bytes] = []
    with recording(taken) as upstream, running("serve", "--upstream", upstream) as at:
        httpx.post(f"{at}/v1/messages", json=body, timeout=30)
    import orjson

    got = orjson.loads(taken[-1].partition(b"\r\n\r\n")[2])
    for field in ("tools", "system", "messages"):
        assert got[field] == body[field]  # 5 minutes before an hour: the client's own order, left to its provider
    conversation = dialects.read("messages", body, b"k" * 32)
    assert conversation is not None
    assert [unit.kind for unit in conversation.units] == ["tools", "system", "turn", "turn", "tool_result"]
    assert conversation.units[-1].answers == ("c0", "c1", "c2")
    assert [unit.mark for unit in conversation.units] == [True, True, False, False, False]


def test_a_mark_ends_a_span_of_its_own() -> None:
    part = {"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}
    messages = [{"role": "system", "content": [part]}, {"role": "system", "content": "y"}]
    conversation = dialects.read("chat", {"messages": messages}, b"k" * 32)
    assert conversation is not None
    found = located(conversation, Places(40, (20, 40)), ())
    assert [(s.start, s.end, s.attributes.get("name")) for s in found.spans[:2]] == [
        (0, 20, CACHE_MARK),
        (20, 40, None),
    ]


class recording:
    """A server that takes one request after another and answers nothing of use."""

    def __init__(self, taken: list[bytes]) -> None:
        self.taken = taken

    def __enter__(self) -> str:
        import socket

        self.listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._serve, daemon=True).start()
        return f"http://127.0.0.1:{self.listener.getsockname()[1]}"

    def __exit__(self, *_: object) -> None:
        self.listener.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            with connection:
                connection.settimeout(10)
                data = b""
                while b"\r\n\r\n" not in data or len(data.partition(b"\r\n\r\n")[2]) < _length(data):
                    data += connection.recv(65536)
                if data.startswith(b"POST /v1/messages"):
                    self.taken.append(data)
                connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}")


def _length(data: bytes) -> int:
    for line in data.partition(b"\r\n\r\n")[0].split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return int(value)
    return 0


# --- C20: two tenants, one system prompt -----------------------------------------------------------------------------


def test_two_tenants_with_one_prompt_hit_nothing_of_each_other(gateway: Through, tmp_path: Path) -> None:
    rows = "".join(
        f'[[tenant]]\nname = "{name}"\nkeys = ["{sha256(key.encode()).hexdigest()}"]\n' for name, key in KEYS.items()
    )
    settings = tmp_path / "kvp.toml"
    settings.write_text(f'[[upstream]]\nurl = "{gateway.engine}"\n{rows}')
    prompt = f"a prompt of both tenants {LONG}"
    with running("serve", "--config", str(settings)) as at:
        through_keys = Through(at, gateway.engine)

        def cached(tenant: str, **more: Any) -> int:
            answer = ask(through_keys, {"authorization": f"Bearer {KEYS[tenant]}"}, more, prompt)
            return answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"]

        assert cached("t1") == 0
        assert cached("t1") > 300
        assert cached("t2") == 0
        assert cached("t2", cache_salt="kvp-of-t1") > 300  # its own; the salt it states is not used
