"""A plan lowered to ranges of tokens with one level and at most one lifetime, and a report of what is lost.

Reads a plan and an engine's `Capabilities`; for any engine that takes such ranges. An adapter with a wire form of its
own starts from these ranges.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import inf
from typing import Any

from kvpolicy.adapter import DIRECTION_UNKNOWN, LARGER, READY, SMALLER, UNSUPPORTED, Capabilities, Lowered
from kvpolicy.adapter import duration as lifetime_of
from kvpolicy.adapter import level as level_of
from kvpolicy.blocks import lay_out
from kvpolicy.claims.strength import DEFAULT
from kvpolicy.directive import Plan
from kvpolicy.faults import Notice
from kvpolicy.plan.drops import Stand, stands
from kvpolicy.plan.notices import unplaced_from
from kvpolicy.plan.rows import BlockRow, block_rows
from kvpolicy.request import Request

_TOP = 100


@dataclass(frozen=True, slots=True)
class Wish:
    """What is wanted for a block: a priority and for how long (seconds, inf for ever). merged: it is the upper
    envelope of several steps, because an engine's range has one pair."""

    priority: int
    lasting: float = inf
    merged: bool = False


@dataclass(slots=True)
class _Range:
    first: int
    last: int
    level: int
    lifetime: int | None
    wishes: list[Wish] = field(default_factory=list)


def lower(plan: Plan, request: Request, engine: Capabilities) -> Lowered:
    """The plan for one engine. payload: {"directives": [{"start", "end" (tokens), "level", "duration"?}]}, in prompt
    order, only what does not stand at the default.

    To an engine whose direction is unknown, or that does not take the field, nothing is sent: the request goes out
    as if there were no policy, and the answer to the hint is `ignored`.
    """
    layout, unplaced = lay_out(request), unplaced_from(request.extra)
    claims = stands(plan, layout, unplaced)
    wishes = [(row.index, _wish(row, claims, plan.at)) for row in block_rows(plan, layout, unplaced) if row.full]
    wishes = [(index, wish) for index, wish in wishes if wish.priority != DEFAULT]
    shown = f"{engine.name} {engine.version}" if engine.version else engine.name
    if engine.direction not in (LARGER, SMALLER):
        why = Notice("DIRECTION_UNKNOWN", f"which levels {shown} keeps longer is not known, so nothing is sent")
        return _nothing(why, DIRECTION_UNKNOWN, len(wishes))
    if not engine.supported:
        why = Notice(UNSUPPORTED, f"{shown} does not take retention hints, so nothing is sent")
        return _nothing(why, UNSUPPORTED, len(wishes))
    ranges: list[_Range] = []
    for index, wish in wishes:
        value, lifetime = level_of(wish.priority, engine), lifetime_of(wish.lasting, engine)
        last = ranges[-1] if ranges else None
        if last is not None and (last.last + 1, last.level, last.lifetime) == (index, value, lifetime):
            last.last = index
        else:
            ranges.append(last := _Range(index, index, value, lifetime))
        if wish not in last.wishes:
            last.wishes.append(wish)
    losses = tuple(_losses(ranges, engine))
    sent = [r for r in ranges if r.level != engine.default]
    answer = {
        "status": "clipped" if losses else "accepted",
        "requested": len(wishes),
        "granted": sum(r.last - r.first + 1 for r in sent),
        "reason": losses[0].code if losses else None,
    }
    return Lowered({"directives": [_as_json(r, request.block_size) for r in sent]}, losses, READY, answer)


def _wish(row: BlockRow, claims: tuple[Stand, ...], now: float) -> Wish:
    """What the claims on one block come to, as one priority and one length of time."""
    if row.dropped:
        return Wish(0)
    covering = [claim for claim in claims if claim.length > row.index and not claim.dropped]
    steps = [step for claim in covering for step in _steps(claim, now)]
    if steps:
        top, lasting = max(s[0] for s in steps), max(s[1] for s in steps)
        return Wish(top, lasting, (top, lasting) not in steps)
    return Wish(max((min(DEFAULT, claim.rank) for claim in covering), default=DEFAULT))


def _steps(claim: Stand, now: float) -> Iterator[tuple[int, float]]:
    """(priority, seconds) of what one claim asks above the default; a protected span stands at the top."""
    directive = claim.directive
    if directive is None:
        return
    if claim.protected:
        until, held = directive.protected_until, directive.hold_after_release
        yield _TOP, (until - now if until is not None else held or 0.0)
    # A lifetime of 0 keeps nothing above the default; as a number it would mean for ever to some engines.
    if directive.priority > DEFAULT and directive.ttl != 0:
        yield directive.priority, inf if directive.ttl is None else directive.ttl


def _losses(ranges: list[_Range], engine: Capabilities) -> Iterator[Notice]:
    """What the engine cannot say, each once, in a fixed order."""
    levels = {wish.priority: r.level for r in ranges for wish in r.wishes}
    mergers = sorted(p for p in levels if any(q != p and levels[q] == levels[p] for q in levels))
    floorless = sorted(p for p in levels if p < DEFAULT and levels[p] == engine.default)
    for priority in sorted(levels):
        clamped = engine.default == DEFAULT and engine.direction == LARGER and levels[priority] != priority
        if priority not in floorless and (clamped or priority in mergers):
            yield Notice(
                "CLIPPED",
                f"priority {priority} becomes level {levels[priority]}; {engine.name} has {engine.lowest} to "
                f"{engine.highest}",
                {"priority": priority, "level": levels[priority]},
            )
    if floorless:
        yield Notice(
            "CANNOT_RANK_BELOW_DEFAULT",
            f"{engine.name} has no level below its default of {engine.default}; priorities under {DEFAULT} stay there",
            {"priorities": floorless},
        )
    if any(wish.merged for r in ranges for wish in r.wishes):
        yield Notice(
            "STEPS_MERGED",
            f"{engine.name} has one level and one lifetime a range; the highest level and longest lifetime are sent",
        )
    if engine.unit_s is None and any(wish.lasting != inf for r in ranges for wish in r.wishes):
        yield Notice("CLIPPED", f"{engine.name} takes no lifetimes: what should end stays until its memory is needed")


def _as_json(span: _Range, size: int) -> dict[str, Any]:
    row: dict[str, Any] = {"start": span.first * size, "end": (span.last + 1) * size, "level": span.level}
    if span.lifetime is not None:
        row["duration"] = span.lifetime
    return row


def _nothing(why: Notice, state: str, requested: int) -> Lowered:
    answer = {"status": "ignored", "requested": requested, "granted": 0, "reason": why.code}
    return Lowered({"directives": []}, (why,), state, answer)
