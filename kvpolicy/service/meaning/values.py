"""What of a message its tokens come from, the same however a client writes it: what digests are made of.

Used by `dialects` for what comes, and by `following` for what an answer will look like when it is sent back.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

LONGEST_NAME = 256  # characters of a model's, a tool's, a call's name as it is kept


def name(value: object) -> str | None:
    """A text that names something, None for what is none. One that is too long to be kept for every owner goes by its
    digest: names are compared and counted, here and by engines, never read."""
    if not isinstance(value, str) or not value:
        return None
    if len(value) <= LONGEST_NAME:
        return value
    return f"{value[:32]}~{blake2b(value.encode('utf-8', 'surrogatepass'), digest_size=16).hexdigest()}"


def mapping(value: object) -> Mapping[str, Any]:
    """An object as it is meant to be; an empty one for what is none."""
    return value if isinstance(value, Mapping) else {}


def mappings(value: object) -> list[Mapping[str, Any]]:
    """The objects of a list; none for what is no list."""
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list | tuple) else []


def chat_value(message: Mapping[str, Any], *, reasoning: bool = True) -> object:
    """A chat message's own content, the same however a client writes it. reasoning: with it, where there is some."""
    thought = (message.get("reasoning_content") or message.get("reasoning")) if reasoning else None
    calls = [
        [mapping(call.get("function")).get("name"), mapping(call.get("function")).get("arguments"), call.get("id")]
        for call in mappings(message.get("tool_calls"))
    ]
    return [
        bare(message.get("content")) or None,
        thought or None,
        calls,
        message.get("tool_call_id"),
        message.get("name"),
    ]


def block_values(content: object) -> object:
    """The content blocks of an Anthropic message, without marks and signatures; a text alone is one block."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return bare(content)


def item_value(item: Mapping[str, Any]) -> object:
    """An item of a response's input or output: what it says, not how it is numbered."""
    content = item.get("content")
    if isinstance(content, list):
        content = [[part.get("text"), part.get("refusal")] if isinstance(part, Mapping) else part for part in content]
    elif isinstance(content, str):
        content = [[content, None]]
    return [content, item.get("name"), item.get("arguments"), item.get("summary")]


_UNSAID = frozenset({"cache_control", "prompt_cache_breakpoint", "signature", "citations", "annotations", "caller"})


def bare(content: object) -> object:
    """Content without what says nothing to a model."""
    if not isinstance(content, list):
        return content
    return [
        {key: value for key, value in part.items() if key not in _UNSAID} if isinstance(part, Mapping) else part
        for part in content
    ]
