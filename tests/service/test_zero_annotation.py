"""What clients do that say nothing about themselves: their phases, their chains, their history, in all dialects.

The clients are the real ones, gateway and engine are processes; nothing is annotated but, where a test says so, a
session's name.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.service.through import SYSTEM, Through, through, until

openai = pytest.importorskip("openai")
anthropic = pytest.importorskip("anthropic")

CALLS = [{"id": "c1", "type": "function", "function": {"name": "grep", "arguments": '{"q": "x"}'}}]
LOOK = {"sim_reply": {"content": "let me look", "tool_calls": CALLS}}
DONE = {"sim_reply": {"content": "it is in the second file"}}
TOOL = {"name": "grep", "description": "find text", "parameters": {"type": "object", "properties": {}}}
FOUND = "found it in two files " * 6


@pytest.fixture(scope="module")
def gateway() -> Iterator[Through]:
    with through() as made:
        yield made


def named(session: str) -> dict[str, str]:
    return {"x-session-id": session}


# --- one turn with a tool, in each dialect ---------------------------------------------------------------------


class Chat:
    """A conversation over chat completions."""

    def __init__(self, gateway: Through, session: str, stream: bool) -> None:
        self.client, self.session, self.stream = gateway.chats(), session, stream
        self.messages: list[Any] = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": session}]

    def ask(self, reply: dict[str, Any]) -> int:
        kept = {"model": "sim", "messages": self.messages, "tools": [{"type": "function", "function": TOOL}]}
        more = {"extra_body": reply, "extra_headers": named(self.session)}
        if self.stream:
            text, calls, usage = "", [], None
            for event in self.client.create(**kept, **more, stream=True, stream_options={"include_usage": True}):
                usage = event.usage or usage
                for choice in event.choices:
                    text += choice.delta.content or ""
                    calls += [call.model_dump(exclude_none=True) for call in choice.delta.tool_calls or ()]
            message: dict[str, Any] = {"role": "assistant", "content": text}
            if calls:
                first = {k: v for k, v in calls[0].items() if k != "index"}
                first["function"]["arguments"] = "".join(c["function"].get("arguments", "") for c in calls)
                message["tool_calls"] = [first]
        else:
            answer = self.client.create(**kept, **more)
            message, usage = answer.choices[0].message.model_dump(exclude_none=True), answer.usage
        self.messages.append(message)
        return usage.prompt_tokens_details.cached_tokens

    def result(self) -> None:
        self.messages.append({"role": "tool", "tool_call_id": "c1", "content": FOUND})

    def more(self, text: str) -> None:
        self.messages.append({"role": "user", "content": text})


class Messages:
    """The same over Anthropic's messages."""

    def __init__(self, gateway: Through, session: str, stream: bool) -> None:
        self.client, self.session, self.stream = gateway.messages(), session, stream
        self.messages: list[Any] = [{"role": "user", "content": session}]

    def ask(self, reply: dict[str, Any]) -> int:
        tool = {"name": "grep", "description": "find text", "input_schema": TOOL["parameters"]}
        kept = {"model": "sim", "max_tokens": 64, "system": SYSTEM, "messages": self.messages, "tools": [tool]}
        more = {"extra_body": reply, "extra_headers": named(self.session)}
        if self.stream:
            with self.client.stream(**kept, **more) as events:
                answer = events.get_final_message()
        else:
            answer = self.client.create(**kept, **more)
        self.messages.append(
            {"role": "assistant", "content": [b.model_dump(exclude_none=True) for b in answer.content]}
        )
        return answer.usage.cache_read_input_tokens or 0

    def result(self) -> None:
        block = {"type": "tool_result", "tool_use_id": "c1", "content": FOUND}
        self.messages.append({"role": "user", "content": [block]})

    def more(self, text: str) -> None:
        self.messages.append({"role": "user", "content": text})


class Responses:
    """The same over responses."""

    def __init__(self, gateway: Through, session: str, stream: bool) -> None:
        self.client, self.session, self.stream = gateway.responses(), session, stream
        self.items: list[Any] = [{"role": "user", "content": session}]

    def ask(self, reply: dict[str, Any]) -> int:
        kept = {"model": "sim", "instructions": SYSTEM, "input": self.items, "tools": [{"type": "function", **TOOL}]}
        more = {"extra_body": reply, "extra_headers": named(self.session)}
        if self.stream:
            with self.client.stream(**kept, **more) as events:
                for _ in events:
                    pass
                answer = events.get_final_response()
        else:
            answer = self.client.create(**kept, **more)
        self.items += [item.model_dump(exclude_none=True) for item in answer.output]
        return answer.usage.input_tokens_details.cached_tokens

    def result(self) -> None:
        self.items.append({"type": "function_call_output", "call_id": "c1", "output": FOUND})

    def more(self, text: str) -> None:
        self.items.append({"role": "user", "content": text})


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("dialect", [Chat, Messages, Responses])
def test_a_tool_call_opens_the_pause_its_result_closes_it_and_the_answer_opens_the_human_wait(
    gateway: Through, dialect: Any, stream: bool
) -> None:
    session = f"{dialect.__name__}-{stream}"
    talk = dialect(gateway, session, stream)
    talk.ask(LOOK)
    assert gateway.phase("tool_pause", session) == "tool_pause"
    held = gateway.owners(session)[0]["requests"][-1]
    told = gateway.get(f"/v1/explain/{held}")
    kinds = {row["span"]["kind"]: row for row in told["spans"]}
    assert {"system", "tools", "turn"} <= set(kinds)
    assert kinds["turn"]["properties"]["retention"]["rule"] == "paused"
    talk.result()
    cached = talk.ask(DONE)
    assert cached > 0
    assert gateway.phase("human_pause", session) == "human_pause"
    after = gateway.get(f"/v1/explain/{gateway.owners(session)[0]['requests'][-1]}")
    assert all("retention" not in row["properties"] for row in after["spans"])
    results = [row["span"] for row in after["spans"] if row["span"]["kind"] == "tool_result"]
    assert [row["tool"] for row in results] == ["grep"]
    assert gateway.counter("kvpolicy_decisions_total", outcome="places_wrong") == 0


