"""OpenAI's `/v1/responses` on the simulated server, without stored conversations: `input` carries the whole history.

Read and written by `app`; `openai` does the same for chat completions.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping
from typing import Any

import orjson

from kvpolicy.faults import InputFault
from kvpolicy.simulated.chat import render, tools_of
from kvpolicy.simulated.generation import Call
from kvpolicy.simulated.openai import call_of


def response_call(body: Mapping[str, Any], number: int, longest: int) -> Call:
    """The call of a body. Raises InputFault naming the field."""
    if body.get("previous_response_id") is not None:
        raise InputFault("previous_response_id is not supported here: send the whole input")
    given = body.get("input")
    if isinstance(given, str):
        given = [{"role": "user", "content": given}]
    if not isinstance(given, list):
        raise InputFault("input must be text or a list of items")
    messages: list[dict[str, Any]] = []
    if body.get("instructions"):
        messages.append({"role": "system", "content": body["instructions"]})
    for index, item in enumerate(given):
        _add(messages, item, index)
    prompt = render(messages, tools_of(body.get("tools"))).tokens
    return call_of(body, prompt, f"resp_{number}", body.get("max_output_tokens"), longest)


def response_body(call: Call, model: str, status: str = "completed") -> dict[str, Any]:
    """A response, finished or in progress."""
    done = status == "completed"
    made = len(call.answer.tokens)
    cut = done and call.answer.finish == "length"
    counts = {
        "input_tokens": len(call.prompt),
        "input_tokens_details": {"cached_tokens": call.cached, "cache_write_tokens": 0},
        "output_tokens": made,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": len(call.prompt) + made,
    }
    return {
        "id": call.id,
        "object": "response",
        "created_at": int(time.time()),
        "status": "incomplete" if cut else status,
        "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
        "error": None,
        "instructions": None,
        "metadata": {"simulated": "true"},
        "model": model,
        "output": _items(call) if done else [],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": counts if done else None,
    }


async def response_stream(call: Call, model: str, steps: AsyncIterator[Mapping[str, Any]]) -> AsyncIterator[bytes]:
    """The server-sent events of a response: items open as their first step comes."""
    stream = _Stream()
    yield stream.event("response.created", response=response_body(call, model, "in_progress"))
    open_item: dict[str, Any] | None = None
    index, items = -1, _items(call)
    async for delta in steps:
        kind = _kind(delta)
        if kind is None:
            continue
        if open_item is None or open_item["type"] != kind or _opens(delta):
            if open_item is not None:
                for name, fields in _closing(open_item, index):
                    yield stream.event(name, **fields)
            index += 1
            open_item = items[index]
            yield stream.event("response.output_item.added", output_index=index, item=_empty(open_item))
            if kind == "message":
                part = {"type": "output_text", "text": "", "annotations": []}
                yield stream.event(
                    "response.content_part.added",
                    output_index=index,
                    item_id=open_item["id"],
                    content_index=0,
                    part=part,
                )
        place = {"output_index": index, "item_id": open_item["id"]}
        if kind == "message":
            text = delta["content"]
            yield stream.event("response.output_text.delta", **place, content_index=0, delta=text, logprobs=[])
        elif not _opens(delta):
            text = delta["tool_calls"][0]["function"]["arguments"]
            yield stream.event("response.function_call_arguments.delta", **place, delta=text)
    if open_item is not None:
        for name, fields in _closing(open_item, index):
            yield stream.event(name, **fields)
    yield stream.event("response.completed", response=response_body(call, model))


class _Stream:
    """Numbers the events of one stream."""

    def __init__(self) -> None:
        self.number = 0

    def event(self, name: str, /, **fields: object) -> bytes:
        document = {"type": name, "sequence_number": self.number, **fields}
        self.number += 1
        return b"event: " + name.encode() + b"\ndata: " + orjson.dumps(document) + b"\n\n"


def _add(messages: list[dict[str, Any]], item: object, index: int) -> None:
    """One input item, as the message it is or belongs to."""
    if not isinstance(item, Mapping):
        raise InputFault(f"input[{index}] must be an object")
    kind = item.get("type", "message")
    if kind == "message":
        messages.append({"role": item.get("role"), "content": item.get("content")})
    elif kind == "function_call":
        if not messages or messages[-1]["role"] != "assistant":
            messages.append({"role": "assistant", "content": None})
        function = {"name": item.get("name"), "arguments": item.get("arguments", "")}
        messages[-1].setdefault("tool_calls", []).append({"function": function})
    elif kind == "function_call_output":
        messages.append({"role": "tool", "content": item.get("output")})
    elif kind != "reasoning":
        raise InputFault(f"input[{index}].type {kind!r} is not known here")


def _items(call: Call) -> list[dict[str, Any]]:
    message, items = call.answer.message, []
    if message.get("content"):
        part = {"type": "output_text", "text": message["content"], "annotations": [], "logprobs": []}
        items.append(
            {
                "id": f"msg_{call.id}",
                "type": "message",
                "role": "assistant",
                "status": "completed",
                "content": [part],
            }
        )
    for number, made in enumerate(message.get("tool_calls") or ()):
        items.append(
            {
                "id": f"fc_{call.id}_{number}",
                "type": "function_call",
                "call_id": made["id"],
                "name": made["function"]["name"],
                "arguments": made["function"]["arguments"],
                "status": "completed",
            }
        )
    return items


def _empty(item: Mapping[str, Any]) -> dict[str, Any]:
    nothing: dict[str, Any] = {"content": []} if item["type"] == "message" else {"arguments": ""}
    return {**item, **nothing, "status": "in_progress"}


def _closing(item: Mapping[str, Any], index: int) -> list[tuple[str, dict[str, Any]]]:
    place = {"output_index": index, "item_id": item["id"]}
    last = ("response.output_item.done", {"output_index": index, "item": item})
    if item["type"] == "message":
        part = item["content"][0]
        return [
            ("response.output_text.done", {**place, "content_index": 0, "text": part["text"], "logprobs": []}),
            ("response.content_part.done", {**place, "content_index": 0, "part": part}),
            last,
        ]
    told = {**place, "arguments": item["arguments"], "name": item["name"]}
    return [("response.function_call_arguments.done", told), last]


def _kind(delta: Mapping[str, Any]) -> str | None:
    return "message" if "content" in delta else "function_call" if "tool_calls" in delta else None


def _opens(delta: Mapping[str, Any]) -> bool:
    return "tool_calls" in delta and "id" in delta["tool_calls"][0]
