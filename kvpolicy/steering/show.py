"""What stands in the pool and who claims it, as rows: for `kvp replay`, the service and people. Renews nothing."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from math import inf
from typing import Any

from kvpolicy.claims.ledger import Ledger
from kvpolicy.claims.line import Line
from kvpolicy.claims.strength import DEFAULT, PROTECTED, priority_of
from kvpolicy.pool import Pool
from kvpolicy.request import Owner

TOP_BAND = 100


def block_row(pool: Pool, ledger: Ledger, hashes: Sequence[Hashable], index: int, now: float) -> dict[str, Any]:
    """Block `index` of the prompt with these hashes: rank, protection, tier, owners, one row per owner and span."""
    view = pool.block(hashes, index)
    if view is None:
        return {
            "rank": None,
            "protected": False,
            "dropped": False,
            "tier": None,
            "evictable": False,
            "state": "absent",
            "owners": 0,
            "claims": [],
        }
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    for line in dict.fromkeys(mark.claim for mark in view.marks):
        if isinstance(line, Line):
            for key, row in claim_rows(ledger, line, index, now):
                rows[key] = row
    return {
        "rank": priority_of(view.rank),
        "protected": view.protected,
        "dropped": view.dropped,
        "tier": view.tier,
        "evictable": view.held == 0,
        "state": "resident",
        "owners": len({key[0] for key in rows}),
        "claims": list(rows.values()),
    }


def claim_rows(ledger: Ledger, line: Line, index: int, now: float) -> list[tuple[tuple[Any, ...], dict[str, Any]]]:
    """The claims of a line that cover its block `index`, each under its key."""
    found = []
    for length, strength, claim in line.living(ledger.ranks, now):
        if length <= index:
            continue
        protected = strength >= PROTECTED and index < min(line.granted, claim.granted, claim.kept)
        row = {
            "owner": owner_row(line.holder.owner),
            "kind": None if line.manual else claim.kind,
            "end": claim.end,
            "blocks": length,
            "priority": priority_of(strength) if strength >= 0 else claim.priority,
            "protected": protected,
            "dropped": claim.dropped,
            "protected_until": _time(claim.protected_until) if protected else None,
            "expires": expires(ledger, line, length, claim.ends_at, claim.priority, claim.ttl, claim.expires, now),
            "for": claim.lifetime,
            "implicit": claim.implicit,
        }
        found.append(((line.holder.key, claim.kind, claim.end, line.manual and claim.proof), row))
    return found


def expires(
    ledger: Ledger, line: Line, length: int, ends_at: Any, priority: int, ttl: float | None, fixed: float, now: float
) -> float | None:
    """When a claim ends by its lifetime; None without one, or while a request holds its last block."""
    if priority <= DEFAULT or (ttl is None and fixed == inf):
        return None
    released = ledger.ranks.last_release(line.marks[0], length) if line.marks else None
    end = fixed if released is None else ends_at(released)
    return None if end == inf else float(end)


def owner_row(owner: Owner) -> dict[str, Any]:
    """The fields of an owner that it has."""
    fields = ("tenant", "session", "run", "agent", "branch")
    return {name: getattr(owner, name) for name in fields if getattr(owner, name) is not None}


def counts(pool: Pool, ledger: Ledger, now: float) -> dict[str, int]:
    """Owners with claims, claims (one per owner, span and prompt), protected blocks."""
    claims = owners = 0
    for holder in ledger.holders.values():
        own = sum(len(line.living(ledger.ranks, now)) for line in holder.lines())
        claims += own
        owners += own > 0
    return {"owners": owners, "claims": claims, "protected": pool.protected_blocks}


def _time(value: float) -> float | str:
    return "never" if value == inf else value
