"""Bodies of other dialects in chat form, as engines turn them into one before they render: for their tokenize route.

Used by `dialects`. What an engine renders otherwise is noticed by its own count of tokens, and asked anew.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def chat_tools(tools: Sequence[Any] | None) -> list[Any] | None:
    """Tool definitions in chat form: Anthropic's carry an `input_schema`, those of responses are flat. Tools that the
    provider runs itself have no such form and are left out."""
    if tools is None:
        return None
    made = [form for tool in tools if (form := _tool(tool)) is not None]
    return made or None


def _tool(tool: Any) -> Any:
    if not isinstance(tool, Mapping) or "function" in tool:
        return tool
    if "input_schema" in tool:
        function = {"name": tool.get("name"), "parameters": tool["input_schema"]}
        if tool.get("description") is not None:
            function["description"] = tool["description"]
        return {"type": "function", "function": function}
    if tool.get("type") == "function":
        return {"type": "function", "function": {k: v for k, v in tool.items() if k != "type" and v is not None}}
    return None


def add_item(messages: list[dict[str, Any]], item: Mapping[str, Any], text: str) -> None:
    """One item of a response's input behind `messages`: calls belong to the assistant's message before them."""
    kind = item.get("type", "message")
    if kind == "function_call":
        if not messages or messages[-1]["role"] != "assistant":
            messages.append({"role": "assistant", "content": None})
        call = {
            "id": item.get("call_id"),
            "type": "function",
            "function": {"name": item.get("name"), "arguments": item.get("arguments") or ""},
        }
        messages[-1].setdefault("tool_calls", []).append(call)
    elif kind == "function_call_output":
        messages.append({"role": "tool", "content": text, "tool_call_id": item.get("call_id")})
    elif kind == "message":
        messages.append({"role": item.get("role"), "content": text})
