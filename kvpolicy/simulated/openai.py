"""Chat and text completions as OpenAI's clients speak them: a body becomes a call, an answer a body or a stream.

Read and written by `app`. Every object carries `system_fingerprint: kvp-simulated`.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping
from typing import Any

import orjson

from kvpolicy.channel.payload import of_body
from kvpolicy.faults import InputFault
from kvpolicy.simulated.answer import answer_of
from kvpolicy.simulated.chat import render
from kvpolicy.simulated.generation import Call
from kvpolicy.simulated.text import tokens

FINGERPRINT = "kvp-simulated"


def chat_call(body: Mapping[str, Any], number: int, longest: int) -> Call:
    """The call of a chat completion's body. longest: prompt and answer together, in tokens. Raises InputFault naming
    the field."""
    prompt = render(body.get("messages"), body.get("tools")).tokens
    most = body.get("max_completion_tokens", body.get("max_tokens"))
    return call_of(body, prompt, f"chatcmpl-{number}", most, longest)


def text_call(body: Mapping[str, Any], number: int, longest: int) -> Call:
    """The call of a text completion's body: the prompt as text or as token ids."""
    prompt = body.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str | list):
        prompt = prompt[0]
    if isinstance(prompt, list) and all(isinstance(t, int) and not isinstance(t, bool) for t in prompt):
        ids = prompt
    elif isinstance(prompt, str):
        ids = list(tokens(prompt))
    else:
        raise InputFault("prompt must be one text, or one list of token ids")
    return call_of(body, ids, f"cmpl-{number}", body.get("max_tokens"), longest)


def call_of(body: Mapping[str, Any], prompt: list[int], name: str, most: int | None, longest: int) -> Call:
    """A call with all that any of these bodies can state."""
    salt = body.get("cache_salt")
    if salt is not None and (not isinstance(salt, str) or not 0 < len(salt) <= 128 or set(salt) & set("@/\\\0")):
        raise InputFault("cache_salt must be text of 1 to 128 characters without @ / \\ and NUL")
    extra = {"model": str(body.get("model")), "salt": salt}
    least, endless = body.get("min_tokens"), body.get("ignore_eos")
    answer = answer_of(body.get("sim_reply"), prompt, most, longest, least, endless)
    return Call(name, prompt, answer, extra, of_body(body))


def usage(call: Call) -> dict[str, Any]:
    """Token counts; `cached_tokens` is exact."""
    made = len(call.answer.tokens)
    return {
        "prompt_tokens": len(call.prompt),
        "completion_tokens": made,
        "total_tokens": len(call.prompt) + made,
        "prompt_tokens_details": {"cached_tokens": call.cached},
    }


def chat_body(call: Call, model: str) -> dict[str, Any]:
    """A finished chat completion."""
    choice = {"index": 0, "message": call.answer.message, "finish_reason": call.answer.finish, "logprobs": None}
    return {**_head(call, model, "chat.completion"), "choices": [choice], "usage": usage(call)}


def text_body(call: Call, model: str) -> dict[str, Any]:
    """A finished text completion."""
    finish = "stop" if call.answer.finish == "tool_calls" else call.answer.finish
    choice = {
        "index": 0,
        "text": call.answer.message.get("content") or "",
        "finish_reason": finish,
        "logprobs": None,
    }
    return {**_head(call, model, "text_completion"), "choices": [choice], "usage": usage(call)}


async def chat_stream(
    call: Call, model: str, steps: AsyncIterator[Mapping[str, Any]], tell_usage: bool
) -> AsyncIterator[bytes]:
    """Server-sent events of a chat completion."""
    head = _head(call, model, "chat.completion.chunk")
    first = True
    async for delta in steps:
        yield _event({**head, "choices": [_choice({"role": "assistant", **delta} if first else delta, None)]})
        first = False
    yield _event({**head, "choices": [_choice({"role": "assistant"} if first else {}, call.answer.finish)]})
    if tell_usage:
        yield _event({**head, "choices": [], "usage": usage(call)})
    yield b"data: [DONE]\n\n"


async def text_stream(
    call: Call, model: str, steps: AsyncIterator[Mapping[str, Any]], tell_usage: bool
) -> AsyncIterator[bytes]:
    """Server-sent events of a text completion."""
    head = _head(call, model, "text_completion")
    async for delta in steps:
        if "content" in delta:
            yield _event({**head, "choices": [{"index": 0, "text": delta["content"], "finish_reason": None}]})
    yield _event({**head, "choices": [{"index": 0, "text": "", "finish_reason": call.answer.finish}]})
    if tell_usage:
        yield _event({**head, "choices": [], "usage": usage(call)})
    yield b"data: [DONE]\n\n"


def _head(call: Call, model: str, kind: str) -> dict[str, Any]:
    return {
        "id": call.id,
        "object": kind,
        "created": int(time.time()),
        "model": model,
        "system_fingerprint": FINGERPRINT,
    }


def _choice(delta: Mapping[str, Any], finish: str | None) -> dict[str, Any]:
    return {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}


def _event(document: Mapping[str, Any]) -> bytes:
    return b"data: " + orjson.dumps(document) + b"\n\n"
