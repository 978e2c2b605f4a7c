"""The engines' own tokenizers, over HTTP: where messages lie, asked beside the request, never before it.

Fetches for `decisions`; `meaning.offsets` says what is asked. A route that is not there, or that is slow again and
again, is left alone for a while.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import httpx

from kvpolicy.service.meaning.dialects import Conversation
from kvpolicy.service.meaning.offsets import Offsets, Places
from kvpolicy.service.upstreams import Upstreams

WITHIN_S = 5.0
REST_S = 60.0
AT_ONCE = 8


class Tokenizing:
    """upstreams: asked in their order. counts: asked faults."""

    def __init__(self, upstreams: Upstreams, clock: Callable[[], float]) -> None:
        self._upstreams, self._clock = upstreams, clock
        self._tasks: set[asyncio.Task[None]] = set()
        self._turn = asyncio.Semaphore(AT_ONCE)
        self._resting: dict[str, float] = {}
        self.counts = {"asked": 0, "faults": 0, "dropped": 0}

    def fetch(self, conversation: Conversation, offsets: Offsets, found: Callable[[Places], None]) -> None:
        """Find out where its units lie, and call back. Returns at once."""
        if len(self._tasks) >= 64 * AT_ONCE:
            self.counts["dropped"] += 1
            return
        task = asyncio.get_running_loop().create_task(self._fetch(conversation, offsets, found))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Leave what runs."""
        for task in list(self._tasks):
            task.cancel()

    async def _fetch(self, conversation: Conversation, offsets: Offsets, found: Callable[[Places], None]) -> None:
        async with self._turn:
            places = await offsets.fetch(conversation, self)
        if places is not None:
            with suppress(Exception):  # a fault of ours costs this hint
                found(places)

    # --- meaning.offsets.Tokenizer --------------------------------------------------------------------------------

    async def tokens(
        self, model: str | None, messages: Sequence[Mapping[str, Any]], tools: Sequence[Any] | None, *, answer: bool
    ) -> Sequence[int] | None:
        """Token ids of a conversation."""
        body: dict[str, Any] = {"messages": list(messages), "add_generation_prompt": answer}
        if tools:
            body["tools"] = list(tools)
        found = await self._ask(model, body)
        return None if found is None else found.get("tokens")

    async def length(self, model: str | None, prompt: str) -> int | None:
        """Tokens of a bare prompt."""
        found = await self._ask(model, {"prompt": prompt})
        return None if found is None else found.get("count")

    async def _ask(self, model: str | None, body: dict[str, Any]) -> dict[str, Any] | None:
        now = self._clock()
        if model is not None:
            body["model"] = model
        for engine in self._upstreams.candidates(model, (), now):
            if self._resting.get(engine.url, 0.0) > now:
                continue
            self.counts["asked"] += 1
            try:
                answer = await engine.client.post("/tokenize", json=body, timeout=WITHIN_S)
            except (httpx.HTTPError, httpx.InvalidURL):
                self.counts["faults"] += 1
                self._resting[engine.url] = now + REST_S / 6
                continue
            if answer.status_code != httpx.codes.OK:
                self.counts["faults"] += 1
                if answer.status_code in (httpx.codes.NOT_FOUND, httpx.codes.FORBIDDEN, httpx.codes.NOT_IMPLEMENTED):
                    self._resting[engine.url] = now + REST_S
                continue
            with suppress(ValueError):
                told = answer.json()
                if isinstance(told, dict):
                    return told
        return None
