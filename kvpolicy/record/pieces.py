"""A request's body as pieces: OpenAI's chat, completions and responses, Anthropic's messages. Unknown parts are text.

Read by `sources` and `live`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kvpolicy.record.calls import Piece

_SYSTEM = ("system", "developer")
_THOUGHT = ("thinking", "redacted_thinking", "reasoning")
_RESULTS = ("tool_result", "function_call_output")


def pieces(body: Mapping[str, Any]) -> list[Piece]:
    """The prompt of a request, in the order in which templates put it: tools, system, messages."""
    found = []
    if body.get("tools"):
        found.append(Piece("tools", _dumped(body["tools"])))
    for key in ("system", "instructions"):
        if body.get(key):
            found.append(Piece("system", _text(body[key])))
    asked = body.get("messages", body.get("input", body.get("prompt", ())))
    if isinstance(asked, str):
        return [*found, Piece("turn", asked)]
    if isinstance(asked, Sequence) and asked and all(isinstance(token, int) for token in asked):
        return [*found, Piece("turn", ids=asked)]
    names: dict[str, str] = {}
    for message in asked if isinstance(asked, Sequence) else ():
        if isinstance(message, Mapping):
            found += _message(message, names)
        else:
            found.append(Piece("turn", str(message)))
    return found


def _message(message: Mapping[str, Any], names: dict[str, str]) -> Iterator[Piece]:
    """One message. names: of tools, by call id, as far as they were called."""
    role, content = message.get("role"), message.get("content")
    kind = "system" if role in _SYSTEM else "turn"
    if message.get("type") in _RESULTS or role in ("tool", "function"):
        call = message.get("tool_call_id") or message.get("call_id")
        told = content if content is not None else message.get("output", "")
        yield Piece(
            "tool_result", f"{role}:{_text(told)}", attributes=_tool(names.get(str(call)) or message.get("name"))
        )
        return
    thought = message.get("reasoning_content") or message.get("reasoning")
    if isinstance(thought, str):
        yield Piece("scratchpad", thought)
    yield Piece(kind, f"{role or message.get('type')}:")
    for part in content if isinstance(content, list) else [content]:
        yield from _part(part, kind, names)
    for call in message.get("tool_calls") or ():
        function = call.get("function") or {}
        names[str(call.get("id"))] = str(function.get("name"))
        yield Piece("turn", _dumped(function))
    if message.get("type") == "function_call":
        names[str(message.get("call_id"))] = str(message.get("name"))
        yield Piece("turn", f"{message.get('name')}{message.get('arguments')}")


def _part(part: Any, kind: str, names: dict[str, str]) -> Iterator[Piece]:
    if not isinstance(part, Mapping):
        yield Piece(kind, "" if part is None else str(part))
    elif part.get("type") in _THOUGHT:
        yield Piece("scratchpad", str(part.get("thinking") or part.get("data") or ""))
    elif part.get("type") == "tool_use":
        names[str(part.get("id"))] = str(part.get("name"))
        yield Piece("turn", _dumped({"name": part.get("name"), "input": part.get("input")}))
    elif part.get("type") == "tool_result":
        tool = _tool(names.get(str(part.get("tool_use_id"))))
        yield Piece("tool_result", _text(part.get("content")), attributes=tool)
    else:
        yield Piece(kind, _text(part))


def _tool(name: object) -> tuple[tuple[str, str], ...]:
    return (("tool", str(name)),) if name else ()


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "".join(_text(part) for part in value)
    if isinstance(value, Mapping) and isinstance(value.get("text"), str):
        return str(value["text"])
    return _dumped(value)


def _dumped(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)
