"""No body of a client's and no answer of an engine's breaks its reader, whatever stands in the place of what is meant.

Every place of a good body, and of a good answer of each dialect, is filled with each of many odd values.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Any

import orjson
import pytest

from kvpolicy.service.answers import AnswerReader
from kvpolicy.service.meaning import dialects
from kvpolicy.service.meaning.annotations import Context
from kvpolicy.service.meaning.body_field import from_body
from kvpolicy.service.meaning.following import following
from kvpolicy.service.meaning.identity import identified
from kvpolicy.service.meaning.offsets import Places
from kvpolicy.service.meaning.sessions import Sessions
from kvpolicy.service.meaning.spans import located

KEY = b"k" * 32
TOOL = {"type": "function", "function": {"name": "grep", "parameters": {}}}
CALL = {"id": "c", "type": "function", "function": {"name": "grep", "arguments": "{}"}}
KVP = {
    "context": {"session": "s", "turn": 1, "final": True},
    "spans": [
        {"messages": [0, 1], "kind": "system", "name": "a"},
        {"tokens": [0, 4], "kind": "turn"},
        {"tools": True, "kind": "tools"},
    ],
    "events": [{"event": "tool_call", "tool": "g", "call": "c", "eta": 4.5, "session": "s"}],
    "policy": {"name": "p", "mode": "shadow"},
}
TEXT = {"type": "text", "text": "x", "cache_control": {}}
USED = {"type": "tool_use", "id": "c", "name": "grep", "input": {}}
BODIES: dict[str, Any] = {
    "chat": {
        "model": "m",
        "tools": [TOOL],
        "kvp": KVP,
        "metadata": {"session_id": "s"},
        "messages": [
            {"role": "system", "content": [TEXT]},
            {"role": "assistant", "content": None, "reasoning": "r", "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "c", "name": "n", "content": "f"},
        ],
    },
    "messages": {
        "model": "m",
        "tools": [{"name": "grep", "input_schema": {}}],
        "system": [TEXT],
        "messages": [
            {"role": "assistant", "content": [{"type": "thinking", "thinking": "t"}, TEXT, USED]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": [TEXT]}, TEXT]},
        ],
    },
    "responses": {
        "model": "m",
        "instructions": "i",
        "tools": [{"type": "function", "name": "grep"}],
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "x"}]},
            {"type": "function_call", "name": "g", "arguments": "{}", "call_id": "c"},
            {"type": "function_call_output", "call_id": "c", "output": "o"},
            {"type": "reasoning", "summary": []},
        ],
    },
    "completions": {"model": "m", "prompt": [1, 2, 3]},
}
USAGE = {"prompt_tokens": 3, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 2}}
EVENTS: dict[str, list[Any]] = {
    "chat": [
        {
            "choices": [
                {
                    "index": 0,
                    "delta": {"content": "a", "reasoning": "r", "tool_calls": [CALL | {"index": 0}]},
                    "finish_reason": "tool_calls",
                }
            ],
            "usage": USAGE,
        }
    ],
    "completions": [{"choices": [{"index": 0, "text": "x", "finish_reason": "stop"}], "usage": USAGE}],
    "messages": [
        {
            "type": "message_start",
            "message": {"usage": {"input_tokens": 3, "cache_read_input_tokens": 1, "cache_creation_input_tokens": 2}},
        },
        {"type": "content_block_start", "index": 0, "content_block": USED},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": "{}"}},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "x"}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 3}},
    ],
    "responses": [
        {
            "type": "response.completed",
            "response": {
                "status": "completed",
                "usage": {"input_tokens": 3, "output_tokens": 1, "input_tokens_details": {"cached_tokens": 0}},
                "output": [
                    {"type": "function_call", "call_id": "c", "name": "g", "arguments": "{}"},
                    {"type": "message", "role": "assistant", "content": [TEXT]},
                ],
            },
        }
    ],
}
WHOLE: dict[str, Any] = {
    "chat": EVENTS["chat"][0]
    | {"choices": [{"index": 0, "message": {"content": "a", "tool_calls": [CALL]}, "finish_reason": "stop"}]},
    "completions": EVENTS["completions"][0],
    "messages": {"content": [TEXT, USED], "stop_reason": "tool_use", "usage": {"input_tokens": 3, "output_tokens": 2}},
    "responses": EVENTS["responses"][0]["response"],
}
ODD: list[Any] = [
    None,
    True,
    0,
    -1,
    7,
    1.5,
    1e300,
    2**64 - 1,
    "",
    "x",
    "\x00",
    "tool",
    [],
    {},
    [None],
    [1],
    ["a"],
    [[]],
]
ODD += [{"a": 1}, {"x": None}, [{}]]


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield from places(value[key], (*path, key))


def odd(value: Any) -> Iterator[Any]:
    """The value with each of its places filled with each odd value."""
    for path in places(value):
        for filling in ODD:
            made = [copy.deepcopy(value)]
            at: Any = made
            for key in (0, *path)[:-1]:
                at = at[key]
            at[(0, *path)[-1]] = filling
            yield made[0]


def is_sound(reader: AnswerReader) -> bool:
    counts = (reader.prompt, reader.cached, reader.output)
    return all(each is None or type(each) is int for each in counts) and isinstance(reader.finish, str | None)


@pytest.mark.parametrize("dialect", BODIES)
def test_a_request_is_read_or_is_none(dialect: str) -> None:
    known = AnswerReader(dialect, True)
    feed(known, EVENTS[dialect])
    for body in odd(BODIES[dialect]):
        if not isinstance(body, dict):
            continue
        said = from_body(body)
        identified(Context(), {}, body)
        conversation = dialects.read(dialect, body, KEY)
        if conversation is None:
            continue
        Sessions().arrive("t", Context(), conversation, 1.0)
        following(conversation, known, KEY)
        located(conversation, Places(10, (5,) * len(conversation.units)), said.marks)


def feed(reader: AnswerReader, events: Sequence[Any]) -> None:
    for event in events:
        reader.feed(b"event: e\r\n: a comment\r\ndata: " + orjson.dumps(event) + b"\r\n\r\n")
    reader.end()


@pytest.mark.parametrize("dialect", BODIES)
def test_an_answer_is_read_or_says_nothing(dialect: str) -> None:
    conversation = dialects.read(dialect, BODIES[dialect], KEY)
    assert conversation is not None
    for events in odd(EVENTS[dialect]):
        if isinstance(events, list):
            reader = AnswerReader(dialect, True)
            feed(reader, events)
            assert is_sound(reader)
            following(conversation, reader, KEY)
    for body in odd(WHOLE[dialect]):
        reader = AnswerReader(dialect, False)
        reader.feed(orjson.dumps(body))
        reader.end()
        assert is_sound(reader)
        following(conversation, reader, KEY)


@pytest.mark.parametrize("dialect", BODIES)
def test_what_stands_where_it_is_meant_is_read(dialect: str) -> None:
    for stream, told in ((True, EVENTS[dialect]), (False, WHOLE[dialect])):
        reader = AnswerReader(dialect, stream)
        if stream:
            feed(reader, told)
        else:
            reader.feed(orjson.dumps(told))
            reader.end()
        assert reader.finish
        assert reader.prompt
        assert bool(reader.calls) == (dialect != "completions")
