"""A policy's quotas as the ledger keeps them: how many blocks may be protected, or may lie in a tier without being
ranked lowest, and for which claims together.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kvpolicy import words
from kvpolicy.claims.budget import Limit
from kvpolicy.claims.claim import Claim
from kvpolicy.claims.line import Line
from kvpolicy.claims.quotas import Share
from kvpolicy.policy.compiled import Quota
from kvpolicy.units import BYTES, PERCENT, TOKENS


@dataclass(frozen=True, slots=True)
class Sizes:
    """What quotas are measured in. capacities: blocks of each tier. block_size: tokens. block_bytes: bytes of one
    block, without which a quota in bytes cannot be kept."""

    capacities: Mapping[str, int]
    block_size: int
    block_bytes: float | None = None

    def blocks(self, quota: Quota) -> int | None:
        """How many blocks a quota allows; None where that cannot be told, or it is a lower bound."""
        if quota.side != "most":
            return None
        if quota.unit == PERCENT:
            of = self.capacities.get(quota.of)
            return None if of is None else int(quota.amount * of + 1e-9)  # 29 % of 100 blocks are 29
        if quota.unit == TOKENS:
            return int(quota.amount) // self.block_size
        if quota.unit == BYTES and self.block_bytes:
            return int(quota.amount / self.block_bytes)
        return None


def limits(quotas: Iterable[Quota], sizes: Sizes) -> tuple[Limit, ...]:
    """The limits of `hold` quotas on some spans."""
    made = []
    for quota in quotas:
        blocks = None if quota.property != "hold" or _of_everything(quota) else sizes.blocks(quota)
        if blocks is not None:
            made.append(Limit(blocks, _group(quota), quota.name))
    return tuple(made)


def whole(quotas: Iterable[Quota], sizes: Sizes) -> int | None:
    """The smallest `hold` quota on everything together, in blocks: it takes the place of the default budget, in which
    blocks that several claim count once. None where no rule states one."""
    stated = (sizes.blocks(quota) for quota in quotas if quota.property == "hold" and _of_everything(quota))
    return min((blocks for blocks in stated if blocks is not None), default=None)


def shares(quotas: Iterable[Quota], sizes: Sizes) -> tuple[Share, ...]:
    """The quotas on a tier itself, of the tiers that there are."""
    made = []
    for quota in quotas:
        blocks = sizes.blocks(quota) if quota.property in sizes.capacities else None
        if blocks is not None:
            made.append(Share(quota.property, blocks, _group(quota), quota.name))
    return tuple(made)


def _of_everything(quota: Quota) -> bool:
    return quota.per is None and any(m.kind == words.ANY_KIND and not m.conditions for m in quota.matches)


def _group(quota: Quota) -> Callable[[Line, Claim], Hashable | None]:
    plain = {match.kind for match in quota.matches if not match.conditions}
    everything = words.ANY_KIND in plain

    def group(line: Line, claim: Claim) -> Hashable | None:
        if not (everything or claim.kind in plain or quota.matches_span(claim.kind, attributes_of(line, claim))):
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
