"""Reads a model request's body as a `Conversation`: one reader for each dialect.

A unit is the tool definitions, or one message; its digest names it together with all before it, so that equal prompts
are known without their text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import orjson

from kvpolicy.service.exchange import CHAT, COMPLETIONS, MESSAGES, RESPONSES
from kvpolicy.service.meaning.chat_form import add_item, chat_tools
from kvpolicy.service.meaning.conversation import Conversation, Unit
from kvpolicy.service.meaning.values import block_values, chat_value, item_value, mapping, mappings
from kvpolicy.service.meaning.values import name as _text

__all__ = ["DIGEST", "Conversation", "Unit", "block_values", "chat_value", "digest_of", "item_value", "read"]

DIGEST = 16  # bytes
_DOCUMENTS = frozenset({"document", "search_result", "file", "input_file"})
_ROOT = b"kvpolicy conversation 1"


@dataclass(slots=True)
class _Builder:
    """Chains digests while units are added."""

    salt: bytes
    units: list[Unit] = field(default_factory=list)
    parent: bytes = _ROOT
    called: dict[str, str | None] = field(default_factory=dict)

    def add(self, index: int, role: str, kind: str, value: object, **facts: Any) -> None:
        self.parent = digest_of(self.parent, self.salt, role, value)
        for tool, call in facts.get("calls", ()):
            if call is not None:
                self.called[call] = tool
        self.units.append(Unit(index, role, kind, self.parent, **facts))


def digest_of(parent: bytes, salt: bytes, role: str, value: object) -> bytes:
    """The digest of a unit behind `parent`. salt: the tenant's, so that two tenants' digests never meet."""
    told = blake2b(parent, digest_size=DIGEST, key=salt)
    told.update(role.encode("utf-8", "surrogatepass"))
    told.update(b"\0")
    told.update(orjson.dumps(value, option=orjson.OPT_SORT_KEYS))
    return told.digest()


def read(dialect: str, body: Mapping[str, Any], salt: bytes) -> Conversation | None:
    """The conversation of a body; None where it has no form that is known (the engine will say what is wrong)."""
    reader = {CHAT: _chat, MESSAGES: _messages, RESPONSES: _responses, COMPLETIONS: _completions}[dialect]
    return reader(body, _Builder(salt))


def _chat(body: Mapping[str, Any], made: _Builder) -> Conversation | None:
    messages = body.get("messages")
    if not isinstance(messages, list) or not all(isinstance(m, Mapping) for m in messages):
        return None
    tools = _tools(body, made)
    for index, message in enumerate(messages):
        _add_chat(made, index, message)
    return _done(CHAT, body, made, messages, tools)


def _add_chat(made: _Builder, index: int, message: Mapping[str, Any]) -> None:
    role, content = str(message.get("role")), message.get("content")
    calls = tuple(
        (_text(mapping(call.get("function")).get("name")), _text(call.get("id")))
        for call in mappings(message.get("tool_calls"))
    )
    answers: tuple[str | None, ...] = ()
    tool = None
    if role in ("tool", "function"):
        call = _text(message.get("tool_call_id"))
        answers, tool = (call,), made.called.get(call or "") or _text(message.get("name"))
    kind = _kind_of(role, content, made)
    made.add(
        index, role, kind, chat_value(message), calls=calls, answers=answers, tool=tool,
        name=_text(message.get("name")), mark=_marked(content) or "cache_control" in message, upto=index + 1,
    )  # fmt: skip


def _messages(body: Mapping[str, Any], made: _Builder) -> Conversation | None:
    """Anthropic's: system beside the messages, results as blocks of a user's turn."""
    turns = body.get("messages")
    if not isinstance(turns, list) or not all(isinstance(t, Mapping) for t in turns):
        return None
    tools = _tools(body, made)
    chat: list[dict[str, Any]] = []
    if body.get("system"):
        made.add(-1, "system", "system", body["system"], mark=_marked(body["system"]), upto=1)
        chat.append({"role": "system", "content": _joined(body["system"])})
    for index, turn in enumerate(turns):
        _add_turn(made, chat, index, turn)
    return _done(MESSAGES, body, made, chat, tools)


def _add_turn(made: _Builder, chat: list[dict[str, Any]], index: int, turn: Mapping[str, Any]) -> None:
    role, content = str(turn.get("role")), turn.get("content")
    blocks = content if isinstance(content, list) else []
    kinds = [str(block.get("type")) for block in blocks if isinstance(block, Mapping)]
    calls = tuple(
        (_text(b.get("name")), _text(b.get("id")))
        for b in blocks
        if isinstance(b, Mapping) and b.get("type") == "tool_use"
    )
    results = [b for b in blocks if isinstance(b, Mapping) and b.get("type") == "tool_result"]
    answers = tuple(_text(b.get("tool_use_id")) for b in results)
    tool = made.called.get(answers[0] or "") if answers else None
    kind = "tool_result" if answers and len(answers) == len(kinds) else _kind_of(role, content, made)
    for block in results:
        chat.append(
            {"role": "tool", "content": _joined(block.get("content")), "tool_call_id": block.get("tool_use_id")}
        )
    rest = [
        b for b in blocks if isinstance(b, Mapping) and b.get("type") not in ("tool_result", "tool_use", "thinking")
    ]
    if rest or calls or not blocks:
        message: dict[str, Any] = {"role": role, "content": _joined(rest) if blocks else content}
        thought = "".join(
            str(b.get("thinking")) for b in blocks if isinstance(b, Mapping) and b.get("type") == "thinking"
        )
        if thought:
            message["reasoning"] = thought
        if calls:
            message["tool_calls"] = [
                {
                    "id": b.get("id"),
                    "type": "function",
                    "function": {"name": b.get("name"), "arguments": orjson.dumps(b.get("input")).decode()},
                }
                for b in blocks
                if isinstance(b, Mapping) and b.get("type") == "tool_use"
            ]
        chat.append(message)
    made.add(
        index, role, kind, block_values(content), calls=calls, answers=answers, tool=tool, mark=_marked(content),
        upto=len(chat),
    )  # fmt: skip


def _responses(body: Mapping[str, Any], made: _Builder) -> Conversation | None:
    given = body.get("input")
    items = [{"role": "user", "content": given}] if isinstance(given, str) else given
    if not isinstance(items, list) or not all(isinstance(i, Mapping) for i in items):
        return None
    tools = _tools(body, made)
    chat: list[dict[str, Any]] = []
    if body.get("instructions"):
        chat.append({"role": "system", "content": _joined(body["instructions"])})
        made.add(-1, "system", "system", body["instructions"], upto=1)
    for index, item in enumerate(items):
        output = item.get("type") == "function_call_output"
        add_item(chat, item, _joined(item.get("output" if output else "content")))
        _add_item(made, index, item, len(chat))
    return _done(RESPONSES, body, made, chat, tools)


def _add_item(made: _Builder, index: int, item: Mapping[str, Any], upto: int) -> None:
    kind = item.get("type", "message")
    if kind == "function_call":
        call = (_text(item.get("name")), _text(item.get("call_id")))
        made.add(index, "assistant", "turn", item_value(item), calls=(call,), upto=upto)
    elif kind == "function_call_output":
        call_id = _text(item.get("call_id"))
        tool = made.called.get(call_id or "")
        made.add(index, "tool", "tool_result", item.get("output"), answers=(call_id,), tool=tool, upto=upto)
    elif kind == "reasoning":
        made.add(index, "assistant", "scratchpad", item_value(item))
    else:
        role, content = str(item.get("role")), item.get("content")
        kind = _kind_of(role, content, made)
        made.add(index, role, kind, item_value(item), mark=_marked(content), upto=upto)


def _completions(body: Mapping[str, Any], made: _Builder) -> Conversation | None:
    prompt = body.get("prompt")
    if not isinstance(prompt, str | list):
        return None
    made.add(0, "user", "turn", prompt)
    return Conversation(COMPLETIONS, _text(body.get("model")), tuple(made.units), prompt=prompt)


def _tools(body: Mapping[str, Any], made: _Builder) -> list[Any] | None:
    tools = body.get("tools")
    if not isinstance(tools, list) or not tools:
        return None
    mark = any(isinstance(tool, Mapping) and "cache_control" in tool for tool in tools)
    made.add(-1, "tools", "tools", tools, mark=mark)
    return tools


def _done(
    dialect: str,
    body: Mapping[str, Any],
    made: _Builder,
    messages: Sequence[Mapping[str, Any]] | None,
    tools: list[Any] | None,
) -> Conversation:
    digests = tuple(digest_of(b"", made.salt, "tool", tool) for tool in tools or ())
    return Conversation(dialect, _text(body.get("model")), tuple(made.units), messages, chat_tools(tools), digests)


def _kind_of(role: str, content: object, made: _Builder) -> str:
    if role in ("tool", "function"):
        return "tool_result"
    if role in ("system", "developer") and all(u.kind in ("system", "tools") for u in made.units):
        return "system"  # behind the head it is one more turn
    parts = [str(p.get("type")) for p in content if isinstance(p, Mapping)] if isinstance(content, list) else []
    if parts and all(part in _DOCUMENTS for part in parts):
        return "document"
    if parts and all(part in ("thinking", "redacted_thinking", "reasoning") for part in parts):
        return "scratchpad"
    return "turn"


def _marked(content: object) -> bool:
    return isinstance(content, list) and any(
        isinstance(part, Mapping) and ("cache_control" in part or "prompt_cache_breakpoint" in part) for part in content
    )


def _joined(content: object) -> str:
    """The text of content parts, as a chat message has it."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    return "".join(str(part.get("text", "")) if isinstance(part, Mapping) else str(part) for part in content)
