"""Steps about other engines: workers are configured, tell their KV events, and are looked up."""

from __future__ import annotations

from collections.abc import Hashable

from kvpolicy.claims.answers import Answer
from kvpolicy.faults import InputFault
from kvpolicy.replay import fields
from kvpolicy.replay.fields import Step
from kvpolicy.replay.stage import Row, Stage, hints
from kvpolicy.residency import BlockRow, event_from_row
from kvpolicy.residency.source import ABSENT, LIVE, UNKNOWN


def worker(stage: Stage, step: Step, now: float) -> Row:
    """`worker`, `incarnation`, `block_size`, `groups`, `reannounces`; `requests`: how many were sent to it."""
    fields.only(step, "worker", "incarnation", "block_size", "groups", "reannounces", "requests", "rank")
    name = fields.text(step, "worker")
    groups = fields.tokens(step, "groups") or []
    size = fields.count(step, "block_size") if step.get("block_size") is not None else None
    if size == 0:
        raise InputFault("worker: block_size: at least 1 is needed")
    stage.residency.worker(
        name,
        now,
        incarnation=_word(step, "incarnation"),
        block_size=size,
        groups=groups,
        reannounces=fields.flag(step, "reannounces"),
    )
    if step.get("requests") is not None:
        stage.residency.sent(name, now, fields.count(step, "requests"))
    return {"worker": stage.residency.row(name, fields.count(step, "rank", 0), now)}


def kv_event(stage: Stage, step: Step, now: float) -> Row:
    """`worker`, `rank`, `sequence`, `event`: one numbered event of one rank."""
    fields.only(step, "worker", "rank", "sequence", "event", "incarnation")
    name, rank = fields.text(step, "worker"), fields.count(step, "rank", 0)
    sequence = fields.count(step, "sequence")
    row = fields.mapping(step, "event")
    try:
        told = event_from_row(row)
    except InputFault as fault:
        told_row = hints([Answer("rejected", reason=str(fault))])
        return {"worker": stage.residency.row(name, rank, now), "status": "rejected", "hints": told_row}
    incarnation = _word(step, "incarnation") or _word(row, "incarnation")
    taken, notices = stage.residency.take(name, rank, sequence, told, now, incarnation)
    answer: Row = {
        "worker": stage.residency.row(name, rank, now),
        "status": taken.status,
        "hints": hints([Answer(taken.status, reason=taken.reason)]),
    }
    if notices:
        answer["notices"] = [notice.as_json() for notice in notices]
    return answer


def lookup(stage: Stage, step: Step, now: float) -> Row:
    """`worker`, `rank`, `blocks` or `tokens` → per block present, absent or unknown. Renews nothing."""
    fields.only(step, "worker", "rank", "blocks", "tokens")
    name, rank = fields.text(step, "worker"), fields.count(step, "rank", 0)
    tokens = fields.tokens(step, "tokens")
    residency = stage.residency
    if tokens is not None:
        live = residency.state(name, rank, now) == LIVE
        found: list[Hashable | None] = residency.blocks_of(name, rank, tokens)
        rows = []
        for block in found:
            if block is None:  # by tokens only what was told with its tokens is known
                rows.append(BlockRow(None, ABSENT if live else UNKNOWN))
            else:
                rows += residency.lookup(name, rank, [block], now)
    else:
        rows = residency.lookup(name, rank, fields.names(step, "blocks"), now)
    state = residency.row(name, rank, now)
    return {
        "worker": state,
        "blocks": [
            {"block": row.block, "state": row.state, "tiers": list(row.tiers), "copies": row.copies} for row in rows
        ],
        "last_sequence": state["last_sequence"],
        "replay_from": state["replay_from"],
    }


def _word(step: Step, key: str) -> str | None:
    """An incarnation: text, or a number as text."""
    value = step.get(key)
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return fields.maybe_text(step, key)
