"""A plan that comes without its request: read again while it runs or after it, or late, after it went out with none.

Called by `messages`. The same spans with other values are planned again; other spans (a late plan has spans where the
request had none) take the place of those before, and claims that both have keep their clocks.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from math import inf
from typing import Any, Protocol

from kvpolicy.blocks import Layout, lay_out
from kvpolicy.channel.ends import Ends
from kvpolicy.channel.payload import Told, of_body, owner_of, read
from kvpolicy.channel.running import Running, arrive
from kvpolicy.claims.ledger import Ledger
from kvpolicy.claims.line import Line
from kvpolicy.claims.owners import head_of
from kvpolicy.directive import Directive
from kvpolicy.faults import InputFault
from kvpolicy.policy.model import ANSWER_GRACE_S
from kvpolicy.request import Owner, OwnerKey, Request

MOST_AWAITED = 256  # requests that have ended whose plan has not come, and plans whose request has not
EARLY_S = 60.0  # a plan waits for its request


class Awaited:
    """Block hashes of requests that ended before their plan came: the ends of its spans are found by them. And plans
    that came before their request: the channel is another way than a request's, and may be the shorter one."""

    def __init__(self) -> None:
        self._hashes: OrderedDict[tuple[OwnerKey, str], Sequence[Hashable]] = OrderedDict()
        self._early: OrderedDict[tuple[OwnerKey, str], tuple[float, Any]] = OrderedDict()
        self.ends = Ends()

    def early(self, message: Mapping[str, Any], now: float) -> None:
        """A plan of a request that is not known: perhaps it is still to come."""
        key = owner_of(message.get("owner")).key, str(message.get("request"))
        self._early[key] = now, message.get("payload")
        self._early.move_to_end(key)
        if len(self._early) > MOST_AWAITED:
            self._early.popitem(last=False)

    def read(self, carried: Any, request_id: str, tokens: int, block_size: int, now: float) -> Told:
        """A request has come that carries this: what it says, or what a plan says that came before it. The other
        arguments are those of `payload.read`. Raises InputFault for what cannot be meant."""
        told = read(carried, request_id, tokens, block_size, now, self.ends)
        lay_out(told.request)
        return self._came(told, now)

    def _came(self, told: Told, now: float) -> Told:
        """Raises nothing for a plan that cannot be meant; the request stands as it is."""
        if not self._early:
            return told
        request = told.request
        at, payload = self._early.pop((request.owner.key, request.id), (now, None))
        if payload is None or now - at > EARLY_S:
            return told
        with suppress(InputFault):
            planned = _told({"payload": payload}, request, at, self.ends)
            lay_out(planned.request)
            return planned
        return told

    def ended(self, told: Told, hashes: Sequence[Hashable]) -> None:
        """A request is over of which is still to be told (`told.follows`)."""
        self._hashes[told.request.owner.key, told.request.id] = hashes
        if len(self._hashes) > MOST_AWAITED:
            self._hashes.popitem(last=False)

    def take(self, request: Request) -> Sequence[Hashable] | None:
        """What was kept of it."""
        return self._hashes.pop((request.owner.key, request.id), None)

    def forget(self) -> None:
        """No request is known any more."""
        self._hashes.clear()
        self._early.clear()


class Requests(Protocol):
    """What a plan needs of an engine's side."""

    @property
    def ledger(self) -> Ledger | None: ...

    @property
    def awaited(self) -> Awaited: ...

    def requests(self) -> Iterable[Running]:
        """Those that run."""
        ...

    def hashes_of(self, running: Running) -> Sequence[Hashable]:
        """Those of a running request's full blocks so far."""
        ...


