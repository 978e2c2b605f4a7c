"""The second side of a history in this process: the gateway as `kvp serve` puts it together, and simulated blocks.

Requests, answers and the control channel's messages go from one to the other in the order that a history says.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import orjson

from kvpolicy.hashes import block_hashes
from kvpolicy.service.assembly import assemble
from kvpolicy.service.config import checked_config
from kvpolicy.service.edge import stripped
from kvpolicy.service.exchange import CANCELLED, CHAT, DONE, Exchange
from kvpolicy.service.outbox import Said
from kvpolicy.service.tenants import Tenant
from kvpolicy.simulated import openai
from kvpolicy.simulated.blocks import Blocks
from kvpolicy.simulated.generation import Call
from kvpolicy.workflow.events import Event
from tests.service.same import BLOCKS, BUDGET, ENGINE, LONGEST, SIZE, TENANT, Ask, Tokens, strengths

LAG_S = (0.001, 0.004, 0.002)  # between a message and the engine's taking it up, in turn
# When the gateway learns where a new prompt's messages lie: before its engine begins with it, while it runs, or when it
# has ended; and whether its answer is streamed, so that its engine is known before it ends.
WAYS = {"early": ("early", True), "streamed": ("late", True), "whole": ("late", False), "last": ("last", False)}


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
            found(self.loop.run_until_complete(offsets.fetch(conversation, Tokens())))

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
