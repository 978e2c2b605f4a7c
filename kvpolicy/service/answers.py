"""What an answer shows on its way back: the tools it asks for, whether it is finished, what was cached, what it said.

Fed with the bytes of a good answer as they come, a whole body or server-sent events of any of the four dialects; read
by `decisions` when it has ended. Bounded: an answer too long to be kept is counted on, its text is not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import orjson

from kvpolicy.service.exchange import CHAT, COMPLETIONS, MESSAGES, RESPONSES
from kvpolicy.service.meaning.values import mapping, mappings, name

MOST_KEPT = 8 << 20  # bytes of text, or of a body
N = TypeVar("N", int, int | None)


class AnswerReader:
    """calls: (tool, call id) asked for. finish: the dialect's word for why it ended. cached, prompt, output: tokens,
    where told. said: what it said, by part: what the client will send back."""

    def __init__(self, dialect: str, stream: bool) -> None:
        self._dialect = dialect
        self._stream = stream
        self._pending = bytearray()
        self._kept = 0
        self._lost = False
        self.calls: dict[int, dict[str, str]] = {}
        self.finish: str | None = None
        self.cached: int | None = None
        self.prompt: int | None = None
        self.output: int | None = None
        self.text: list[str] = []
        self.reasoning: list[str] = []
        self.blocks: dict[int, dict[str, Any]] = {}
        self.items: list[Mapping[str, Any]] = []

    @property
    def whole(self) -> bool:
        """Whether all that it said is here."""
        return not self._lost and self.finish is not None

    def feed(self, data: bytes) -> None:
        """Some bytes of the body."""
        if self._lost and not self._stream:
            return
        self._pending += data
        if not self._stream:
            if len(self._pending) > MOST_KEPT:
                self._lost = True
                self._pending.clear()
            return
        while (end := self._pending.find(b"\n")) >= 0:
            line = bytes(self._pending[:end]).rstrip(b"\r")
            del self._pending[: end + 1]
            if line.startswith(b"data:"):
                self._event(line[5:].strip())
        if len(self._pending) > MOST_KEPT:
            self._lost = True
            self._pending.clear()

    def end(self) -> None:
        """The body is complete."""
        if self._stream:
            return
        try:
            body = orjson.loads(bytes(self._pending))
        except orjson.JSONDecodeError:
            self._lost = True
            return
        self._pending.clear()
        if isinstance(body, dict):
            {CHAT: self._chat, COMPLETIONS: self._chat, MESSAGES: self._message, RESPONSES: self._response}[
                self._dialect
            ](body)

    def forget(self) -> None:
        """Keep counts, and nothing of what was said."""
        self.text, self.reasoning, self.blocks, self.items = [], [], {}, []
        self._pending = bytearray()
        for call in self.calls.values():
            call["arguments"] = ""

    # --- one event or body of each dialect ------------------------------------------------------------------------

    def _event(self, data: bytes) -> None:
        if not data or data == b"[DONE]":
            return
        try:
            event = orjson.loads(data)
        except orjson.JSONDecodeError:
            return
        if not isinstance(event, dict):
            return
        if self._dialect in (CHAT, COMPLETIONS):
            self._chat(event)
        elif self._dialect == MESSAGES:
            self._message_event(event)
        elif event.get("type") in ("response.completed", "response.incomplete"):
            self._response(mapping(event.get("response")))

    def _chat(self, body: Mapping[str, Any]) -> None:
        self._count(body.get("usage"), "prompt_tokens", "completion_tokens", "prompt_tokens_details")
        for choice in mappings(body.get("choices")):
            if choice.get("index", 0) != 0:
                continue
            self.finish = _word(choice.get("finish_reason")) or self.finish
            part = mapping(choice.get("delta") or choice.get("message"))
            self._keep(self.text, part.get("content") or choice.get("text"))
            self._keep(self.reasoning, part.get("reasoning_content") or part.get("reasoning"))
            for place, call in enumerate(mappings(part.get("tool_calls"))):
                row = self.calls.setdefault(_number(call.get("index"), place), {"id": "", "name": "", "arguments": ""})
                function = mapping(call.get("function"))
                row["id"] = name(call.get("id")) or row["id"]
                row["name"] = name(row["name"] + _word(function.get("name"))) or ""
                row["arguments"] += self._short(function.get("arguments"))

    def _message(self, body: Mapping[str, Any]) -> None:
        self._count(body.get("usage"), "input_tokens", "output_tokens", None)
        self.finish = _word(body.get("stop_reason")) or self.finish
        for place, block in enumerate(mappings(body.get("content"))):
            self.blocks[place] = dict(block)
            self._called(place, block)

    def _message_event(self, event: Mapping[str, Any]) -> None:
        kind, place = event.get("type"), _number(event.get("index"), 0)
        if kind == "message_start":
            self._count(mapping(event.get("message")).get("usage"), "input_tokens", "output_tokens", None)
        elif kind == "content_block_start":
            self.blocks[place] = dict(mapping(event.get("content_block")))
            self._called(place, self.blocks[place])
        elif kind == "content_block_delta":
            block, delta = self.blocks.setdefault(place, {}), mapping(event.get("delta"))
            for key in ("text", "thinking"):
                if isinstance(delta.get(key), str):
                    block[key] = _word(block.get(key)) + self._short(delta[key])
            if isinstance(delta.get("partial_json"), str):
                block["_json"] = block.get("_json", "") + self._short(delta["partial_json"])
        elif kind == "content_block_stop":
            block = self.blocks.get(place, {})
            if "_json" in block:
                try:
                    block["input"] = orjson.loads(block.pop("_json"))
                except orjson.JSONDecodeError:
                    self._lost = True
        elif kind == "message_delta":
            self.finish = _word(mapping(event.get("delta")).get("stop_reason")) or self.finish
            self.output = _number(mapping(event.get("usage")).get("output_tokens"), self.output)

    def _response(self, body: Mapping[str, Any]) -> None:
        self._count(body.get("usage"), "input_tokens", "output_tokens", "input_tokens_details")
        self.finish = _word(body.get("status")) or self.finish
        self.items = mappings(body.get("output"))
        for place, item in enumerate(self.items):
            if item.get("type") == "function_call":
                self.calls[place] = _call(item.get("call_id"), item.get("name"))

    def _called(self, place: int, block: Mapping[str, Any]) -> None:
        if block.get("type") == "tool_use":
            self.calls[place] = _call(block.get("id"), block.get("name"))

    def _count(self, usage: object, prompt: str, output: str, details: str | None) -> None:
        told = mapping(usage)
        if details is None:
            self.cached = _number(told.get("cache_read_input_tokens"), self.cached)
            base = _number(told.get(prompt), None)
            if base is not None:
                self.prompt = base + (self.cached or 0) + _number(told.get("cache_creation_input_tokens"), 0)
        else:
            self.cached = _number(mapping(told.get(details)).get("cached_tokens"), self.cached)
            self.prompt = _number(told.get(prompt), self.prompt)
        self.output = _number(told.get(output), self.output)

    def _keep(self, where: list[str], text: object) -> None:
        if isinstance(text, str) and text:
            kept = self._short(text)
            if kept:
                where.append(kept)

    def _short(self, text: object) -> str:
        """The text while there is room for it."""
        if not isinstance(text, str) or self._lost:
            return ""
        self._kept += len(text)
        if self._kept > MOST_KEPT:
            self._lost = True
            return ""
        return text


def _call(call: object, tool: object) -> dict[str, str]:
    return {"id": name(call) or "", "name": name(tool) or "", "arguments": ""}


def _word(value: object) -> str:
    """A text; an empty one for what is none."""
    return value if isinstance(value, str) else ""


def _number(value: object, otherwise: N) -> int | N:
    """A count; something else for what is none."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else otherwise
