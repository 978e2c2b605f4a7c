"""What an answer shows on its way back: the tools it asks for, whether it is finished, what was cached, what it said.

Fed with the bytes of a good answer as they come, a whole body or server-sent events of any of the four dialects; read
by `decisions` when it has ended. Bounded: an answer too long to be kept is counted on, its text is not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from kvpolicy.service.exchange import CHAT, COMPLETIONS, MESSAGES, RESPONSES

MOST_KEPT = 8 << 20  # bytes of text, or of a body


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
        elif isinstance(event.get("response"), dict) and event.get("type") in (
            "response.completed",
            "response.incomplete",
        ):
            self._response(event["response"])

    def _chat(self, body: Mapping[str, Any]) -> None:
        self._count(body.get("usage"), "prompt_tokens", "completion_tokens", "prompt_tokens_details")
        for choice in body.get("choices") or ():
            if choice.get("index", 0) != 0:
                continue
            self.finish = choice.get("finish_reason") or self.finish
            part = choice.get("delta") or choice.get("message") or {}
            self._keep(self.text, part.get("content") or choice.get("text"))
            self._keep(self.reasoning, part.get("reasoning_content") or part.get("reasoning"))
            for place, call in enumerate(part.get("tool_calls") or ()):
                row = self.calls.setdefault(call.get("index", place), {"id": "", "name": "", "arguments": ""})
                function = call.get("function") or {}
                row["id"] = call.get("id") or row["id"]
                row["name"] += function.get("name") or ""
                row["arguments"] += self._short(function.get("arguments"))

    def _message(self, body: Mapping[str, Any]) -> None:
        self._count(body.get("usage"), "input_tokens", "output_tokens", None)
        self.finish = body.get("stop_reason") or self.finish
        for place, block in enumerate(body.get("content") or ()):
            self.blocks[place] = dict(block)
            self._called(place, block)

    def _message_event(self, event: Mapping[str, Any]) -> None:
        kind, place = event.get("type"), event.get("index", 0)
        if kind == "message_start":
            self._count((event.get("message") or {}).get("usage"), "input_tokens", "output_tokens", None)
        elif kind == "content_block_start":
            self.blocks[place] = dict(event.get("content_block") or {})
            self._called(place, self.blocks[place])
        elif kind == "content_block_delta":
            block, delta = self.blocks.setdefault(place, {}), event.get("delta") or {}
            for key in ("text", "thinking"):
                if isinstance(delta.get(key), str):
                    block[key] = block.get(key, "") + self._short(delta[key])
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
            self.finish = (event.get("delta") or {}).get("stop_reason") or self.finish
            told = event.get("usage") or {}
            self.output = told.get("output_tokens", self.output)

    def _response(self, body: Mapping[str, Any]) -> None:
        self._count(body.get("usage"), "input_tokens", "output_tokens", "input_tokens_details")
        self.finish = body.get("status") or self.finish
        self.items = [item for item in body.get("output") or () if isinstance(item, Mapping)]
        for place, item in enumerate(self.items):
            if item.get("type") == "function_call":
                self.calls[place] = {
                    "id": str(item.get("call_id") or ""),
                    "name": str(item.get("name") or ""),
                    "arguments": "",
                }

    def _called(self, place: int, block: Mapping[str, Any]) -> None:
        if block.get("type") == "tool_use":
            self.calls[place] = {
                "id": str(block.get("id") or ""),
                "name": str(block.get("name") or ""),
                "arguments": "",
            }

    def _count(self, usage: object, prompt: str, output: str, details: str | None) -> None:
        if not isinstance(usage, Mapping):
            return
        read = usage.get("cache_read_input_tokens")
        if details is None:
            self.cached = read if isinstance(read, int) else self.cached
            base = usage.get(prompt)
            if isinstance(base, int):
                self.prompt = base + (self.cached or 0) + int(usage.get("cache_creation_input_tokens") or 0)
        else:
            told = usage.get(details)
            cached = told.get("cached_tokens") if isinstance(told, Mapping) else None
            self.cached = cached if isinstance(cached, int) else self.cached
            self.prompt = usage.get(prompt, self.prompt)
        self.output = usage.get(output, self.output)

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
