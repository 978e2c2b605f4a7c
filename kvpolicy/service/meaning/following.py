"""The digest that a prompt will have when its answer is sent back: how a chain without a name goes on.

Made from the conversation and what the answer said; clients send an answer back with or without its reasoning, so
there may be two.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import orjson

from kvpolicy.service.answers import AnswerReader
from kvpolicy.service.exchange import CHAT, MESSAGES, RESPONSES
from kvpolicy.service.meaning.dialects import Conversation, block_values, chat_value, digest_of, item_value


def following(conversation: Conversation, reader: AnswerReader, salt: bytes) -> list[bytes]:
    """Digests of the prompt with the answer behind it, the likeliest last; none where the answer is not known."""
    if not reader.whole or not conversation.units:
        return []
    last = conversation.units[-1].digest
    if conversation.dialect == CHAT:
        return _distinct(digest_of(last, salt, "assistant", value) for value in _chat(reader))
    if conversation.dialect == MESSAGES:
        blocks = [_block(block) for _, block in sorted(reader.blocks.items())]
        spoken = [block for block in blocks if block.get("type") not in ("thinking", "redacted_thinking")]
        return _distinct(digest_of(last, salt, "assistant", block_values(each)) for each in (spoken, blocks))
    if conversation.dialect == RESPONSES:
        digest = last
        for item in reader.items:
            digest = digest_of(digest, salt, "assistant", item_value(item))
        return [digest]
    return []


def _chat(reader: AnswerReader) -> list[object]:
    calls = [
        {"id": row["id"] or None, "function": {"name": row["name"], "arguments": row["arguments"]}}
        for _, row in sorted(reader.calls.items())
    ]
    message: dict[str, Any] = {"content": "".join(reader.text), "tool_calls": calls}
    thought = "".join(reader.reasoning)
    return [
        *([chat_value({**message, "reasoning_content": thought})] if thought else []),
        chat_value(message),
    ]


def _block(block: dict[str, Any]) -> dict[str, Any]:
    """A block as a client sends it back: without what was only there while it came."""
    made = {key: value for key, value in block.items() if value is not None and not key.startswith("_")}
    if made.get("type") == "tool_use" and isinstance(made.get("input"), str):
        with suppress(orjson.JSONDecodeError):  # what is no JSON comes back as it is, if at all
            made["input"] = orjson.loads(made["input"] or "{}")
    return made


def _distinct(digests: Any) -> list[bytes]:
    return list(dict.fromkeys(digests))
