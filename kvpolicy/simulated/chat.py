"""A conversation as one prompt: tool definitions first, then every message between control tokens.

Reads the `messages` and `tools` of an OpenAI-style body; gives the tokens, and where each message lies among them,
which is what a client of the render route needs. An assistant message that a client sends back is rendered as it was
generated, so its blocks are found again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from kvpolicy.faults import InputFault
from kvpolicy.simulated.text import control, pieces, token_id, tokens

ROLES = ("system", "developer", "user", "assistant", "tool", "function")
END = control("<|end|>")


@dataclass(frozen=True, slots=True)
class Rendered:
    """tokens: ids of the whole prompt, the start of the answer included. messages: (start, end) of each message, in
    tokens. tools: end of the tool definitions, 0 without any. text: what was rendered, for a look."""

    tokens: list[int]
    messages: tuple[tuple[int, int], ...]
    tools: int


def render(messages: object, tools: object = None, *, generate: bool = True) -> Rendered:
    """The prompt of a conversation. Raises InputFault naming the message that cannot be read."""
    if not isinstance(messages, Sequence) or isinstance(messages, str) or not messages:
        raise InputFault("messages must be a list with at least one message")
    ids: list[int] = []
    if tools:
        if not isinstance(tools, list):
            raise InputFault("tools must be a list")
        ids += (control("<|tools|>"), *tokens(_dumped(tools)), END)
    head, places = len(ids), []
    for index, message in enumerate(messages):
        start = len(ids)
        if not isinstance(message, Mapping):
            raise InputFault(f"messages[{index}] must be an object")
        role = message.get("role")
        if role not in ROLES:
            raise InputFault(f"messages[{index}].role must be one of {', '.join(ROLES)}")
        ids.append(control(f"<|{role}|>"))
        ids += answer_tokens(message, f"messages[{index}]")
        ids.append(END)
        places.append((start, len(ids)))
    if generate:
        ids.append(control("<|assistant|>"))
    return Rendered(ids, tuple(places), head)


def tools_of(tools: object) -> object:
    """Tool definitions of another dialect in chat form, as engines bring them into one before they render."""
    if not isinstance(tools, list):
        return tools
    made = []
    for tool in tools:
        told = tool
        if isinstance(tool, Mapping) and "function" not in tool:
            if "input_schema" in tool:
                told = {**tool, "parameters": tool["input_schema"], "type": "function"}
            if told.get("type") != "function":
                continue
            names = ("name", "parameters", "description", "strict")
            function = {name: told[name] for name in names if told.get(name) is not None}
            told = {"type": "function", "function": function}
        made.append(told)
    return made or None


def answer_tokens(message: Mapping[str, Any], name: str = "message") -> list[int]:
    """The tokens inside one message: its reasoning, its text, its tool calls."""
    return [token_id(piece) if isinstance(piece, str) else piece for piece in answer_pieces(message, name)]


def answer_pieces(message: Mapping[str, Any], name: str = "message") -> list[str | int]:
    """The same as pieces of text, with control tokens as ids."""
    found: list[str | int] = []
    reasoning = message.get("reasoning_content") or message.get("reasoning")
    if isinstance(reasoning, str):
        found += (control("<|think|>"), *pieces(reasoning), control("<|/think|>"))
    found += pieces(text_of(message.get("content"), f"{name}.content"))
    calls = message.get("tool_calls") or []
    if not isinstance(calls, list):
        raise InputFault(f"{name}.tool_calls must be a list")
    for call in calls:
        found += (control("<|call|>"), *pieces(_call(call, name)))
    return found


def text_of(content: object, name: str = "content") -> str:
    """The text of a message's content: a string, or parts of which the texts count and others by what they are."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "".join(_part(part, name) for part in content)
    raise InputFault(f"{name} must be text or a list of parts")


def _part(part: object, name: str) -> str:
    if isinstance(part, str):
        return part
    if not isinstance(part, Mapping):
        raise InputFault(f"{name}: a part must be an object")
    text = part.get("text")
    return text if isinstance(text, str) else _dumped({k: v for k, v in part.items() if k != "cache_control"})


def _call(call: object, name: str) -> str:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping):
        raise InputFault(f"{name}.tool_calls: each call needs a function")
    arguments = function.get("arguments", "")
    if isinstance(arguments, str):
        try:  # clients write JSON with and without spaces; templates render the value
            arguments = orjson.loads(arguments)
        except orjson.JSONDecodeError:
            return f"{function.get('name')}{arguments}"
    return f"{function.get('name')}{_dumped(arguments)}"


def _dumped(value: object) -> str:
    try:
        return orjson.dumps(value).decode()
    except (TypeError, ValueError) as fault:
        raise InputFault(f"not JSON: {fault}") from None
