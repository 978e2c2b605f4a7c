"""The gateway in front of a real vLLM: places, a tool's pause, events and streams, as the engine has them.

Nothing is annotated but a session's name. What counts is `cached_tokens`, and that no answer changes.
"""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.engines.vllm.live.gateways import Gateway, Relay, bodies, full, gateway, until
from tests.engines.vllm.live.serving import Server, letters

SYSTEM = {"role": "system", "content": letters(41, 190)}
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "grep",
            "parameters": {
                "type": "object",
                "properties": {"q": {"type": "string", "enum": ["x"]}},
                "required": ["q"],
                "additionalProperties": False,
            },
        },
    }
]
# A model of random weights calls a tool when it is made to.
CALL = {"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "grep"}}}


def user(seed: int, count: int = 158) -> dict[str, str]:
    return {"role": "user", "content": letters(seed, count)}


@pytest.fixture
def through(steered: Server, tmp_path: Path) -> Iterator[Gateway]:
    with gateway(steered, tmp_path / "on") as made:
        yield made


def tokens_of(server: Server, messages: list[dict[str, Any]], generate: bool) -> list[int]:
    body = {"model": "tiny", "messages": messages, "add_generation_prompt": generate}
    return server.post("/tokenize", body)["tokens"]


def paused(made: Gateway, session: str, seed: int) -> tuple[list[dict[str, Any]], int]:
    """A session whose answer calls a tool: its messages so far, and the tokens of its prompt."""
    messages: list[dict[str, Any]] = [SYSTEM, user(seed, 120)]
    row = made.said(session, messages, 60, **CALL)
    message = row["choices"][0]["message"]
    assert message["tool_calls"], row
    told = {"role": "assistant", "content": "", "tool_calls": message["tool_calls"]}
    return [*messages, told], row["usage"]["prompt_tokens"]


def flood(made: Gateway, seed: int) -> None:
    """Other sessions, together more than the engine holds."""
    for n in range(14):
        made.said(f"flood-{seed}-{n}", [user(seed + n)])


def result(made: Gateway, session: str, messages: list[dict[str, Any]]) -> int:
    """Cached tokens when the tool's result comes."""
    call = messages[-1]["tool_calls"][0]["id"]
    row = made.said(session, [*messages, {"role": "tool", "tool_call_id": call, "content": "found"}], tools=TOOLS)
    return (row["usage"]["prompt_tokens_details"] or {}).get("cached_tokens") or 0


def test_places_are_those_of_the_engines_own_tokenizer(through: Gateway) -> None:
    messages = [SYSTEM, user(50, 100), {"role": "assistant", "content": letters(51, 40)}, user(52, 33)]
    row = through.said("places", messages)
    until(lambda: through.counter("kvpolicy_decisions_total", outcome="planned"), lambda seen: seen >= 1)
    request = through.owners("places")[-1]["requests"][-1]
    spans = json.loads(through.get(f"/v1/explain/{request}"))["spans"]
    ends = [len(tokens_of(through.behind, messages[: n + 1], False)) for n in range(len(messages))]
    assert [(each["start"], each["end"]) for each in spans if each["end"] is not None][: len(ends)] == list(
        zip([0, *ends], ends, strict=False)
    ), spans
    assert ends[-1] + 1 == row["usage"]["prompt_tokens"]  # and the start of the answer
    assert through.counter("kvpolicy_decisions_total", outcome="places_wrong") == 0


def test_a_tools_pause_is_survived_with_nothing_annotated(through: Gateway) -> None:
    messages, had = paused(through, "agent", 60)
    assert through.phase("agent", "tool_pause") == "tool_pause"
    until(lambda: protected(through.behind, "agent"), bool)
    flood(through, 600)
    assert result(through, "agent", messages) >= full(had)
    assert through.counter("kvpolicy_channel_total", what="answer_rejected") == 0
    assert through.behind.tell(do="ping")["engine"]["counters"].get("failures", 0) == 0


def test_and_is_lost_without_a_policy(steered: Server, tmp_path: Path) -> None:
    with gateway(steered, tmp_path / "off", mode="off") as made:
        messages, _ = paused(made, "agent", 61)
        flood(made, 620)
        assert result(made, "agent", messages) == 0
    assert all(row["implicit"] for row in claims(steered, "agent"))


def claims(server: Server, session: str) -> list[dict[str, Any]]:
    """The claims of a session, whoever its tenant is."""
    return [
        row
        for row in server.tell(do="show")["claims"]
        if (row["owner"] or {}) == session or (isinstance(row["owner"], dict) and row["owner"]["session"] == session)
    ]


def protected(server: Server, session: str) -> list[dict[str, Any]]:
    return [row for row in claims(server, session) if row["protected"]]


def test_an_event_is_told_over_the_channel(through: Gateway) -> None:
    """A pause protects what its session holds; the result's event ends that, and the session's end all of it."""
    paused(through, "told", 62)
    assert until(lambda: protected(through.behind, "told"), bool)
    post(through, {"event": "tool_result", "session": "told", "tool": "grep"})
    assert until(lambda: protected(through.behind, "told"), lambda rows: not rows) == []
    assert claims(through.behind, "told")
    post(through, {"event": "session_end", "session": "told"})
    kept = until(
        lambda: [r for r in claims(through.behind, "told") if r["kind"] == "turn" and not r["dropped"]],
        lambda rows: not rows,
    )
    assert kept == []


def post(made: Gateway, event: dict[str, Any]) -> None:
    (hint,) = made.post("/v1/events", event)["hints"]
    assert hint["status"] == "accepted", hint


def test_a_plan_follows_its_request_where_the_places_were_not_known(through: Gateway) -> None:
    """The first request of a session goes out at once; its claims come over the channel, named by its spans."""
    through.said("later", [SYSTEM, user(63, 60)])
    kinds = until(lambda: {row["kind"] for row in claims(through.behind, "later")}, lambda seen: "system" in seen)
    assert {"system", "turn"} <= kinds
    assert through.counter("kvpolicy_decisions_total", outcome="followed") >= 1


def test_a_stream_passes_byte_for_byte(steered: Server, tmp_path: Path) -> None:
    with closing(Relay(steered.port)) as relay, gateway(steered, tmp_path / "s", url=relay.url) as made:
        for path, extra in (
            ("/v1/chat/completions", {"messages": [SYSTEM, user(64, 20)]}),
            ("/v1/completions", {"prompt": letters(65, 40)}),
            ("/v1/messages", {"messages": [user(66, 20)]}),
        ):
            body = {"model": "tiny", "max_tokens": 24, "temperature": 0, "stream": True, **extra}
            request = urllib.request.Request(made.url + path, json.dumps(body).encode())
            request.add_header("Content-Type", "application/json")
            with urllib.request.urlopen(request, timeout=120) as answer:
                got = answer.read()
            sent = [each for kept in relay.answers for each in bodies(kept) if each.startswith((b"data:", b"event:"))]
            assert got.count(b"data:") > 5 and sent.count(got) == 1  # over whichever connection it came


def test_answers_are_the_same_token_for_token(steered: Server, tmp_path: Path) -> None:
    prompts = [[SYSTEM, user(70 + n, 20 + 9 * n)] for n in range(8)]
    direct = [steered.chat(messages, 24).tokens for messages in prompts]
    steered.post("/reset_prefix_cache")
    with gateway(steered, tmp_path / "t") as made:
        rows = [made.said(f"t{n}", messages, 24) for n, messages in enumerate(prompts)]
    assert [row["choices"][0]["token_ids"] for row in rows] == direct
    assert all("status=" in row["decision"] for row in rows)
