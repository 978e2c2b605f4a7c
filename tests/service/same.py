"""One history played twice: through the embedded engine, and through a gateway with an engine behind it.

`Embedded` is a `Steering` on a pool; `Served`, in `same_served`, is a gateway in this process. Both have one clock,
which moves when a history says, and the same prompts. What is compared is how strongly each block of each prompt is
kept. `same_processes` plays the same over sockets.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kvpolicy.hashes import block_hashes
from kvpolicy.pool import Pool
from kvpolicy.request import Owner, Request, Span
from kvpolicy.service.exchange import CHAT
from kvpolicy.service.meaning import dialects
from kvpolicy.service.meaning.offsets import Offsets
from kvpolicy.service.meaning.spans import located
from kvpolicy.simulated.answer import answer_of
from kvpolicy.simulated.chat import render
from kvpolicy.steering.begin import begin
from kvpolicy.workflow.events import Event
from tests.service.test_caps import compiled

BLOCKS, SIZE, LONGEST, BUDGET = 4000, 16, 1 << 20, 0.4
MODEL, TENANT, ENGINE = "sim", "default", "http://engine"
FIELDS = ("session", "run", "agent", "branch")
FACTS = ("node", "workflow", "depth", "turn", "last_step")


@dataclass
class Ask:
    """A request and its answer. who: its context. reply: the answer's message; most: where it is cut short. events:
    that come with it, as (name, fields)."""

    id: str
    who: Mapping[str, Any]
    messages: Sequence[Mapping[str, Any]]
    reply: Mapping[str, Any]
    model: str = MODEL
    events: Sequence[tuple[str, Mapping[str, Any]]] = ()
    most: int | None = None

    @property
    def body(self) -> dict[str, Any]:
        """As a client sends it."""
        body = {"model": self.model, "messages": list(self.messages), "sim_reply": dict(self.reply)}
        return body if self.most is None else {**body, "max_tokens": self.most}

    @property
    def kvp(self) -> dict[str, Any]:
        """What the client says beside it."""
        return {"context": dict(self.who), "events": [{"event": name, **fields} for name, fields in self.events]}


class Tokens:
    """The engine's own tokens, as `meaning.offsets.Tokenizer` asks for them."""

    async def tokens(self, model: object, messages: Any, tools: Any, *, answer: bool) -> list[int]:
        return render(messages, tools, generate=answer).tokens

    async def begin(self, model: object, messages: Any, tools: Any, whole: Sequence[int]) -> int | None:
        head = render(messages, tools, generate=False).tokens
        return len(head) if list(whole[: len(head)]) == head else None

    async def length(self, model: object, prompt: str) -> int | None:
        return None


def meaning(ask: Ask) -> tuple[int, tuple[Span, ...]]:
    """Tokens and spans of a request, as the gateway finds them in the end."""
    conversation = dialects.read(CHAT, ask.body, b"k")
    assert conversation is not None
    places = asyncio.run(Offsets().fetch(conversation, Tokens()))
    assert places is not None and places.whole
    return places.total, located(conversation, places, ()).spans


def strengths(pool: Pool, hashes: Sequence[bytes]) -> list[int | None]:
    """Of a prompt's blocks; None for one that is not there."""
    views = [pool.block(hashes, index) for index in range(len(hashes))]
    return [None if view is None else view.rank for view in views]


class Embedded:
    """The embedded engine."""

    def __init__(self, text: str) -> None:
        self.now = 0.0
        self.steering = begin(compiled(text), Pool(BLOCKS, block_size=SIZE), budget=BUDGET)
        self.hashes: dict[str, list[bytes]] = {}
        self._answers: dict[str, tuple[list[bytes], Any]] = {}

    def begin(self, ask: Ask) -> None:
        """A request comes."""
        for name, fields in ask.events:
            self.event(name, **{**{each: ask.who.get(each) for each in FIELDS}, **fields})
        tokens, spans = meaning(ask)
        prompt, extra = render(ask.messages).tokens, {"model": ask.model}
        made = answer_of(dict(ask.reply), prompt, ask.most, LONGEST)
        hashes = self.hashes[ask.id] = block_hashes(prompt, SIZE, extra)
        whole = block_hashes([*prompt, *made.tokens][:-1], SIZE, extra)
        self._answers[ask.id] = whole[len(hashes) :], made
        facts = {key: value for key, value in ask.who.items() if key in FACTS}
        owner = Owner(TENANT, **{name: ask.who.get(name) for name in FIELDS})
        asked = Request(ask.id, owner, tokens, SIZE, spans, model=ask.model, attributes=facts)
        self.steering.request(asked, hashes, self.now)

    def end(self, ask: Ask) -> None:
        """Its answer is done."""
        more, made = self._answers.pop(ask.id)
        self.steering.progress(ask.id, self.now, hashes=more)
        self.hashes[ask.id] = [*self.hashes[ask.id], *more]
        calls = [(call["function"]["name"], call["id"]) for call in made.message.get("tool_calls", ())]
        self.steering.finish(ask.id, self.now, tool_calls=calls, finished=None if calls else made.finish == "stop")

    def cancel(self, ask: Ask) -> None:
        """Its client has gone."""
        self.steering.cancel(ask.id, self.now)

    def event(self, name: str, **fields: Any) -> None:
        """Something happened."""
        self.steering.event(Event(self.now, name, {"tenant": TENANT, **fields}), self.now)

    def wait(self, seconds: float) -> None:
        """Time passes."""
        self.now += seconds
        self.steering.advance(self.now)
        assert self.steering.counters["failures"] == 0

    def strengths(self, name: str) -> list[int | None]:
        """Of the blocks of a prompt with its answer."""
        return strengths(self.steering.pool, self.hashes[name])
