"""Words of the field for which the language has another: `user` is a `turn`, an `ssd` is `disk`.

`check_names.unknown` asks here before it looks for the word that is spelt most alike: `vram` is spelt like `dram`,
and is the other tier.
"""

from __future__ import annotations

from collections.abc import Mapping

_KINDS: Mapping[str, tuple[str, ...]] = {
    "turn": ("user", "assistant", "human", "message", "messages", "chat", "conversation", "history", "dialog"),
    "system": ("developer", "instructions", "preamble", "head"),
    "tools": ("functions", "function_definitions", "tool_definitions"),
    "tool_result": ("observation", "function_result", "tool_response"),
    "scratchpad": ("reasoning", "thinking", "thought", "thoughts", "cot"),
    "document": ("context", "rag", "file", "files", "retrieved", "chunk", "chunks", "attachment"),
    "output": ("answer", "completion", "response", "generated", "decode"),
    "any": ("all", "every", "everything", "prompt", "span", "spans", "block", "blocks"),
}
_TIERS: Mapping[str, tuple[str, ...]] = {
    "gpu": ("vram", "device", "cuda"),
    "cpu": ("ram", "host", "memory"),
    "disk": ("ssd", "storage", "file"),
    "remote": ("s3", "redis", "network"),
}
_MEANT = {
    "span kind": {word: kind for kind, listed in _KINDS.items() for word in listed},
    "tier": {word: tier for tier, listed in _TIERS.items() for word in listed},
}


def synonym(what: str, word: str) -> str | None:
    """The language's own word for `word`, where `what` ("span kind", "tier") is asked for; None where there is none."""
    return _MEANT.get(what, {}).get(word.lower())
