"""One history played twice: through the embedded engine, and through a gateway with an engine behind it.

`Embedded` is a `Steering` on a pool; `Served` is the gateway as `kvp serve` puts it together, with the simulated
engine's blocks. Both have one clock, which moves when a history says, and the same prompts. Requests, answers and the
control channel's messages go from one to the other in the order that a history says. What is compared is how strongly
each block of each prompt is kept. `same_processes` plays the same over sockets.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import orjson

from kvpolicy.hashes import block_hashes
from kvpolicy.language.load import load_text
from kvpolicy.policy.checked import examined
from kvpolicy.policy.policy import Policy
from kvpolicy.pool import Pool
from kvpolicy.request import Owner, Request, Span
from kvpolicy.service.assembly import assemble
from kvpolicy.service.config import checked_config
from kvpolicy.service.edge import stripped
from kvpolicy.service.exchange import CANCELLED, CHAT, DONE, Exchange
from kvpolicy.service.meaning import dialects
from kvpolicy.service.meaning.offsets import Offsets
from kvpolicy.service.meaning.spans import located
from kvpolicy.service.outbox import Said
from kvpolicy.service.tenants import Tenant
from kvpolicy.simulated import openai
from kvpolicy.simulated.answer import answer_of
from kvpolicy.simulated.blocks import Blocks
from kvpolicy.simulated.chat import render
from kvpolicy.simulated.generation import Call
from kvpolicy.steering.begin import begin
from kvpolicy.workflow.events import Event

BLOCKS, SIZE, LONGEST, BUDGET = 4000, 16, 1 << 20, 0.4
MODEL, TENANT, ENGINE = "sim", "default", "http://engine"
FIELDS = ("session", "run", "agent", "branch")
FACTS = ("node", "workflow", "depth", "turn", "last_step")
LAG_S = (0.001, 0.004, 0.002)  # between a message and the engine's taking it up, in turn
# When the gateway learns where a new prompt's messages lie: before its engine begins with it, while it runs, or when it
# has ended; and whether its answer is streamed, so that its engine is known before it ends.
WAYS = {"early": ("early", True), "streamed": ("late", True), "whole": ("late", False), "last": ("last", False)}


@cache
def compiled(text: str) -> Policy:
    """A policy from its text."""
    return examined(load_text(text)).policy()


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


class _Tokens:
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
    places = asyncio.run(Offsets().fetch(conversation, _Tokens()))
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


@dataclass
class _Open:
    exchange: Exchange
    call: Call
    grown: list[bytes] = field(default_factory=list)


class Served:
    """The gateway, and an engine behind it. way: one of WAYS."""

    def __init__(self, text: str, folder: Path, way: str) -> None:
        self.now = 0.0
        self.places, self.streamed = WAYS[way]
        self.blocks = Blocks(BLOCKS, SIZE, budget=BUDGET)
        file = folder / "policy.kvp"
        file.write_text(text)
        settings = {"policy": {"name": str(file)}, "limits": {"decide_within_s": 5.0}}
        self.tenant = Tenant(TENANT, caps=None)  # type: ignore[arg-type] # nothing is cut of what a client brings about
        self.loop = asyncio.new_event_loop()
        _, gateway = assemble(checked_config({"upstream": [{"url": ENGINE}], **settings}, "test"), lambda: self.now)
        self.decisions: Any = gateway.proxy.stages[0]
        self.holding = self.decisions.holding
        self.decisions.heard = lambda url: "open"
        self.decisions.fetch = lambda *asked: self._asked.append(asked)
        self.holding._send = self._send
        self.hashes: dict[str, list[bytes]] = {}
        self.told: list[tuple[Any, Any]] = []
        self._asked: list[Any] = []
        self._open: dict[str, _Open] = {}
        self._turn = count()
        self._engine_now = 0.0

    def _send(self, url: str, said: Said) -> None:
        assert url == ENGINE
        message = orjson.loads(orjson.dumps(said.as_json()))
        self.told.append((message, self.blocks.take_up(message, self._later(LAG_S[next(self._turn) % len(LAG_S)]))))

    def _later(self, lag: float = 0.0) -> float:
        """The engine's time."""
        self._engine_now = max(self._engine_now, self.now + lag)
        return self._engine_now

    def _find(self, when: str) -> None:
        asked, self._asked = (self._asked, []) if self.places == when else ([], self._asked)
        for conversation, offsets, found in asked:
            found(self.loop.run_until_complete(offsets.fetch(conversation, _Tokens())))

    def begin(self, ask: Ask) -> None:
        """A request comes, and reaches its engine; of a streamed answer the head comes back."""
        exchange = Exchange(ask.id, CHAT, self.tenant, {}, {**ask.body, "kvp": ask.kvp}, self.now)
        exchange.sent = stripped(ask.body)
        self.loop.run_until_complete(self.decisions.enter(exchange))
        call = openai.chat_call({**orjson.loads(orjson.dumps(exchange.sent)), "sim_reply": dict(ask.reply)}, 1, LONGEST)
        call.id = f"engine-{ask.id}"
        call.hashes = block_hashes(call.prompt, SIZE, call.extra)
        whole = block_hashes([*call.prompt, *call.answer.tokens][:-1], SIZE, call.extra)
        self._open[ask.id] = _Open(exchange, call, whole[len(call.hashes) :])
        exchange.engine = ENGINE
        exchange.sent_off(exchange)
        self.blocks.came(call, self._later())
        if self.streamed:
            self._head(exchange)
        self._find("early")
        hits, _ = self.blocks.start(call, self._later())
        call.cached = min(hits, (len(call.prompt) - 1) // SIZE) * SIZE
        if self.streamed:
            self.decisions.chunk(exchange, b"")
        self._find("late")

    def _head(self, exchange: Exchange) -> None:
        exchange.upstream, exchange.status = ENGINE, 200
        self.decisions.chosen(exchange)

    def end(self, ask: Ask) -> None:
        """Its answer is done: the engine has let go of it, and the gateway has seen it pass."""
        each = self._open.pop(ask.id)
        if each.grown:
            self.blocks.grow(each.call, each.grown, self._later())
        self.hashes[ask.id] = list(each.call.hashes)
        self.blocks.end(each.call, self._later(), cancelled=False)
        if not self.streamed:
            self._head(each.exchange)
        self.decisions.chunk(each.exchange, orjson.dumps(openai.chat_body(each.call, ask.model)))
        self.decisions.leave(each.exchange, DONE)
        self._find("last")

    def cancel(self, ask: Ask) -> None:
        """Its client has gone: the gateway breaks the request off."""
        each = self._open.pop(ask.id)
        self.hashes[ask.id] = list(each.call.hashes)
        self.blocks.end(each.call, self._later(), cancelled=True)
        self.decisions.leave(each.exchange, CANCELLED)
        self._find("last")

    def event(self, name: str, **fields: Any) -> None:
        """Something happened."""
        self.loop.run_until_complete(self.decisions.happened(Event(self.now, name, {"tenant": TENANT, **fields})))

    def wait(self, seconds: float) -> None:
        """Time passes, and the gateway looks as often as it does beside requests."""
        end = self.now + seconds
        while self.now < end:
            due = self.holding.tick(self.now)
            self.now = min(end, self.now + min(max(due, 0.002), 1.0))
        self.holding.tick(self.now)
        self.blocks.claims.advance(self._later())
        assert self.blocks.claims.counters["failures"] == 0
        assert self.holding.counts["faults"] == 0

    def strengths(self, name: str) -> list[int | None]:
        """Of the blocks of a prompt with its answer."""
        return strengths(self.blocks.pool, self.hashes[name])
