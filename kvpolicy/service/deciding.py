"""The plan of one request: salt, spans, what it should find cached, and directives.

The part of `decisions` that looks at a single exchange; it tells nobody of anything but the engine, and through `hints`
the client.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kvpolicy.adapter import READY
from kvpolicy.directive import Plan
from kvpolicy.plan import plan
from kvpolicy.request import Request, Span
from kvpolicy.service.exchange import Exchange
from kvpolicy.service.gains import Gains, expected
from kvpolicy.service.hints import ACCEPTED, BY_CAPS, CLIPPED, IGNORED, LATE, UNPLANNABLE, Hints
from kvpolicy.service.holding import Holding
from kvpolicy.service.isolation import SALT_FIELD, Mint
from kvpolicy.service.meaning import dialects
from kvpolicy.service.meaning.offsets import Offsets, Places
from kvpolicy.service.meaning.sessions import Sessions
from kvpolicy.service.meaning.spans import located
from kvpolicy.service.meaning.values import name
from kvpolicy.service.metrics import Metrics
from kvpolicy.service.planning import Planning, narrowed
from kvpolicy.service.policies import ENFORCE, Policies
from kvpolicy.service.seen import Seen
from kvpolicy.service.telling import Telling
from kvpolicy.steering.pace import TimeSpent
from kvpolicy.words import DEFAULT_SHARE


class Deciding(Hints):
    """policies: those in force. telling: who hears what happens. clock: seconds. fetch: asks an engine where a
    conversation's units lie and calls back; None: nobody can. placed: told of a prompt whose tokens were asked, with
    its salt. block_size: tokens a block of the engines of a model."""

    def __init__(
        self,
        policies: Policies,
        planning: Planning,
        holding: Holding,
        telling: Telling,
        mint: Mint,
        secret: bytes,
        clock: Callable[[], float],
        *,
        block_size: Callable[[str | None], int] = lambda model: 16,
        fetch: Callable[[dialects.Conversation, Offsets, Callable[[Places | None], None]], None] | None = None,
    ) -> None:
        super().__init__()
        self.policies, self.planning, self.holding, self.telling = policies, planning, holding, telling
        self.state, self.adapter = planning.state, planning.adapter
        self.mint, self.secret, self.clock, self.fetch = mint, secret, clock, fetch
        self.block_size = block_size
        self.placed: tuple[Callable[[dialects.Conversation, Places, str | None], None], ...] = ()
        self.sessions = Sessions()
        self.offsets = Offsets()
        self.gains = Gains()
        self.metrics: Metrics | None = None

    def _isolate(self, exchange: Exchange, seen: Seen, now: float) -> None:
        """Its salt: the narrowest `share` over its units, wherever they lie."""
        policy, share = seen.chosen.version.policy, DEFAULT_SHARE
        if any("share" in rule.values for rule in policy.rules):
            units = seen.conversation.units
            spans = [Span(unit.kind, place, place + 1) for place, unit in enumerate(units)]
            asked = self._request(exchange, seen, Places(len(units), ()), spans)
            share = plan(policy, asked, self.state, now).share
            if seen.stated and seen.caps is not None:
                share = narrowed(share, seen.caps)
        salt = self.mint(seen.arrived.owner, share)
        if salt is None:
            exchange.sent.pop(SALT_FIELD, None)
        else:
            exchange.sent[SALT_FIELD] = salt

    def _plan(self, exchange: Exchange, seen: Seen, now: float) -> None:
        places = self.offsets.known(seen.conversation)
        self._expect(seen, places, now)
        if places is None or not places.whole:
            self._later(exchange, seen)
        if places is None:
            self.counts["places_unknown"] += 1
            if self.fetch is not None and seen.request is not None:
                # The engine is told whose it is: a plan that comes later finds it by this, also when it has ended.
                nothing = Plan(exchange.id, now, (), DEFAULT_SHARE, None)
                self._send(exchange, seen, self.planning.lower(nothing, seen.request).payload)
            return
        self.counts["places_known"] += 1
        payload = self._payload(exchange, seen, places, now)
        if payload is None:
            return
        self._send(exchange, seen, payload)
        seen.carried = seen.chosen.mode == ENFORCE
        self.holding.hold(exchange, seen, payload)

    def _send(self, exchange: Exchange, seen: Seen, payload: Mapping[str, Any]) -> None:
        """Write what the engine takes into the body."""
        if seen.chosen.mode == ENFORCE:
            for field, value in payload.items():
                exchange.sent[field] = {**exchange.sent.get(field, {}), **value} if isinstance(value, dict) else value

    def _expect(self, seen: Seen, places: Places | None, now: float) -> None:
        """What it should find cached, by what its chain's last prompt left."""
        held = self.holding.plans.last(seen.arrived.owner, seen.arrived.chain)
        if held is None:
            return
        reproduced = held.request.tokens
        if seen.arrived.diverged is not None:
            agreeing = seen.arrived.diverged
            end = 0 if not agreeing else None if places is None else places.ends[agreeing - 1]
            if end is None:
                return
            reproduced = end
        last = held.seen
        seen.expects = expected(
            seen.chosen.mode, held.request, last.plan, last.released, reproduced, now, held.request.block_size
        )

    def _payload(self, exchange: Exchange, seen: Seen, places: Places, now: float) -> dict[str, Any] | None:
        found = located(seen.conversation, places, seen.said.marks)
        for code in found.warned:
            self._warn(exchange, code)
        request = seen.request = self._request(exchange, seen, places, found.spans)
        seen.measured = not places.open
        try:
            made = seen.plan = self.planning.make(seen, request, now)
        except TimeSpent:
            self.counts["plan_late"] += 1
            self._answer(exchange, seen, IGNORED, LATE)
            return None
        lowered = self.planning.lower(made, request)
        self.counts["planned"] += 1
        self.counts["losses"] += len(lowered.losses)
        clipped = [notice for notice in made.notices if notice.code == "CLIPPED"]
        if clipped:
            self.counts["capped"] += 1
            self._warn(exchange, "CLIPPED")
        if lowered.state != READY:
            self._answer(exchange, seen, IGNORED, UNPLANNABLE)
            return None
        if seen.chosen.mode != ENFORCE:
            self._answer(exchange, seen, IGNORED, seen.chosen.mode)
        else:
            self._answer(exchange, seen, CLIPPED if clipped else ACCEPTED, BY_CAPS if clipped else None)
        return lowered.payload

    def _request(self, exchange: Exchange, seen: Seen, places: Places | None, spans: Any = ()) -> Request:
        context = seen.context
        facts = {
            "plan": exchange.tenant.plan,
            "workflow": context.workflow,
            "node": context.node,
            "turn": context.turn if context.turn is not None else seen.arrived.chain.requests,
            "depth": context.depth,
            "last_step": context.last_step,
        }
        return Request(
            exchange.id,
            seen.arrived.owner,
            0 if places is None else places.total,
            self.block_size(seen.conversation.model),
            tuple(spans),
            model=seen.conversation.model,
            attributes={key: value for key, value in facts.items() if value is not None},
            # Places may be known when the exchange is over, and its headers are gone.
            key=name(exchange.headers.get("idempotency-key")) if seen.request is None else seen.request.key,
            last_step=bool(context.last_step),
            waits=seen.waits,
            brings=seen.brings,
            events=seen.events,
            head=_head_of(seen),
        )

    def _later(self, exchange: Exchange, seen: Seen) -> None:
        """Ask where its units lie; when that is known, the plan follows over the control channel."""
        if self.fetch is None:
            self.counts["places_unavailable"] += 1
            return

        salt = exchange.sent.get(SALT_FIELD)

        def found(places: Places | None) -> None:
            self.holding.awaited.discard(seen)
            if places is None:
                return
            for tell in self.placed:
                tell(seen.conversation, places, salt)
            payload = self._payload(exchange, seen, places, self.clock())
            if payload is not None:
                self.holding.hold(exchange, seen, payload)
                if seen.chosen.mode == ENFORCE:
                    self.counts["followed"] += 1
                    self.holding.follow(exchange)
            if exchange.upstream is not None:
                self._count(exchange, seen)  # what was told as deferred

        self.holding.awaited.add(seen)
        self.fetch(seen.conversation, self.offsets, found)


def _head_of(seen: Seen) -> str | None:
    """A name for the tool definitions and system text that a conversation begins with; None without any, and where a
    client says itself what is what."""
    units = seen.conversation.units
    if not units or units[0].kind not in ("system", "tools") or seen.said.marks:
        return None
    return seen.conversation.head.hex()
