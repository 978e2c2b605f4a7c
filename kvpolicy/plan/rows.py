"""A plan as `kvp plan` shows it: directives, blocks, spans, in the keys of the command's JSON.

Made on demand; nothing here runs while requests are served.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf
from typing import Any

from kvpolicy import words
from kvpolicy.blocks import Layout, lay_out
from kvpolicy.directive import Directive, Plan, Ttl
from kvpolicy.plan.drops import Stand, stands
from kvpolicy.plan.notices import unplaced_from
from kvpolicy.request import Request


@dataclass(frozen=True, slots=True)
class BlockRow:
    """One block and how it ranks from this request's claims alone.

    held_for: the span whose claim gives the rank; None for the partial last block, which no claim covers yet, and
    for blocks whose place is unknown. stand: that claim.
    """

    index: int
    full: bool
    span: int
    straddles: bool
    rank: int
    protected: bool
    dropped: bool
    held_for: int | None
    stand: Stand | None = None

    def as_json(self) -> dict[str, Any]:
        """A row of `blocks`."""
        return {
            "index": self.index,
            "full": self.full,
            "span": self.span,
            "straddles": self.straddles,
            "rank": self.rank,
            "protected": self.protected,
            "dropped": self.dropped,
            "held_for": self.held_for,
        }


def block_rows(plan: Plan, layout: Layout, unplaced: int | None = None) -> tuple[BlockRow, ...]:
    """Every block of the prompt with the strongest claim that covers it.

    INVARIANT: along the prompt the rank never increases (law 1), because a claim covers everything before its end.
    """
    strongest = _strongest(stands(plan, layout, unplaced))
    rows = []
    claim = next(strongest, None)
    for block in layout.blocks():
        while claim is not None and claim.length <= block.index:
            claim = next(strongest, None)
        if claim is None or not block.full:
            rank, protected, dropped, held_for = words.DEFAULT_PRIORITY, False, False, None
        else:
            rank, protected, dropped, held_for = claim.rank, claim.protected, claim.dropped, claim.span
        holder = claim if block.full else None
        rows.append(
            BlockRow(block.index, block.full, block.span, block.straddles, rank, protected, dropped, held_for, holder)
        )
    return tuple(rows)


def as_json(plan: Plan, request: Request) -> dict[str, Any]:
    """The document of `kvp plan --format json`, without `engine`."""
    layout = lay_out(request)
    unplaced = unplaced_from(request.extra)
    taken = {stand.span: stand.taken_by for stand in stands(plan, layout, unplaced)}
    return {
        "request": plan.request,
        "at": plan.at,
        "directives": [directive_row(directive) for directive in plan.directives],
        "blocks": [row.as_json() for row in block_rows(plan, layout, unplaced)],
        "spans": [_span_row(layout, span, taken.get(span)) for span in range(len(layout.spans))],
        "share": plan.share,
        "valid_until": plan.valid_until,
        "notices": [notice.as_json() for notice in plan.notices],
    }


def directive_row(directive: Directive) -> dict[str, Any]:
    """A row of `directives`: times as numbers or "never", durations in the language's notation."""
    ttl = None if directive.ttl is None else str(Ttl(directive.ttl, directive.ttl_fixed))
    tier = directive.tier or ()
    return {
        "span": directive.span,
        "kind": directive.kind,
        "start": directive.start,
        "end": directive.end,
        "priority": directive.priority,
        "retention": str(directive.retention),
        "protected_until": _time(directive.protected_until),
        "hold_after_release_s": directive.hold_after_release,
        "expires": _time(directive.expires),
        "ttl": ttl,
        "for": directive.lifetime,
        "tier": [{"tier": rung.tier, "after_s": rung.after_s} for rung in tier] or [{"tier": "gpu", "after_s": 0}],
        "prefetch": directive.prefetch,
        "admit": directive.admit,
        "replicas": directive.replicas,
        "place": directive.place,
        "share": directive.share,
        "rules": dict(directive.rules),
    }


def _strongest(claims: tuple[Stand, ...]) -> Iterator[Stand]:
    """Of the claims in prompt order, those that are strongest for some block: each weaker than the one before.

    Of equal claims the one that ends first is named, as long as it reaches.
    """
    kept: list[Stand] = []
    for claim in reversed(claims):
        if kept and kept[-1].strength <= claim.strength and kept[-1].length == claim.length:
            kept.pop()  # same end: the stronger one counts alone
        if not kept or claim.strength >= kept[-1].strength:
            kept.append(claim)
    return reversed(kept)


def _span_row(layout: Layout, span: int, taken_by: int | None) -> dict[str, Any]:
    stated = layout.spans[span]
    row: dict[str, Any] = {
        "kind": stated.kind,
        "start": stated.start,
        "end": stated.end,
        "full_blocks": len(layout.inside(span)),
        "owned_blocks": len(layout.owned(span)),
    }
    if span >= layout.given:
        row["implicit"] = True
    if taken_by is not None:
        row["dropped_with"] = taken_by
    return row


def _time(value: float | None) -> float | str | None:
    return "never" if value == inf else value
