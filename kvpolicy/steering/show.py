"""What stands in the pool and who claims it, as rows: for `kvp replay`, the service and people. Renews nothing."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from math import inf
from typing import Any, NamedTuple

from kvpolicy.claims.ledger import Ledger
from kvpolicy.claims.line import Line
from kvpolicy.claims.strength import DEFAULT, PROTECTED, priority_of
from kvpolicy.pool import Pool
from kvpolicy.request import Owner

TOP_BAND = 100
_ABSENT: dict[str, Any] = {
    "rank": None,
    "protected": False,
    "dropped": False,
    "tier": None,
    "evictable": False,
    "state": "absent",
    "owners": 0,
}


def block_rows(
    pool: Pool, ledger: Ledger, hashes: Sequence[Hashable], indices: Sequence[int], now: float
) -> list[dict[str, Any]]:
    """Blocks of the prompt with these hashes, their places rising: rank, protection, tier, owners, one row per owner
    and span. What holds for a run of blocks, and for a line, is looked at once."""
    rows: list[dict[str, Any]] = []
    claims: dict[Line, list[_Claimed]] = {}
    stretches = iter(pool.stretches(hashes, max(indices, default=-1) + 1))
    end, view = 0, None
    covering: list[Line] = []
    for index in indices:
        while index >= end and (stretch := next(stretches, None)) is not None:
            end, view = stretch
            lines = dict.fromkeys(mark.claim for mark in view.marks)
            covering = [line for line in lines if isinstance(line, Line)]
        if view is None or index >= end:
            rows.append(dict(_ABSENT, claims=[]))
            continue
        found: dict[tuple[Any, ...], dict[str, Any]] = {}
        for line in covering:
            if line not in claims:
                claims[line] = _claimed(ledger, line, now)
            found.update((each.key, each.row(index)) for each in claims[line] if index < each.length)
        rows.append(
            {
                "rank": priority_of(view.rank),
                "protected": view.protected,
                "dropped": view.dropped,
                "tier": view.tier,
                "evictable": view.held == 0,
                "state": view.state,
                "owners": len({key[0] for key in found}),
                "claims": list(found.values()),
            }
        )
    return rows


class _Claimed(NamedTuple):
    """A claim of a line. key: what it is known by. length: blocks it covers; fits: those its protection reaches.
    fields: its row, for a block that is protected by it."""

    key: tuple[Any, ...]
    length: int
    fits: float
    fields: dict[str, Any]

    def row(self, index: int) -> dict[str, Any]:
        """As it stands for block `index`."""
        if index < self.fits:
            return dict(self.fields)
        return {**self.fields, "protected": False, "protected_until": None}


def _claimed(ledger: Ledger, line: Line, now: float) -> list[_Claimed]:
    found = []
    for length, strength, claim in line.living(ledger.ranks, now):
        row = {
            "owner": owner_row(line.holder.owner),
            "kind": None if line.manual else claim.kind,
            "end": claim.end,
            "blocks": length,
            "priority": priority_of(strength) if strength >= 0 else claim.priority,
            "protected": True,
            "dropped": claim.dropped,
            "protected_until": _time(claim.protected_until),
            "expires": expires(ledger, line, length, claim.ends_at, claim.priority, claim.ttl, claim.expires, now),
            "for": claim.lifetime,
            "implicit": claim.implicit,
        }
        fits = min(line.granted, claim.granted, claim.kept) if strength >= PROTECTED else 0
        key = (line.holder.key, claim.kind, claim.end, line.manual and claim.proof)
        found.append(_Claimed(key, length, fits, row))
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
