"""What the simulated server answers: the message that the request itself states (`sim_reply`), else filler.

Nothing here is a model. The same request gets the same answer in every process.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from kvpolicy.faults import InputFault
from kvpolicy.simulated.chat import END, answer_tokens, text_of
from kvpolicy.simulated.text import pieces, token_id

_WORDS = ("lorem", "ipsum", "dolor", "sit", "amet", "elit", "sed", "do", "magna", "ut", "enim", "minim", "quis", "nisi")
DEFAULT_TOKENS = 16  # of filler, its end included
PIECES_OF_ARGUMENTS = 4  # a tool call's arguments are streamed in so many parts at most


@dataclass(frozen=True, slots=True)
class Answer:
    """message: an assistant message (content, perhaps reasoning_content and tool_calls). deltas: the same step by
    step, as OpenAI streams it. tokens: ids of all that it makes, the end token last unless it was cut short. finish:
    `stop`, `length` or `tool_calls`."""

    message: Mapping[str, Any]
    deltas: Sequence[Mapping[str, Any]]
    tokens: Sequence[int]
    finish: str


def answer_of(
    reply: object, prompt: Sequence[int], most: int | None, longest: int, least: object = None, endless: object = None
) -> Answer:
    """The answer to a prompt. reply: the body's `sim_reply`, text or an assistant message. most: its `max_tokens`;
    it cuts text, not a message with reasoning or tool calls. longest: prompt and answer together, in tokens. least,
    endless: its `min_tokens` and `ignore_eos`, which keep filler from ending by itself.

    Raises InputFault where the reply or a number cannot be read."""
    if most is not None and (not isinstance(most, int) or isinstance(most, bool) or most < 1):
        raise InputFault(f"max_tokens must be a number of at least 1, not {most!r}")
    if least is not None and (not isinstance(least, int) or isinstance(least, bool) or least < 0):
        raise InputFault(f"min_tokens must be a number of at least 0, not {least!r}")
    if least is not None and most is not None and least > most:
        raise InputFault(f"min_tokens must be at most max_tokens, {most}, and is {least}")
    if endless is not None and not isinstance(endless, bool):
        raise InputFault(f"ignore_eos must be true or false, not {endless!r}")
    if reply is None:
        return _said(prompt, most, longest, least or 0, bool(endless))
    message = {"content": reply} if isinstance(reply, str) else reply
    if not isinstance(message, Mapping):
        raise InputFault("sim_reply must be text or an assistant message")
    reasoning, calls = message.get("reasoning_content"), message.get("tool_calls") or []
    spoken = pieces(text_of(message.get("content"), "sim_reply.content"))
    if not reasoning and not calls:
        cut = most is not None and len(spoken) > most
        return _text(spoken[:most] if cut else spoken, "length" if cut else "stop")
    if reasoning is not None and not isinstance(reasoning, str):
        raise InputFault("sim_reply.reasoning_content must be text")
    if not isinstance(calls, list):
        raise InputFault("sim_reply.tool_calls must be a list")
    ids = [*answer_tokens(message, "sim_reply"), END]
    named = [_call(call, index) for index, call in enumerate(calls)]
    deltas: list[Mapping[str, Any]] = [{"reasoning_content": piece} for piece in pieces(reasoning or "")]
    deltas += [{"content": piece} for piece in spoken]
    for index, call in enumerate(named):
        deltas += _call_deltas(index, call)
    told: dict[str, Any] = {"role": "assistant", "content": "".join(spoken) or None}
    if reasoning:
        told["reasoning_content"] = reasoning
    if named:
        told["tool_calls"] = named
    return Answer(told, deltas, ids, "tool_calls" if named else "stop")


def _said(prompt: Sequence[int], most: int | None, longest: int, least: int, endless: bool) -> Answer:
    """Filler: it ends by itself, unless it may not, or has no tokens left to do so."""
    words = max(DEFAULT_TOKENS - 1, least)
    ends = not endless and (most is None or words < most)
    count = words if ends else max(DEFAULT_TOKENS, least) if most is None else most
    asked = count + ends if most is None else most
    if len(prompt) + asked > longest:  # before so many words are made
        raise InputFault(f"prompt and answer are {len(prompt) + asked} tokens, the longest possible is {longest}")
    return _text(_filler(prompt, count), "stop" if ends else "length")


def _text(spoken: Sequence[str], finish: str) -> Answer:
    ids = [token_id(piece) for piece in spoken] + ([END] if finish == "stop" else [])
    message = {"role": "assistant", "content": "".join(spoken)}
    return Answer(message, [{"content": piece} for piece in spoken], ids, finish)


def _call(call: Mapping[str, Any], index: int) -> dict[str, Any]:
    function = call["function"]  # `answer_tokens` has refused what has none
    arguments = function.get("arguments", "")
    if not isinstance(arguments, str):
        raise InputFault(f"sim_reply.tool_calls[{index}].function.arguments must be text")
    return {
        "id": str(call.get("id") or f"call_{index}"),
        "type": "function",
        "function": {"name": str(function.get("name")), "arguments": arguments},
    }


def _call_deltas(index: int, call: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """A call as it is streamed: its name first, its arguments in parts."""
    name, arguments = call["function"]["name"], call["function"]["arguments"]
    head = {"index": index, "id": call["id"], "type": "function", "function": {"name": name, "arguments": ""}}
    width = max(1, -(-len(arguments) // PIECES_OF_ARGUMENTS))
    parts = [arguments[at : at + width] for at in range(0, len(arguments), width)]
    return [
        {"tool_calls": [head]},
        *({"tool_calls": [{"index": index, "function": {"arguments": part}}]} for part in parts),
    ]


def _filler(prompt: Sequence[int], count: int) -> list[str]:
    seed = blake2b(repr((len(prompt), list(prompt[-32:]))).encode(), digest_size=8).digest()
    state = int.from_bytes(seed, "big")
    spoken = []
    for index in range(count):
        state = (state * 6364136223846793005 + 1442695040888963407) & ((1 << 64) - 1)
        spoken.append((" " if index else "") + _WORDS[(state >> 33) % len(_WORDS)])
    return spoken
