"""Messages of the control channel: claims re-ranked, made, ended and shown without a request.

`channel` has checked their form, an engine's side calls `apply` between two allocations and sends the answer. `do`:
rank, claim, plan, release, release_all, end, event, show. A claim is named by what its request called it, by its span's
kind or its span's index; no name means all of the owner's. `plan` stands in `replans`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Protocol, cast

from kvpolicy import words
from kvpolicy.channel.payload import changed, owner_of, standing
from kvpolicy.channel.replans import Awaited, Requests, replan
from kvpolicy.channel.running import happened
from kvpolicy.claims.answers import Answer, answers
from kvpolicy.claims.claim import Claim
from kvpolicy.claims.ledger import Ledger
from kvpolicy.claims.line import Line
from kvpolicy.claims.owners import Holder
from kvpolicy.claims.strength import PROTECTED
from kvpolicy.faults import InputFault

Row = dict[str, Any]
_WORST_FIRST = ("rejected", "ignored", "clipped", "deferred", "accepted")


class Engine(Requests, Protocol):
    """What messages need of an engine's side, once it has a ledger."""

    def named(self, names: Sequence[int | str]) -> Sequence[Hashable]:
        """Blocks by the names that the engine's events give them, up to the first that is not cached."""
        ...

    def ranks_of(self, hashes: Sequence[Hashable]) -> Sequence[int]:
        """The strengths of a prompt's leading blocks, up to the first that is not cached."""
        ...


def apply(engine: Engine, message: Mapping[str, Any], now: float) -> Row:
    """Do it; the answer says what became of it. Raises InputFault for what cannot be meant."""
    do = message.get("do")
    action = _ACTIONS.get(str(do))
    if action is None:
        raise InputFault(f"do: {do!r} is not known; known are {', '.join(sorted(_ACTIONS))}")
    return action(engine, message, now)


def unengaged(awaited: Awaited, message: Mapping[str, Any], now: float) -> Row | None:
    """The answer before any directive has come: there is no claim, and only a plan is kept for its request. None for
    a message that is the first directive."""
    if message.get("do") == "claim":
        return None
    if message.get("do") == "show":
        return {"status": "accepted", "claims": [], "blocks": []}
    if message.get("do") == "plan":
        awaited.early(message, now)
    return _unknown("there are no claims yet")


def rejected(fault: InputFault) -> Row:
    """The answer to what cannot be meant."""
    return {"status": "rejected", "requested": 0, "granted": 0, "reason": str(fault)}


def ignored(reason: str) -> Row:
    """The answer where nothing is done, through no fault of the message."""
    return {"status": "ignored", "requested": 0, "granted": 0, "reason": reason}


class _Wishes:
    """Directives by span, in the form that the ledger takes."""

    def __init__(self, wishes: Mapping[int, Any]) -> None:
        self.wishes = wishes


def _rank(engine: Engine, message: Mapping[str, Any], now: float) -> Row:
    ledger, holder = _known(engine, message)
    if holder is None:
        return _unknown("the owner holds nothing")
    given: list[Answer] = []
    name = message.get("claim")
    for line in holder.lines():
        meant = [claim for claim in line.claims if _is(line, claim, name)]
        if not meant:
            continue
        wishes = {claim.span: claim.directive for claim in line.claims if claim.directive is not None}
        for claim in meant:
            wishes[claim.span] = changed(claim.directive or standing(claim.kind), message, now)
        if "hold" in message or message.get("protected") is not None:
            for claim in meant:
                claim.over, claim.hold_from = None, None
        ledger.plan(line, cast(Any, _Wishes(wishes)), now)
        spans = {claim.span for claim in meant}
        given += [answer for answer in answers(line, now) if answer.span in spans]
    if not given:
        return _unknown("the owner has no claim of that name")
    return _answer(given)


def _claim(engine: Engine, message: Mapping[str, Any], now: float) -> Row:
    ledger = _ledger(engine)
    hashes = engine.named(message.get("hashes") or ())
    asked = len(message.get("hashes") or ())
    if not hashes:
        return {"status": "deferred", "requested": asked, "granted": 0, "reason": "none of the blocks is cached"}
    claim = Claim("claim", None, 0, now)
    claim.apply(changed(standing("turn"), message, now), nameless=False)
    line = ledger.claim(owner_of(message.get("owner")), hashes, claim, now)
    if line is None:
        return {"status": "deferred", "requested": asked, "granted": 0, "reason": "none of the blocks is cached"}
    name = message.get("claim")
    line.outline = {0: str(name)} if name is not None else {}
    return _answer(answers(line, now), asked)


def _plan(engine: Engine, message: Mapping[str, Any], now: float) -> Row:
    found = replan(engine, message, owner_of(message.get("owner")), now)
    if found is None:
        return {**_done(0), "reason": "it waits for its first block and makes these claims with it"}
    return _unknown(found) if isinstance(found, str) else _answer(answers(found, now))


