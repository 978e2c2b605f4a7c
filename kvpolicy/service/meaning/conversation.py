"""A model request's body as a conversation, whatever its dialect: units in the order of the prompt.

Made by `dialects`; read by `sessions`, `spans`, `offsets` and the prefix doctor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Unit:
    """index: of the message, as the client counts them; -1 for the tool definitions and a system text beside the
    messages. kind: a span kind. digest: of everything up to its end. calls: (tool, call id) that it asks for; answers:
    call ids whose results it carries; tool: whose result it is. mark: the client's provider wants a cache mark here.
    upto: chat messages (`Conversation.messages`) up to its end."""

    index: int
    role: str
    kind: str
    digest: bytes
    calls: tuple[tuple[str | None, str | None], ...] = ()
    answers: tuple[str | None, ...] = ()
    tool: str | None = None
    name: str | None = None
    mark: bool = False
    upto: int = 0


@dataclass(frozen=True, slots=True)
class Conversation:
    """units: in the order of the prompt. messages, tools: in chat form, as a tokenize route takes them; None where the
    dialect has none. tool_digests: of each definition as it came, in order."""

    dialect: str
    model: str | None
    units: tuple[Unit, ...]
    messages: Sequence[Mapping[str, Any]] | None = None
    tools: Sequence[Any] | None = None
    tool_digests: tuple[bytes, ...] = ()
    prompt: Any = None

    @property
    def head(self) -> bytes:
        """What it begins with: the digest of its tools and system units, else of its first unit."""
        head = b""
        for unit in self.units:
            if unit.kind not in ("system", "tools"):
                break
            head = unit.digest
        return head or (self.units[0].digest if self.units else b"")
