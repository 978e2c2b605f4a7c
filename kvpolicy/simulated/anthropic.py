"""Anthropic's `/v1/messages` on the simulated server: its blocks become messages, an answer becomes its blocks.

Read and written by `app`; `openai` does the same for chat completions.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

import orjson

from kvpolicy.faults import InputFault
from kvpolicy.simulated.chat import render, text_of, tools_of
from kvpolicy.simulated.generation import Call
from kvpolicy.simulated.openai import call_of

_STOP = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}


def message_call(body: Mapping[str, Any], number: int, longest: int) -> Call:
    """The call of a body. Raises InputFault naming the field."""
    turns = body.get("messages")
    if not isinstance(turns, list):
        raise InputFault("messages must be a list with at least one message")
    messages: list[dict[str, Any]] = []
    if body.get("system"):
        messages.append({"role": "system", "content": text_of(body["system"], "system")})
    for index, turn in enumerate(turns):
        messages += _turn(turn, index)
    prompt = render(messages, tools_of(body.get("tools"))).tokens
    return call_of(body, prompt, f"msg_{number}", body.get("max_tokens"), longest)


def message_body(call: Call, model: str) -> dict[str, Any]:
    """A finished message."""
    return {
        **_head(call, model),
        "content": _blocks(call.answer.message),
        "stop_reason": _STOP[call.answer.finish],
        "usage": _usage(call, len(call.answer.tokens)),
    }


async def message_stream(call: Call, model: str, steps: AsyncIterator[Mapping[str, Any]]) -> AsyncIterator[bytes]:
    """The server-sent events of a message. It starts when the first token is there, as the counts are known then."""
    index, opened = -1, None
    started = False
    async for delta in steps:
        if not started:
            head = {**_head(call, model), "content": [], "stop_reason": None, "usage": _usage(call, 1)}
            yield _event("message_start", {"message": head})
            started = True
        kind, block, change = _change(delta)
        if opened is None or kind != opened or block is not None:
            if opened is not None:
                yield _event("content_block_stop", {"index": index})
            index, opened = index + 1, kind
            yield _event("content_block_start", {"index": index, "content_block": block or _EMPTY[kind]})
        if change is not None:
            yield _event("content_block_delta", {"index": index, "delta": change})
    if opened is not None:
        yield _event("content_block_stop", {"index": index})
    end = {"stop_reason": _STOP[call.answer.finish], "stop_sequence": None}
    yield _event("message_delta", {"delta": end, "usage": {"output_tokens": len(call.answer.tokens)}})
    yield _event("message_stop", {})


_EMPTY: Mapping[str, Mapping[str, Any]] = {
    "text": {"type": "text", "text": ""},
    "thinking": {"type": "thinking", "thinking": "", "signature": ""},
}


def _change(delta: Mapping[str, Any]) -> tuple[str, Mapping[str, Any] | None, Mapping[str, Any] | None]:
    """One step as (kind of block, the block that opens with it, the change)."""
    if "reasoning_content" in delta:
        return "thinking", None, {"type": "thinking_delta", "thinking": delta["reasoning_content"]}
    if "tool_calls" in delta:
        call = delta["tool_calls"][0]
        if "id" in call:
            return (
                "tool_use",
                {"type": "tool_use", "id": call["id"], "name": call["function"]["name"], "input": {}},
                None,
            )
        return "tool_use", None, {"type": "input_json_delta", "partial_json": call["function"]["arguments"]}
    return "text", None, {"type": "text_delta", "text": delta["content"]}


def _turn(turn: object, index: int) -> list[dict[str, Any]]:
    """A turn as messages: each tool result is one of its own, in its place."""
    if not isinstance(turn, Mapping):
        raise InputFault(f"messages[{index}] must be an object")
    role, content = turn.get("role"), turn.get("content")
    if isinstance(content, str) or content is None:
        return [{"role": role, "content": content}]
    if not isinstance(content, list):
        raise InputFault(f"messages[{index}].content must be text or a list of blocks")
    made: list[dict[str, Any]] = []
    for block in content:
        kind = block.get("type") if isinstance(block, Mapping) else None
        if kind == "tool_result":
            made.append({"role": "tool", "content": text_of(block.get("content"), f"messages[{index}]")})
            continue
        if not made or made[-1]["role"] != role:
            made.append({"role": role, "content": ""})
        last = made[-1]
        if kind == "tool_use":
            arguments = orjson.dumps(block.get("input")).decode()
            function = {"name": block.get("name"), "arguments": arguments}
            last.setdefault("tool_calls", []).append({"function": function})
        elif kind == "thinking":
            last["reasoning_content"] = str(block.get("thinking"))
        else:
            last["content"] += text_of([block], f"messages[{index}]")
    return made


def _blocks(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    if message.get("reasoning_content"):
        blocks.append({"type": "thinking", "thinking": message["reasoning_content"], "signature": ""})
    if message.get("content"):
        blocks.append({"type": "text", "text": message["content"]})
    for call in message.get("tool_calls") or ():
        function = call["function"]
        try:
            told = orjson.loads(function["arguments"] or "{}")
        except orjson.JSONDecodeError:
            told = {"arguments": function["arguments"]}
        blocks.append({"type": "tool_use", "id": call["id"], "name": function["name"], "input": told})
    return blocks


def _head(call: Call, model: str) -> dict[str, Any]:
    return {"id": call.id, "type": "message", "role": "assistant", "model": model, "stop_sequence": None}


def _usage(call: Call, made: int) -> dict[str, Any]:
    return {
        "input_tokens": len(call.prompt) - call.cached,
        "cache_read_input_tokens": call.cached,
        "cache_creation_input_tokens": 0,
        "output_tokens": made,
    }


def _event(name: str, fields: Mapping[str, Any]) -> bytes:
    return b"event: " + name.encode() + b"\ndata: " + orjson.dumps({"type": name, **fields}) + b"\n\n"