def _release(engine: Engine, message: Mapping[str, Any], now: float) -> Row:
    ledger, holder = _known(engine, message)
    if holder is None:
        return _done(0)
    name = message.get("claim")
    if name is None:
        return _done(ledger.release(holder.owner, now))
    ends = {claim.proof for line in holder.lines() for claim in line.claims if _is(line, claim, name)}
    return _done(ledger.release(holder.owner, now, list(ends)) if ends else 0)


def _release_all(engine: Engine, message: Mapping[str, Any], now: float) -> Row:
    return _done(_ledger(engine).release_all(now))


def _end(engine: Engine, message: Mapping[str, Any], now: float) -> Row:
    ledger, holder = _known(engine, message)
    lifetimes = message.get("lifetimes") or []
    if not isinstance(lifetimes, list) or any(name not in words.LIFETIMES for name in lifetimes):
        raise InputFault(f"lifetimes: a list of {', '.join(words.LIFETIMES)} is needed")
    return _done(0 if holder is None else ledger.end(holder, frozenset(lifetimes), now))


def _event(engine: Engine, message: Mapping[str, Any], now: float) -> Row:
    ledger, holder = _known(engine, message)
    event = message.get("event")
    if not isinstance(event, str) or event not in words.EVENTS:
        raise InputFault(f"event: one of {', '.join(words.EVENTS)} is needed")
    if holder is None:
        return _unknown("the owner holds nothing")
    happened(ledger, holder, event, now, noticed=message.get("noticed") is True)
    return _done(1)


def _show(engine: Engine, message: Mapping[str, Any], now: float) -> Row:
    """Claims of an owner (of all, without one), and ranks of blocks named by hash. Renews nothing."""
    ledger = _ledger(engine)
    if message.get("owner") is None:
        holders = list(ledger.holders.values())
    else:
        holder = ledger.holder(owner_of(message["owner"]))
        holders = [] if holder is None else [holder]
    claims = [_claim_row(h, line, claim, now) for h in holders[:256] for line in h.lines() for claim in line.claims]
    hashes = message.get("hashes") or ()
    ranks = engine.ranks_of(engine.named(hashes))
    blocks = [
        {"hash": name, "rank": rank - PROTECTED if rank >= PROTECTED else rank, "protected": rank >= PROTECTED}
        for name, rank in zip(hashes, ranks, strict=False)
    ]
    return {"status": "accepted", "claims": claims, "blocks": blocks}


_ACTIONS: Mapping[str, Callable[[Engine, Mapping[str, Any], float], Row]] = {
    "rank": _rank,
    "claim": _claim,
    "plan": _plan,
    "release": _release,
    "release_all": _release_all,
    "end": _end,
    "event": _event,
    "show": _show,
}


def _claim_row(holder: Holder, line: Line, claim: Claim, now: float) -> Row:
    strength = claim.strength(now)
    owner = holder.owner
    return {
        "owner": owner.session if (owner.tenant, owner.run, owner.agent, owner.branch) == ("default", None, None, None)
        else {"tenant": owner.tenant, "session": owner.session, "run": owner.run, "agent": owner.agent,
              "branch": owner.branch},
        "claim": _name(line, claim),
        "kind": claim.kind,
        "implicit": claim.implicit,
        "priority": claim.priority,
        "protected": strength >= PROTECTED and min(line.granted, claim.granted) > 0,
        "dropped": claim.dropped,
        "blocks": min(claim.length, line.length),
        "requested": claim.length,
        "ended": claim.ended,
    }  # fmt: skip


def _ledger(engine: Engine) -> Ledger:
    assert engine.ledger is not None
    return engine.ledger


def _known(engine: Engine, message: Mapping[str, Any]) -> tuple[Ledger, Holder | None]:
    ledger = _ledger(engine)
    return ledger, ledger.holder(owner_of(message.get("owner")))


def _name(line: Line, claim: Claim) -> str:
    names = line.outline if isinstance(line.outline, Mapping) else {}
    return str(names.get(claim.span, claim.kind))


def _is(line: Line, claim: Claim, name: object) -> bool:
    if name is None:
        return True
    return claim.span == name if isinstance(name, int) else name in (_name(line, claim), claim.kind)


def _answer(rows: list[Answer], asked: int | None = None) -> Row:
    """The worst of several answers, with the longest prefix asked for and granted."""
    if not rows:  # nothing is asked for any more
        return _done(0 if asked is None else asked)
    worst = min(rows, key=lambda row: _WORST_FIRST.index(row.status))
    requested = max(row.requested for row in rows) if asked is None else asked
    granted = max(row.granted for row in rows)
    status, reason = worst.status, worst.reason
    if status == "accepted" and granted < requested:
        status, reason = "deferred", "the other blocks are not cached"
    return {"status": status, "requested": requested, "granted": granted, "reason": reason}


def _done(count: int) -> Row:
    return {"status": "accepted", "requested": count, "granted": count, "reason": None}


def _unknown(reason: str) -> Row:
    return {"status": "unknown", "requested": 0, "granted": 0, "reason": reason}