def test_a_side_request_without_the_result_leaves_the_pause_open(gateway: Through) -> None:
    talk = Chat(gateway, "side", False)
    talk.ask(LOOK)
    assert gateway.phase("tool_pause", "side") == "tool_pause"
    title = [{"role": "user", "content": "a title of three words for this"}]
    gateway.chats().create(
        model="sim",
        messages=title,
        max_tokens=4,
        extra_headers=named("side"),
        extra_body={"sim_reply": {"content": "x"}},
    )
    assert gateway.phase("tool_pause", "side") == "tool_pause"
    talk.result()
    talk.ask(DONE)
    assert gateway.phase("human_pause", "side") == "human_pause"


# --- chains that nobody names ----------------------------------------------------------------------------------


def nameless(gateway: Through) -> set[str]:
    return {row["session"] for row in gateway.owners() if row["session"].startswith("~")}


@pytest.mark.parametrize("dialect", [Chat, Messages, Responses])
def test_a_chain_without_an_identifier_goes_on(gateway: Through, dialect: Any) -> None:
    before = nameless(gateway)
    talk = dialect(gateway, f"without a name {dialect.__name__}", False)
    talk.session = ""
    talk.ask(LOOK)
    talk.result()
    talk.ask(DONE)
    talk.more("and in the third?")
    talk.ask(DONE)
    until(lambda: len(nameless(gateway) - before), 1)
    new = nameless(gateway) - before
    assert len(new) == 1
    assert gateway.phase("human_pause", next(iter(new))) == "human_pause"


def test_two_chains_with_one_system_prompt_are_two(gateway: Through) -> None:
    before = nameless(gateway)
    for text in ("the first of two", "the second of two"):
        talk = Chat(gateway, text, False)
        talk.session = ""
        talk.ask(DONE)
        talk.more("go on")
        talk.ask(DONE)
    until(lambda: len(nameless(gateway) - before), 2)
    assert len(nameless(gateway) - before) == 2


# --- a history that changes ------------------------------------------------------------------------------------


def test_a_history_rewritten_to_something_shorter_is_a_compaction(gateway: Through) -> None:
    talk = Chat(gateway, "compacts", False)
    talk.ask(DONE)
    for text in ("one more", "and another"):
        talk.more(text)
        talk.ask(DONE)
    events = gateway.counter("kvpolicy_decisions_total", outcome="events")
    talk.messages = [talk.messages[0], {"role": "user", "content": "summary: it is in the second file. Go on."}]
    talk.ask(DONE)
    assert gateway.counter("kvpolicy_decisions_total", outcome="events") == events + 1
    assert gateway.counter("kvpolicy_prefix_doctor_total", code="HISTORY_DIVERGED") > 0


def test_a_history_that_goes_on_is_none(gateway: Through) -> None:
    talk = Chat(gateway, "goes on", False)
    events = gateway.counter("kvpolicy_decisions_total", outcome="events")
    for text in ("one", "two", "three"):
        talk.more(text)
        talk.ask(DONE)
    assert gateway.counter("kvpolicy_decisions_total", outcome="events") == events


# --- what clients say already ----------------------------------------------------------------------------------


def test_identities_that_clients_send_already_are_understood(gateway: Through) -> None:
    for headers, body, session in (
        ({"x-claude-code-session-id": "cc-1"}, {}, "cc-1"),
        ({"x-session-affinity": "aff-1"}, {}, "aff-1"),
        ({}, {"prompt_cache_key": "key-1"}, "key-1"),
        ({}, {"kvp": {"session": "body-1"}}, "body-1"),
        ({"x-kvp-context": 'session="own-1"', "x-session-id": "other"}, {}, "own-1"),
    ):
        ask = [{"role": "user", "content": f"who am I, {session}"}]
        gateway.chats().create(model="sim", messages=ask, max_tokens=4, extra_headers=headers, extra_body=body)
        assert until(lambda session=session: len(gateway.owners(session)), 1) == 1
