"""Where a conversation's units lie in the engine's tokens: asked from the engine, remembered by digest, never guessed.

A unit's end is the length of the prompt that ends with it, as the engine's own tokenize route counts it; it is taken
only where those tokens begin the whole prompt's. The tool definitions lie where a prompt with and one without them
differ. `decisions` uses what is remembered and never waits: what is missing is fetched beside the request.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from kvpolicy.service.meaning.dialects import Conversation

MOST_KNOWN = 500_000
MOST_ASKED = 12  # tokenize calls for one request; the rest is asked with the next ones


class Tokenizer(Protocol):
    """An engine's own."""

    async def tokens(
        self, model: str | None, messages: Sequence[Mapping[str, Any]], tools: Sequence[Any] | None, *, answer: bool
    ) -> Sequence[int] | None:
        """Token ids of a conversation; answer: with the start of the answer behind it. None: it cannot say."""
        ...

    async def begin(
        self,
        model: str | None,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Any] | None,
        whole: Sequence[int],
    ) -> int | None:
        """How many tokens a conversation takes, where `whole` begins with them. None: it does not, or cannot say."""
        ...

    async def length(self, model: str | None, prompt: str) -> int | None:
        """Tokens of a bare prompt. None: it cannot say."""
        ...


@dataclass(frozen=True, slots=True)
class Places:
    """total: tokens of the prompt; where its newest units are not known yet, of what stands before them (`open`).
    ends: of each unit, None where it is not known. tools: [start, end) of the tool definitions, None without any or
    where that is not known. tokens: the prompt's, where they were just asked; they are not remembered."""

    total: int
    ends: tuple[int | None, ...]
    tools: tuple[int, int] | None = None
    open: bool = False
    tokens: Sequence[int] | None = field(default=None, repr=False, compare=False)

    @property
    def whole(self) -> bool:
        """Whether nothing is missing."""
        return not self.open and None not in self.ends


@dataclass(slots=True)
class Counts:
    """What became of it: known fetched shared (somebody was asking for the same) unknown (the engine could not say)
    asked (calls)."""

    known: int = 0
    fetched: int = 0
    shared: int = 0
    unknown: int = 0
    asked: int = 0


class Offsets:
    """Every place that is remembered, by what stands before it."""

    def __init__(self, most: int = MOST_KNOWN) -> None:
        self._ends: OrderedDict[tuple[str | None, bytes], int] = OrderedDict()
        self._totals: OrderedDict[tuple[str | None, bytes], int] = OrderedDict()
        self._tools: OrderedDict[tuple[str | None, bytes], tuple[int, int]] = OrderedDict()
        self._running: dict[tuple[str | None, bytes], asyncio.Future[Places | None]] = {}
        self._most = most
        self.counts = Counts()

    def known(self, conversation: Conversation) -> Places | None:
        """What is remembered of it; None where nothing is."""
        units = conversation.units
        if not units:
            return None
        if isinstance(conversation.prompt, list):
            return Places(len(conversation.prompt), (len(conversation.prompt),))
        total = self._totals.get((conversation.model, units[-1].digest))
        model = conversation.model
        ends = tuple(self._ends.get((model, unit.digest)) for unit in units)
        upto = max((end for end in ends if end is not None), default=0) if total is None else total
        if upto == 0:
            return None
        return Places(upto, ends, self._tools.get((model, _tool_key(conversation))), total is None)

    def forget(self, conversation: Conversation) -> None:
        """What is remembered of it was wrong."""
        for unit in conversation.units:
            self._ends.pop((conversation.model, unit.digest), None)
            self._totals.pop((conversation.model, unit.digest), None)
        self._tools.pop((conversation.model, _tool_key(conversation)), None)

    async def fetch(
        self,
        conversation: Conversation,
        tokenizer: Tokenizer,
        turn: AbstractAsyncContextManager[object] | None = None,
    ) -> Places | None:
        """Ask the engine for what is missing, the newest units first. None where it cannot say. turn: is had by who
        asks, from the first question to the last; who shares what another asks waits without one.

        # INVARIANT: whoever asks for the same meanwhile gets the same answer: each has a plan that waits for it.
        """
        if not conversation.units or (conversation.messages is None and not isinstance(conversation.prompt, str)):
            self.counts.unknown += 1
            return None
        key = (conversation.model, conversation.units[-1].digest)
        running = self._running.get(key)
        if running is not None:
            self.counts.shared += 1
            return await asyncio.shield(running)
        running = self._running[key] = asyncio.get_running_loop().create_future()
        found = None
        try:
            async with turn or nullcontext():
                found = await self._fetch(conversation, tokenizer)
        finally:
            del self._running[key]
            running.set_result(found)
        return found

    async def _fetch(self, conversation: Conversation, tokenizer: Tokenizer) -> Places | None:
        model, messages, tools = conversation.model, conversation.messages or (), conversation.tools
        self.counts.asked += 1
        if isinstance(conversation.prompt, str):
            count = await tokenizer.length(model, conversation.prompt)
            if count is None:
                self.counts.unknown += 1
                return None
            for table in (self._totals, self._ends):
                self._keep(table, (model, conversation.units[-1].digest), count)
            return self.known(conversation)
        whole = await tokenizer.tokens(model, messages, tools, answer=True)
        if whole is None:
            self.counts.unknown += 1
            return None
        self._keep(self._totals, (model, conversation.units[-1].digest), len(whole))
        await self._find_tools(conversation, tokenizer)
        asked = 0
        for unit in reversed(conversation.units):
            if asked >= MOST_ASKED or not unit.upto or (model, unit.digest) in self._ends:
                continue
            asked += 1
            self.counts.asked += 1
            end = await tokenizer.begin(model, messages[: unit.upto], tools, whole)
            if end is not None:
                self._keep(self._ends, (model, unit.digest), end)
        self.counts.fetched += 1
        found = self.known(conversation)
        return None if found is None else replace(found, tokens=whole)

    async def _find_tools(self, conversation: Conversation, tokenizer: Tokenizer) -> None:
        key = (conversation.model, _tool_key(conversation))
        if not conversation.tools or key in self._tools or not conversation.messages:
            return
        first = conversation.messages[:1]
        self.counts.asked += 2
        with_tools = await tokenizer.tokens(conversation.model, first, conversation.tools, answer=False)
        without = await tokenizer.tokens(conversation.model, first, None, answer=False)
        if with_tools is None or without is None or len(with_tools) <= len(without):
            return
        start = _common(with_tools, without)
        tail = _common(with_tools[::-1], without[::-1])
        end = len(with_tools) - min(tail, len(without) - start)
        self._keep(self._tools, key, (start, end))
        for unit in conversation.units:
            if unit.kind == "tools":
                self._keep(self._ends, (conversation.model, unit.digest), end)

    def _keep(self, table: OrderedDict[Any, Any], key: Any, value: Any) -> None:
        table[key] = value
        table.move_to_end(key)
        while len(table) > self._most:
            table.popitem(last=False)


def _tool_key(conversation: Conversation) -> bytes:
    """Definitions and first message together: where a template puts the one depends on the other."""
    units = conversation.units
    first = next((unit for unit in units if unit.kind != "tools"), units[0])
    return first.digest + (units[0].digest if units[0].kind == "tools" else b"")


def _common(left: Sequence[int], right: Sequence[int]) -> int:
    """Length of the common beginning."""
    for place, (ours, theirs) in enumerate(zip(left, right, strict=False)):
        if ours != theirs:
            return place
    return min(len(left), len(right))
