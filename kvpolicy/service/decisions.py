"""Decisions: every model request is planned in the state of its owner, and what was decided goes with it.

A stage of the gateway. It reads what a request means, tells the run state, plans, and writes the plan into the body as
the engine takes it; when the answer has gone by, it tells the run state what that asked for. It never waits: where
the places of messages in the engine's tokens are not known yet, the request goes on and the plan follows over the
control channel. `holding` reads plans again when something happens.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace

from kvpolicy.faults import InputFault
from kvpolicy.request import Owner
from kvpolicy.service.answers import AnswerReader
from kvpolicy.service.channels import OPEN
from kvpolicy.service.deciding import Deciding
from kvpolicy.service.exchange import DONE, Exchange
from kvpolicy.service.hints import DEFERRED, IGNORED, PLACES, UNREAD
from kvpolicy.service.isolation import SALT_FIELD, digest_key, unique
from kvpolicy.service.meaning import dialects
from kvpolicy.service.meaning.annotations import TOO_MANY, merged
from kvpolicy.service.meaning.body_field import from_body
from kvpolicy.service.meaning.following import following
from kvpolicy.service.meaning.headers import from_headers
from kvpolicy.service.meaning.identity import identified
from kvpolicy.service.meaning.known import unknown
from kvpolicy.service.policies import ENFORCE, OFF
from kvpolicy.service.seen import Seen
from kvpolicy.steering.requests import RESUMES, found_by
from kvpolicy.steering.steering import ENDS
from kvpolicy.workflow.events import Event

_FINISHED = frozenset({"stop", "end_turn", "completed", "stop_sequence"})
LOOKED = "looked"  # a note until the stage takes it
ANSWER_S, LOOK_S = 1.0, 0.005  # of an event that means many: it goes on after its answer


@dataclass(frozen=True, slots=True)
class Happened:
    """What came of an event. reached: owners so far; could: that it may reach in all. engines: that hold something for
    them by our plans; heard: those of them that were told."""

    reached: int
    could: int
    engines: int
    heard: int


class Decisions(Deciding):
    """A stage; see `Deciding` for what it is made of."""

    # --- a request comes ------------------------------------------------------------------------------------------

    async def enter(self, exchange: Exchange) -> None:
        """Plan it. What goes wrong here costs the hints; the salt stands all the same."""
        exchange.sent[SALT_FIELD] = unique()
        if LOOKED not in exchange.notes:
            self.look(exchange)
        conversation = exchange.notes.pop(LOOKED)
        if isinstance(conversation, Exception):
            raise conversation
        said = merged(from_headers(exchange.headers), from_body(exchange.body))
        context = identified(said.context, exchange.headers, exchange.body)
        context = self.holding.agents.placed(exchange.tenant.name, said.context, context)
        if conversation is None:
            self.counts["unread"] += 1
            self._answer(exchange, None, IGNORED, UNREAD)
            return
        now = self.clock()
        arrived = self.sessions.arrive(exchange.tenant.name, context, conversation, now)
        chosen = self.policies.choose(exchange.tenant, conversation.model, arrived.owner, said.policy, said.mode)
        seen = Seen(conversation, context, arrived, chosen, said, exchange.tenant.caps)
        exchange.notes[self.name] = seen
        exchange.sent_off = self.holding.arrived
        for each in said.warnings:
            self._warn(exchange, each.code, each.key, each.about)
        for code in arrived.warned:
            self._warn(exchange, code)
        self._isolate(exchange, seen, now)
        if chosen.mode == OFF:
            self.counts["off"] += 1
            self._answer(exchange, seen, IGNORED, OFF)
            return
        enforced = chosen.mode == ENFORCE
        self._answer(exchange, seen, DEFERRED if enforced else IGNORED, PLACES if enforced else chosen.mode)
        await self._told(exchange, seen, now)
        for each in unknown(said, context, arrived.owner, chosen.version, self.state.runs):
            self._warn(exchange, each.code, each.key, each.about)
        self._plan(exchange, seen, now)

    def look(self, exchange: Exchange) -> None:
        """What one means, for `enter`: digests of some megabytes hold up whoever shares their thread. What is wrong
        with it is raised there, and not looked for again. Never raises."""
        try:
            exchange.notes[LOOKED] = self._read(exchange)
        except Exception as fault:
            exchange.notes[LOOKED] = fault

    def _read(self, exchange: Exchange) -> dialects.Conversation | None:
        return dialects.read(exchange.dialect, exchange.body, digest_key(self.secret, exchange.tenant.name))

    async def _told(self, exchange: Exchange, seen: Seen, now: float) -> None:
        """The run state hears of the request, and of what its client says has happened."""
        owner = seen.arrived.owner
        reached = [owner]
        seen.first = not self.holding.plans.knows(owner)
        rewritten = False
        for event in seen.said.events:
            told, of = self._addressed(Event(now, event.name, event.attributes), seen)
            if of is None and self.state.must_wait(told):
                self._warn(exchange, TOO_MANY)
            else:
                # That its own history is rewritten goes with the request: it must not come after it.
                own = of is not None and event.name == "compact"
                reached += self._noted(told, of, noticed=own)
                rewritten = rewritten or own
        if seen.arrived.compacted and not rewritten:
            reached += self._noted(*self._addressed(Event(now, "compact", {}), seen), noticed=True)
        seen.waits = self.state.waits_of(owner)  # before its own results close them
        seen.request = self._request(exchange, seen, None)
        arrived = seen.arrived
        phase = self.state.phase(owner)
        # An event may have told of the call: then no answer's ids are known, but what goes on to no result is.
        strange = phase == "tool_pause" and not (seen.first or seen.brings or arrived.goes_on)
        results = arrived.results if arrived.side or strange else (arrived.results or None)
        changed = await self.telling.arrive(seen.request, now, results)
        resumed = (RESUMES[phase],) if phase in RESUMES and self.state.phase(owner) != phase else ()
        seen.events = (*(("compact",) if rewritten else ()), *resumed)
        seen.request = replace(seen.request, events=seen.events)
        for event_name in resumed:
            self.holding.came(owner, event_name)  # to engines that it does not go to
        self.holding.replan((*reached, *changed), now, besides=exchange.id)
        self.holding.stepped((owner, *changed))

    # --- events ---------------------------------------------------------------------------------------------------

    async def happened(self, event: Event) -> Happened | None:
        """An event of those whom its fields address. None where what it reached is not known yet: it takes effect when
        the store has it. Of one that means many, what it has reached within `ANSWER_S`. Raises InputFault where so many
        such are on their way that this one cannot begin."""
        with suppress(TimeoutError):
            async with asyncio.timeout(ANSWER_S):
                while self.state.must_wait(event):
                    await asyncio.sleep(LOOK_S)
        if self.state.must_wait(event):
            raise InputFault("too many events that mean many are on their way; tell of it again when they have come")
        self.holding.replan(self.state.advance(event.at), event.at)  # what time brought about is no work of the event
        reached = await self.telling.observe(event, None)
        rest = self.telling.rest
        self.counts["events"] += 1
        if reached is None:
            return None
        urls = {url for owner in reached for url in self.holding.urls(owner)}
        self.holding.happened(event, reached)
        if rest is None:
            return Happened(len(reached), len(reached), len(urls), self._hearing(urls))
        with suppress(TimeoutError):
            async with asyncio.timeout(ANSWER_S):
                while not rest.is_over:
                    await asyncio.sleep(LOOK_S)
        everywhere = self.holding.engines()
        could = rest.reached if rest.is_over else rest.could
        return Happened(rest.reached, could, len(everywhere), self._hearing(everywhere))

    def _hearing(self, urls: Iterable[str]) -> int:
        return sum(self.heard(url) == OPEN for url in urls)

    def _noted(self, event: Event, owner: Owner | None, *, noticed: bool = False) -> tuple[Owner, ...]:
        """An event that came with a request. Returns whose plans are to be read again; where the store has not said
        yet, that is done when it does. noticed: see `Holding.came`."""
        reached = self.telling.note(event, owner)
        self.holding.heard(event, reached, noticed=noticed)
        if event.name in ENDS:
            self.holding.replan(reached, event.at)  # what follows is another life
        self.counts["events"] += 1
        return reached

    def _addressed(self, event: Event, seen: Seen) -> tuple[Event, Owner | None]:
        """An event with whom it means. # INVARIANT: its tenant is the authenticated one, whatever it says."""
        if not set(event.attributes) & {"session", "run", "agent", "branch"}:
            return event, seen.arrived.owner
        return Event(event.at, event.name, {**event.attributes, "tenant": seen.arrived.owner.tenant}), None

    # --- an answer goes by ----------------------------------------------------------------------------------------

    def chunk(self, exchange: Exchange, data: bytes) -> None:
        """Some of a good answer."""
        seen = exchange.notes.get(self.name)
        if seen is None:
            return
        if seen.reader is None:
            seen.reader = AnswerReader(exchange.dialect, exchange.stream)
            if seen.request is not None:  # it has its prompt: what a pause kept for it is done
                now = self.clock()
                self.holding.replan(self.telling.touched(seen.request, now), now)
        seen.reader.feed(data)

    def leave(self, exchange: Exchange, how: str) -> None:
        """It ended."""
        seen: Seen | None = exchange.notes.get(self.name)
        if seen is None or seen.request is None:
            return
        seen.over = True
        now = self.clock()
        try:
            self._left(exchange, seen, how, now)
        except Exception:
            # It does not run for ever: it has ended somehow.
            self.holding.replan(self.telling.cancel(seen.request, now), now)
            raise
        finally:
            seen.conversation = replace(seen.conversation, messages=None, tools=None, prompt=None)  # no prompt is kept
            if seen.reader is not None:
                seen.reader.forget()

    def _left(self, exchange: Exchange, seen: Seen, how: str, now: float) -> None:
        assert seen.request is not None
        reader, chain, owner = seen.reader, seen.arrived.chain, seen.arrived.owner
        if how != DONE or reader is None:
            changed = self.telling.cancel(seen.request, now)
            self.holding.replan((*changed, owner), now)
            return
        reader.end()
        seen.released = now
        if seen.expects is not None and reader.cached is not None:
            self.gains.found(seen.expects, reader.cached)
        if self.metrics is not None and reader.prompt is not None:
            self.metrics.count_tokens(owner.tenant, reader.cached or 0, reader.prompt, reader.output or 0)
        calls = {row["id"]: row["name"] for row in reader.calls.values() if row["id"]}
        digests = following(seen.conversation, reader, digest_key(self.secret, owner.tenant))
        self.sessions.answered(owner.tenant, chain, digests, calls, now)
        if seen.measured and reader.prompt is not None and seen.request.tokens != reader.prompt:
            self.counts["places_wrong"] += 1  # the engine counts otherwise than its tokenize route: ask anew
            self.offsets.forget(seen.conversation)
        finished = None if reader.finish is None else not reader.calls and reader.finish in _FINISHED
        asked = [(row["name"] or None, row["id"] or None) for row in reader.calls.values()]
        changed = self.telling.answer(seen.request, now, asked, finished, reader.output)
        if reader.calls or finished:
            self.holding.came(owner, "tool_call" if reader.calls else "turn_end")
        if seen.first and reader.cached:
            for kind in found_by(seen.request, reader.cached):
                self.state.record_hit(owner, kind)
        self.holding.replan((*changed, owner), now)
        self.holding.stepped((owner, *changed))
        if seen.context.final:
            event, of = self._addressed(Event(now, "session_end", {}), seen)
            self.holding.happened(event, self.telling.note(event, of))
