"""A policy's quotas as the ledger's limits: how many blocks may be protected, and for which claims together.

Quotas on a tier itself are not made here: the pool would have to rank their excess.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any

from kvpolicy import words
from kvpolicy.claims.budget import Limit
from kvpolicy.claims.claim import Claim
from kvpolicy.claims.line import Line
from kvpolicy.policy.compiled import Quota
from kvpolicy.units import BYTES, PERCENT, TOKENS


def limits(
    quotas: Iterable[Quota], capacity: int, block_size: int, block_bytes: int | None = None
) -> tuple[Limit, ...]:
    """The limits of `hold` quotas on some spans. capacity: blocks of the first tier; block_size: tokens; block_bytes:
    bytes of one block, without which a quota in bytes cannot be kept."""
    made = []
    for quota in quotas:
        blocks = None if _of_everything(quota) else _blocks(quota, capacity, block_size, block_bytes)
        if blocks is not None:
            made.append(Limit(blocks, _group(quota), quota.name))
    return tuple(made)


def whole(quotas: Iterable[Quota], capacity: int, block_size: int, block_bytes: int | None = None) -> int | None:
    """The smallest `hold` quota on everything together, in blocks: it takes the place of the default budget, in which
    blocks that several claim count once. None where no rule states one."""
    stated = (_blocks(quota, capacity, block_size, block_bytes) for quota in quotas if _of_everything(quota))
    return min((blocks for blocks in stated if blocks is not None), default=None)


def _of_everything(quota: Quota) -> bool:
    return quota.per is None and any(m.kind == words.ANY_KIND and not m.conditions for m in quota.matches)


def _blocks(quota: Quota, capacity: int, block_size: int, block_bytes: int | None) -> int | None:
    if quota.property != "hold" or quota.side != "most":
        return None
    if quota.unit == PERCENT:
        return int(quota.amount * capacity + 1e-9)  # 29 % of 100 blocks are 29
    if quota.unit == TOKENS:
        return int(quota.amount) // block_size
    if quota.unit == BYTES and block_bytes:
        return int(quota.amount) // block_bytes
    return None


def _group(quota: Quota) -> Callable[[Line, Claim], Hashable | None]:
    def group(line: Line, claim: Claim) -> Hashable | None:
        if not quota.matches_span(claim.kind, attributes_of(line, claim)):
            return None
        owner = line.holder.owner
        if quota.per == "tenant":
            return owner.tenant
        if quota.per == "session":
            return (owner.tenant, owner.session)
        return "all"

    return group


def attributes_of(line: Line, claim: Claim) -> dict[str, Any]:
    """The attributes of a claim's span, as selectors read them."""
    owner, request = line.holder.owner, line.request
    found: dict[str, Any] = {} if request is None else dict(request.attributes)
    if request is not None and request.model is not None:
        found["model"] = request.model
    for span in () if request is None else request.spans:
        if span.kind == claim.kind and span.end == claim.end:
            found.update(span.attributes)
            found["tokens"] = (request.tokens if span.end is None else span.end) - span.start if request else 0
    for name in ("tenant", "session", "agent", "branch"):
        value = getattr(owner, name)
        if value is not None:
            found[name] = value
    if request is not None and "plan" in request.attributes:
        found["plan"] = request.attributes["plan"]
    return found
