"""Steps by call: events, claims and their release, evictions, looks at blocks, and what an operator asks for."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from kvpolicy import words
from kvpolicy.claims.answers import Answer
from kvpolicy.directive import DROP, HOLD, NORMAL, PIN, Retention, Ttl
from kvpolicy.faults import InputFault
from kvpolicy.replay import fields
from kvpolicy.replay.fields import Step
from kvpolicy.replay.names import Name
from kvpolicy.replay.stage import Row, Stage, hints
from kvpolicy.steering.calls import Wish
from kvpolicy.units import UnitFault, parse_duration
from kvpolicy.workflow.events import event_from_row

_NOTHING: Row = {
    "rank": None,
    "protected": False,
    "dropped": False,
    "tier": None,
    "evictable": False,
    "owners": 0,
    "claims": [],
}


def event(stage: Stage, step: Step, now: float) -> Row:
    """`event`: `{"event": "tool_call", "tool": "grep", …}` with the owner fields it states. resident, missing: blocks
    of the newest request of every owner it addresses."""
    fields.only(step, "event")
    row = fields.mapping(step, "event")
    told: list[Answer]
    try:
        happened = event_from_row(row, now)
        if happened.at > now:
            raise InputFault(f"the event is of {happened.at:g} s, which has not come yet")
        told = stage.steering.event(happened, now)
        if happened.name == "cancel":
            stage.reap()
    except InputFault as fault:
        stage.steering.advance(now)
        told = [Answer("rejected", reason=str(fault))]
    stage.names.heed()
    found = dict.fromkeys(block for prompt in stage.prompts_of(row) for block in prompt)
    return {"hints": hints(told), **_where(stage, [(stage.names.name(block), block) for block in found])}


def claim(stage: Stage, step: Step, now: float) -> Row:
    """`owner`, `blocks` (each stands for the prompt up to it), `priority`, `ttl`, `hold` or `retention`, `for`,
    `max_age`."""
    fields.only(step, "owner", "blocks", "priority", "ttl", "hold", "retention", "for", "max_age")
    owner, blocks = fields.owner(step), fields.names(step, "blocks")
    named = [(name, stage.names.find(name)) for name in blocks]
    stage.steering.advance(now)
    try:
        wish = _wish(step)
    except UnitFault as fault:
        refused = Answer("rejected", len(blocks), 0, str(fault))
        return {"hints": hints([refused]), **_where(stage, named)}
    told: list[Answer] = []
    for path in stage.names.ends(block for _, block in named if block is not None):
        told += stage.steering.claim(owner, path, now, wish)
    if not told:
        told.append(Answer("unknown", len(blocks), 0, "none of the blocks is known" if blocks else "no blocks"))
    return {"hints": hints(told), **_where(stage, named)}


def release(stage: Stage, step: Step, now: float) -> Row:
    """`owner`, and `blocks` where only the claims that end at one of them are meant. Doing it again does nothing."""
    fields.only(step, "owner", "blocks")
    owner = fields.owner(step)
    if step.get("blocks") is None:
        return {"hints": hints(stage.steering.release(owner, now)), "resident": [], "missing": []}
    named = [(name, stage.names.find(name)) for name in fields.names(step, "blocks")]
    told = stage.steering.release(owner, now, [block for _, block in named if block is not None])
    return {"hints": hints(told), **_where(stage, named)}


def evict(stage: Stage, step: Step, now: float) -> Row:
    """`count` blocks leave the GPU. → `evicted`, first lost first."""
    fields.only(step, "count")
    lost = stage.steering.evict(min(fields.count(step, "count"), stage.pool.capacity), now)
    shown = stage.names.shown(lost)
    stage.names.heed()
    return {"evicted": shown}


def show(stage: Stage, step: Step, now: float) -> Row:
    """`blocks` → one row each. Looking renews nothing."""
    fields.only(step, "blocks")
    blocks = fields.names(step, "blocks")
    stage.steering.advance(now)
    stage.names.heed()
    named = [(name, stage.names.find(name)) for name in blocks]
    found = _shown(stage, {block for _, block in named if block is not None and stage.names.resident(block)})
    return {"blocks": [{"block": name, **(found.get(block) or _nothing(stage, name, block))} for name, block in named]}


def release_all(stage: Stage, step: Step, now: float) -> Row:
    """All protection is taken back at once; running requests are not hurt."""
    fields.only(step)
    count = stage.steering.release_all(now)
    return {"released": count, "hints": hints([Answer("accepted", count, count)])}


def split(stage: Stage, step: Step, now: float) -> Row:
    """The engine splits the node that holds `block`, before and behind it; no rank changes by that."""
    fields.only(step, "block")
    name = fields.names({"do": "split", "block": [step.get("block")]}, "block")[0]
    block = stage.names.find(name)
    stage.steering.advance(now)
    if block is None or not stage.names.resident(block):
        return {"status": "unknown", "hints": hints([Answer("unknown", 1, 0, "the block is not resident")])}
    path = stage.names.path(block)
    for length in (len(path) - 1, len(path)):  # a mark without weight ends a node where it stands
        stage.pool.unmark(stage.pool.mark(path, length, None, None, now), now)
    return {"status": "accepted", "hints": hints([Answer("accepted", 1, 1)])}


def stats(stage: Stage, step: Step, now: float) -> Row:
    """Owners with claims, claims, protected blocks, requests remembered, the share of blocks in the top band; the state
    of workers."""
    fields.only(step)
    stage.steering.advance(now)
    found = {**stage.steering.stats(), "resident": stage.pool.gpu.cached}
    workers = stage.residency.rows(now)
    return found | {"workers": workers} if workers else found


def advance(stage: Stage, step: Step, now: float) -> Row:
    """Only the clock moves."""
    fields.only(step)
    stage.steering.advance(now)
    stage.pool.settle(now)
    stage.names.heed()
    return {}


# --- inside -----------------------------------------------------------------------------------------------------------


def _where(stage: Stage, named: list[tuple[Name, Hashable | None]]) -> Row:
    resident: list[Name] = []
    missing: list[Name] = []
    for name, block in named:
        (resident if block is not None and stage.names.resident(block) else missing).append(name)
    return {"resident": resident, "missing": missing}


def _shown(stage: Stage, blocks: set[Hashable]) -> dict[Hashable | None, Row]:
    """Resident blocks as rows; each prompt that they lie on is walked once."""
    found: dict[Hashable | None, Row] = {}
    for path in reversed(stage.names.ends(blocks)):  # the longest first
        wanted = [index for index, block in enumerate(path) if block in blocks and block not in found]
        found.update(zip([path[index] for index in wanted], stage.steering.show_all(path, wanted), strict=True))
    return found


def _nothing(stage: Stage, name: Name, block: Hashable | None) -> Row:
    if block is None:
        state = "partial" if stage.names.partial(name, stage.pool.block_size) else "unknown"
    else:
        state = "computing" if stage.names.computing(block) else "absent"
    return {**_NOTHING, "state": state}


def _wish(step: Step) -> Wish:
    """What a claim asks for. Raises UnitFault for a value that cannot be meant."""
    priority = step.get("priority")
    if priority is not None:
        low, high = words.PRIORITY_RANGE
        if isinstance(priority, bool) or not isinstance(priority, int) or not low <= priority <= high:
            raise UnitFault(f"priority: a whole number from {low} to {high} is needed, not {priority!r}")
    lifetime = step.get("for") or words.DEFAULT_LIFETIME
    if lifetime not in words.LIFETIMES:
        raise UnitFault(f"for: {lifetime!r} is no lifetime; they are {', '.join(words.LIFETIMES)}")
    max_age = step.get("max_age")
    return Wish(
        priority,
        _ttl(step.get("ttl")),
        _retention(step),
        lifetime,
        None if max_age is None else _duration(max_age, "max_age"),
    )


def _ttl(value: object) -> Ttl | None:
    if value is None:
        return None
    fixed = isinstance(value, str) and value.endswith(" fixed")
    return Ttl(_duration(value.removesuffix(" fixed") if isinstance(value, str) else value, "ttl"), fixed)


def _retention(step: Step) -> Retention:
    """`hold: "60s"`, or `retention: "pin" | "drop" | "normal" | "hold 60s" | "hold until EVENT [at most 2h]"`."""
    hold: Any = step.get("hold")
    stated: Any = step.get("retention")
    if hold is not None:
        if stated is not None:
            raise UnitFault("hold and retention say the same; one of them is enough")
        return Retention(HOLD, _duration(hold, "hold"))
    if stated is None or stated in (NORMAL, PIN, DROP):
        return Retention(stated or NORMAL)
    if isinstance(stated, str) and stated.startswith("hold until "):
        until, _, bound = stated.removeprefix("hold until ").partition(" at most ")
        if until not in words.EVENTS:
            raise UnitFault(f"retention: '{until}' is no event")
        return Retention(HOLD, until=until, at_most=_duration(bound, "retention") if bound else None)
    if isinstance(stated, str) and stated.startswith("hold "):
        return Retention(HOLD, _duration(stated.removeprefix("hold "), "retention"))
    raise UnitFault(f"retention: {stated!r} is none of normal, pin, drop, 'hold DURATION', 'hold until EVENT'")


def _duration(value: object, key: str) -> float:
    if not isinstance(value, str):
        raise UnitFault(f"{key}: a duration with its unit is needed, such as '60s', not {value!r}")
    try:
        return min(parse_duration(value), words.LONGEST_DURATION_S)
    except UnitFault as fault:
        raise UnitFault(f"{key}: {fault}") from None


__all__ = ["advance", "claim", "event", "evict", "release", "release_all", "show", "split", "stats"]
