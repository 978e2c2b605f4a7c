"""The engines' own tokenizers, over HTTP: where messages lie, asked beside the request, never before it.

Fetches for `decisions`; `meaning.offsets` says what is asked. A route that is not there, or that is slow again and
again, is left alone for a while.
"""

from __future__ import annotations

import asyncio
import re
from array import array
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import Any, Protocol

import aiohttp
import orjson

from kvpolicy.service.meaning.dialects import Conversation
from kvpolicy.service.meaning.offsets import Offsets, Places
from kvpolicy.service.upstreams import Made, Upstreams

WITHIN_S = 5.0
REST_S = 60.0
AT_ONCE = 8  # fetches, each with one question and the tokens of its prompt at a time; others wait with neither
_JSON = {"content-type": "application/json", "accept": "application/json"}
_PIECE = 16 << 10  # bytes: what is read from them at once takes twenty times that
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

    def fetch(self, conversation: Conversation, offsets: Offsets, found: Callable[[Places | None], None]) -> None:
        """Find out where its units lie. Returns at once. found: called once, with None where nobody can say."""
        if len(self._tasks) >= 64 * AT_ONCE:
            self.counts["dropped"] += 1
            found(None)
            return
        task = asyncio.get_running_loop().create_task(self._fetch(conversation, offsets, found))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Leave what runs."""
        for task in list(self._tasks):
            task.cancel()

    async def _fetch(
        self, conversation: Conversation, offsets: Offsets, found: Callable[[Places | None], None]
    ) -> None:
        places = None
        try:
            places = await offsets.fetch(conversation, self, self._turn)
        finally:
            with suppress(Exception):  # a fault of ours costs this hint
                found(places)

    # --- meaning.offsets.Tokenizer --------------------------------------------------------------------------------

    async def tokens(
        self, model: str | None, messages: Sequence[Mapping[str, Any]], tools: Sequence[Any] | None, *, answer: bool
    ) -> Sequence[int] | None:
        """Token ids of a conversation."""
        found = await self._ask(model, _asked(messages, tools, answer=answer))
        return None if found is None else found.tokens

    async def begin(
        self,
        model: str | None,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Any] | None,
        whole: Sequence[int],
    ) -> int | None:
        """How many tokens a conversation takes, where `whole` begins with them. They are compared as they come."""
        agreeing = Agreeing(whole)
        found = await self._ask(model, _asked(messages, tools, answer=False), agreeing)
        return len(agreeing) if found is not None and agreeing.so_far else None

    async def length(self, model: str | None, prompt: str) -> int | None:
        """Tokens of a bare prompt."""
        found = await self._ask(model, {"prompt": prompt})
        return None if found is None else found.count

    async def _ask(self, model: str | None, body: dict[str, Any], into: Taking | None = None) -> Told | None:
        """into: takes the tokens; one that has taken some is asked no other engine for."""
        if model is not None:
            body["model"] = model
        for engine in self._upstreams.candidates(model, (), self._clock()):
            # INVARIANT: an engine that rests is asked by nobody, however long they waited for their turn or another.
            if self._resting.get(engine.url, 0.0) > self._clock() or (into is not None and len(into)):
                continue
            self.counts["asked"] += 1
            try:
                async with asyncio.timeout(WITHIN_S):
                    asked = await Made.of(partial(_written, body))
                    answer = await engine.ask("POST", "/tokenize", _JSON, asked)
                    try:
                        if answer.status == HTTPStatus.OK:
                            return await read_tokens(answer.content.iter_chunked(_PIECE), into)
                    finally:
                        answer.release() if answer.content.at_eof() else answer.close()
            except (aiohttp.ClientError, OSError, TimeoutError, ValueError, orjson.JSONEncodeError):
                self.counts["faults"] += 1
                self._resting[engine.url] = self._clock() + REST_S / 6
                continue
            self.counts["faults"] += 1
            if answer.status in (HTTPStatus.NOT_FOUND, HTTPStatus.FORBIDDEN, HTTPStatus.NOT_IMPLEMENTED):
                self._resting[engine.url] = self._clock() + REST_S
        return None


def _asked(messages: Sequence[Mapping[str, Any]], tools: Sequence[Any] | None, *, answer: bool) -> dict[str, Any]:
    """The question about a conversation."""
    body: dict[str, Any] = {"messages": list(messages), "add_generation_prompt": answer}
    return body | {"tools": list(tools)} if tools else body


def _written(body: Mapping[str, Any]) -> Iterator[bytes]:
    """A question's JSON, message by message: a long prompt is asked a dozen times, and need not be there as often."""
    rest = {key: value for key, value in body.items() if key != "messages"}
    if "messages" not in body:
        yield orjson.dumps(rest)
        return
    yield b'{"messages":['
    for place, message in enumerate(body["messages"]):
        yield (b"," if place else b"") + orjson.dumps(message)
    yield b"]," + orjson.dumps(rest)[1:] if rest else b"]}"


class Taking(Protocol):
    """What takes tokens as they come."""

    def extend(self, tokens: list[int], /) -> None:
        """The next ones. Raises TypeError or OverflowError for what are none."""
        ...

    def __len__(self) -> int: ...


class Agreeing:
    """Tokens that are compared with those of a whole prompt, and not kept. so_far: whether it begins with them."""

    def __init__(self, whole: Sequence[int]) -> None:
        self._whole, self._at, self.so_far = whole, 0, True

    def __len__(self) -> int:
        return self._at

    def extend(self, tokens: list[int], /) -> None:
        """See `Taking`."""
        part, start = array("I", tokens), self._at
        self._at += len(part)
        self.so_far = self.so_far and array("I", self._whole[start : self._at]) == part


@dataclass(frozen=True, slots=True)
class Told:
    """What a tokenize route answers. tokens: empty where something else took them."""

    count: int
    tokens: array[int]


async def read_tokens(pieces: AsyncIterator[bytes], into: Taking | None = None) -> Told:
    """Read as it comes: a prompt of 200,000 tokens as a list of numbers would be ten times as long as its text. Raises
    ValueError for what is no such answer."""
    own, around, rest = array("I"), bytearray(), bytearray()  # around: the answer without its tokens
    tokens: Taking = own if into is None else into
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
    return Told(count, own)


def _extend(tokens: Taking, numbers: bytearray) -> None:
    try:
        tokens.extend(orjson.loads(b"[" + numbers + b"]"))
    except (TypeError, OverflowError):
        raise ValueError("tokens that are no numbers") from None
