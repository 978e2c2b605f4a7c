"""Requests on the simulated server: they wait for room, are prefilled one at a time, and decode side by side.

Called by `app`; the blocks are those of the embedded pool, every hit real. As in an engine, running blocks cannot
leave, at most all but the last prompt token can be cached, and output fills blocks. Unlike in an engine, room for the
whole answer is kept from the start, so nothing is preempted. Times are the event loop's.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from kvpolicy.faults import InputFault
from kvpolicy.hashes import block_hashes
from kvpolicy.simulated.answer import Answer
from kvpolicy.simulated.speed import Speed


class Cache(Protocol):
    """The blocks behind the server."""

    def came(self, call: Call, now: float) -> None:
        """A request was admitted and waits for its turn."""
        ...

    def left(self, call: Call) -> None:
        """It gave up before its turn."""
        ...

    def start(self, call: Call, now: float) -> tuple[int, int]:
        """A request's prompt is looked up and stored. Returns blocks found, and those of them on lower tiers."""
        ...

    def grow(self, call: Call, hashes: Sequence[bytes], now: float) -> None:
        """More full blocks behind all it had."""
        ...

    def end(self, call: Call, now: float, *, cancelled: bool) -> None:
        """It lets go of its blocks."""
        ...

    @property
    def available(self) -> int:
        """Blocks that no running request holds."""
        ...

    @property
    def capacity(self) -> int:
        """Blocks of the first tier."""
        ...


@dataclass(slots=True)
class Call:
    """One request as the server sees it. prompt: token ids. extra: what else its KV depends on (model, salt).
    directives: what a policy asks for it, as it came. hashes: of its full blocks so far. cached: prompt tokens found,
    once it was prefilled. queued_s, first_token_s, total_s: seconds from its arrival to its turn, to its first token,
    to its last."""

    id: str
    prompt: Sequence[int]
    answer: Answer
    extra: Mapping[str, object] = field(default_factory=dict)
    directives: Any = None
    hashes: list[bytes] = field(default_factory=list)
    cached: int = 0
    queued_s: float = 0.0
    first_token_s: float = 0.0
    total_s: float = 0.0


class Generation:
    """cache: the blocks. block_size: tokens of one. longest: prompt and answer together, in tokens."""

    def __init__(self, cache: Cache, block_size: int, speed: Speed, longest: int) -> None:
        self.cache = cache
        self.block_size = block_size
        self.speed = speed
        self.longest = min(longest, cache.capacity * block_size)
        self.running: dict[str, Call] = {}
        self.waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self.totals = {"requests": 0, "prompt_tokens": 0, "cached_tokens": 0, "output_tokens": 0, "cancelled": 0}
        self.room = cache.capacity
        self._lane = asyncio.Lock()

    def admit(self, call: Call) -> None:
        """Raises InputFault for a request that could never run here."""
        size = len(call.prompt) + len(call.answer.tokens)
        if not call.prompt:
            raise InputFault("the prompt is empty")
        if size > self.longest:
            raise InputFault(f"prompt and answer are {size} tokens, the longest possible is {self.longest}")

    async def run(self, call: Call) -> AsyncGenerator[Mapping[str, Any]]:
        """The answer's deltas, each at its time. Leaving early cancels the request."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        blocks = -(-(len(call.prompt) + len(call.answer.tokens)) // self.block_size)
        call.hashes = block_hashes(call.prompt, self.block_size, call.extra)
        stored = len(call.hashes)
        self.cache.came(call, began)
        done = started = roomy = False
        try:
            await self._wait_for_room(blocks)
            roomy = True
            async with self._lane:
                call.queued_s = loop.time() - began
                hits, loaded = self.cache.start(call, loop.time())
                started = True
                self.running[call.id] = call
                call.cached = min(hits, (len(call.prompt) - 1) // self.block_size) * self.block_size
                self._count(call)
                await asyncio.sleep(self.speed.first(len(call.prompt) - call.cached, loaded * self.block_size))
            call.first_token_s = loop.time() - began
            async for delta in self._decode(call, stored):
                yield delta
            call.total_s = loop.time() - began
            done = True
        finally:
            self.room += blocks if roomy else 0
            self.running.pop(call.id, None)
            if started:
                self.cache.end(call, loop.time(), cancelled=not done)
            else:
                self.cache.left(call)
            self.totals["cancelled"] += not done
            self._wake()

    async def _decode(self, call: Call, stored: int) -> AsyncGenerator[Mapping[str, Any]]:
        """Deltas at the pace of the tokens they are made of; full blocks are stored as they fill."""
        loop = asyncio.get_running_loop()
        deltas, tokens = call.answer.deltas, call.answer.tokens
        whole = block_hashes([*call.prompt, *tokens], self.block_size, call.extra)
        began, sent = loop.time(), 0
        for step, delta in enumerate(deltas, 1):
            made = len(tokens) if step == len(deltas) else step * len(tokens) // len(deltas)
            ahead = began + made * self.speed.decode - loop.time()
            if ahead > 0 or step % 64 == 0:
                await asyncio.sleep(max(ahead, 0.0))
            self.totals["output_tokens"] += made - sent
            sent = made
            full = (len(call.prompt) + made - 1) // self.block_size  # the last token's KV is not there yet
            if full > stored:
                self.cache.grow(call, whole[stored:full], loop.time())
                stored = full
            yield delta

    def _count(self, call: Call) -> None:
        self.totals["requests"] += 1
        self.totals["prompt_tokens"] += len(call.prompt)
        self.totals["cached_tokens"] += call.cached

    async def _wait_for_room(self, blocks: int) -> None:
        """First come, first served: a request that does not fit holds back those behind it."""
        if not self.waiting and blocks <= self.room:
            self.room -= blocks
            return
        turn = asyncio.get_running_loop().create_future()
        self.waiting.append((blocks, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.room += blocks  # it was let in at the moment it gave up
            self.waiting = deque(w for w in self.waiting if w[1] is not turn)
            self._wake()
            raise

    def _wake(self) -> None:
        while self.waiting and self.waiting[0][0] <= self.room:
            blocks, turn = self.waiting.popleft()
            if not turn.done():
                self.room -= blocks
                turn.set_result(None)