def replan(engine: Requests, message: Mapping[str, Any], owner: Owner, now: float) -> Line | str | None:
    """Do it. Returns the line whose claims are others now, or why there is none; None: the request waits for its first
    block, and makes these claims with it. Raises InputFault for a payload that cannot be meant."""
    ledger = engine.ledger
    assert ledger is not None
    name = str(message.get("request"))
    running = next((r for r in engine.requests() if r.told.request.id == name and r.told.request.owner == owner), None)
    if running is not None and running.line is None:
        _wait_anew(engine, ledger, running, _told(message, running.told.request, now, engine.awaited.ends), now)
        return None
    line = _line(ledger, running, owner, name)
    if line is None and running is None:
        engine.awaited.early(message, now)
        return "no claim of that request is left; if it is still to come, this waits for it"
    if line is None:
        return "a newer request of its owner counts"
    assert line.request is not None
    told = _told(message, line.request, now, engine.awaited.ends)
    before, after = lay_out(line.request), lay_out(told.request)
    places = _same(before, after)
    if places is not None:
        line.outline = {places[span]: claim for span, claim in told.names.items()}
        wishes = [_moved(wish, places[span]) for span, wish in told.directives.items()]
        ledger.plan(line, wishes, now)
        return line
    hashes = engine.awaited.take(line.request) if running is None else engine.hashes_of(running)
    if hashes is None:
        return "its spans are others than before, and its blocks are not known by name any more"
    _relabel(ledger, line, running, told, after, hashes, now)
    return line


def _line(ledger: Ledger, running: Running | None, owner: Owner, name: str) -> Line | None:
    if running is not None:
        return running.leads
    holder = ledger.holder(owner)
    lines = () if holder is None else holder.lines()
    return next((each for each in lines if each.request is not None and each.request.id == name), None)


def _told(message: Mapping[str, Any], request: Request, now: float, ends: Ends) -> Told:
    payload = message.get("payload")
    carried = of_body(payload) if isinstance(payload, Mapping) else None
    told = read(payload if carried is None else carried, request.id, request.tokens, request.block_size, now, ends)
    if told.request.owner != request.owner or told.request.id != request.id:
        raise InputFault("payload: it is another request's")
    return told


def _wait_anew(engine: Requests, ledger: Ledger, running: Running, told: Told, now: float) -> None:
    """It has come, but has no blocks: as if it had said this from the beginning. What its coming has ended is not asked
    for a second time, else it would count as two requests for its owner's other prompts."""
    hashes, layout = engine.hashes_of(running), lay_out(told.request)
    if head_of(told.request, layout, hashes) == running.arrival.head:
        running.arrival = replace(running.arrival, request=told.request, layout=layout)
    else:
        running.arrival = arrive(ledger, told, hashes, now, anew=True)
    running.told = told


def _relabel(
    ledger: Ledger,
    line: Line,
    running: Running | None,
    told: Told,
    layout: Layout,
    hashes: Sequence[Hashable],
    now: float,
) -> None:
    known = set(line.claims)
    prompt = hashes[: layout.full]  # what its answer has filled is the output's, and no longer of the last block before
    ledger.relabel(line, told.request, layout, prompt, told.directives.values(), now)
    line.outline = told.names
    if running is None:
        released = ledger.ranks.last_release(line.marks[0]) if line.marks else None
        for claim in line.claims:
            if claim not in known:
                claim.users, claim.settled = 0, line.withdraw == inf  # what a withdrawn request claims goes with it
            if claim.end is None:  # its answer is all there
                claim.full = claim.length = len(hashes)
                claim.proof = hashes[-1] if hashes else None
            if not claim.users:
                claim.release(now if released is None else released)
        if any(claim.lifetime == "request" for claim in line.claims):
            line.grace = min(line.grace, now + ANSWER_GRACE_S)
        ledger.stand(line, hashes, now)
        return
    running.told, running.made = told, line.claims
    if running.lease is None:  # preempted
        ledger.settle(line, now)
    else:
        running.grow(ledger, hashes, now)


def _same(before: Layout, after: Layout) -> dict[int, int] | None:
    """Where each span of a layout stands in another that has the same spans in prompt order; None where it has not."""
    if len(before.order) != len(after.order):
        return None
    places = {}
    for old, new in zip(before.order, after.order, strict=True):
        one, two = before.spans[old], after.spans[new]
        if (one.kind, one.start, before.end(old)) != (two.kind, two.start, after.end(new)):
            return None
        places[new] = old
    return places


def _moved(wish: Directive, span: int) -> Directive:
    return wish if wish.span == span else replace(wish, span=span)
