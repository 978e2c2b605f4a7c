"""The engines' own tokenizers, over HTTP: where messages lie, asked beside the request, never before it.

Fetches for `decisions`; `meaning.offsets` says what is asked. A route that is not there, or that is slow again and
again, is left alone for a while.
"""

from __future__ import annotations

import asyncio
import re
from array import array
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import aiohttp
import orjson

from kvpolicy.service.meaning.dialects import Conversation
from kvpolicy.service.meaning.offsets import Offsets, Places
from kvpolicy.service.upstreams import Body, Upstreams

WITHIN_S = 5.0
REST_S = 60.0
AT_ONCE = 8
_JSON = {"content-type": "application/json", "accept": "application/json"}
_PIECE = 64 << 10  # bytes
_MOST_AROUND = 1 << 20
_TOKENS = re.compile(rb'"tokens"\s*:\s*\[')


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
        return None if found is None else found.tokens

    async def length(self, model: str | None, prompt: str) -> int | None:
        """Tokens of a bare prompt."""
        found = await self._ask(model, {"prompt": prompt})
        return None if found is None else found.count

    async def _ask(self, model: str | None, body: dict[str, Any]) -> Told | None:
        now = self._clock()
        if model is not None:
            body["model"] = model
        for engine in self._upstreams.candidates(model, (), now):
            if self._resting.get(engine.url, 0.0) > now:
                continue
            self.counts["asked"] += 1
            try:
                async with asyncio.timeout(WITHIN_S):
                    answer = await engine.ask("POST", "/tokenize", _JSON, Body(orjson.dumps(body)))
                    try:
                        if answer.status == HTTPStatus.OK:
                            return await read_tokens(answer.content.iter_chunked(_PIECE))
                    finally:
                        answer.release() if answer.content.at_eof() else answer.close()
            except (aiohttp.ClientError, OSError, TimeoutError, ValueError, orjson.JSONEncodeError):
                self.counts["faults"] += 1
                self._resting[engine.url] = now + REST_S / 6
                continue
            self.counts["faults"] += 1
            if answer.status in (HTTPStatus.NOT_FOUND, HTTPStatus.FORBIDDEN, HTTPStatus.NOT_IMPLEMENTED):
                self._resting[engine.url] = now + REST_S
        return None


@dataclass(frozen=True, slots=True)
class Told:
    """What a tokenize route answers."""

    count: int
    tokens: array[int]


async def read_tokens(pieces: AsyncIterator[bytes]) -> Told:
    """Read as it comes: a prompt of 200,000 tokens as a list of numbers would be ten times as long as its text. Raises
    ValueError for what is no such answer."""
    tokens, around, rest = array("I"), bytearray(), bytearray()  # around: the answer without its tokens
    before, inside = True, False
    async for piece in pieces:
        rest += piece
        if before and (start := _TOKENS.search(rest)) is not None:
            around += rest[: start.end()]
            del rest[: start.end()]
            before, inside = False, True
        if inside:
            end = rest.find(b"]")
            inside = end < 0
            end = rest.rfind(b",") if inside else end
            if end >= 0:
                _extend(tokens, rest[:end])
                del rest[: end + inside]
        if not inside and len(rest) > _MOST_AROUND:
            raise ValueError("an answer of something else")
    told = orjson.loads(around + rest)
    count = None
    if isinstance(told, dict):
        count = told.get("count", None if before else len(tokens))
    if not isinstance(count, int):
        raise ValueError("an answer without a count")
    return Told(count, tokens)


def _extend(tokens: array[int], numbers: bytearray) -> None:
    try:
        tokens.extend(orjson.loads(b"[" + numbers + b"]") if numbers.strip() else ())
    except (TypeError, OverflowError):
        raise ValueError("tokens that are no numbers") from None
