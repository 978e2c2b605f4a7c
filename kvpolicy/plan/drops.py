"""How each span of one request stands, once its drops have spread: what the block rows and adapters show.

A dropped span will not be sent again, so nothing behind it can be reused either: the drop takes everything that this
request holds behind it. One that was reached through `any` leaves claims for agent, workflow and tenant alone.
"""

from __future__ import annotations

from dataclasses import dataclass

from kvpolicy.blocks import Layout
from kvpolicy.claims.strength import DEFAULT, DROPPED, protect
from kvpolicy.directive import DROP, Directive, Plan
from kvpolicy.plan.clocks import default_lifetime, is_protected

SHARED_LIFETIMES = frozenset({"agent", "workflow", "tenant"})


@dataclass(frozen=True, slots=True)
class Stand:
    """One span's claim as it counts. directive: None where no rule touched the span (an implicit claim, rank 35).

    length: full blocks of the prompt that it covers, from the first. rank: 0 where dropped, as nothing ranks lower.
    taken_by: the span whose drop takes this one along; None where it is dropped itself, or not at all.
    """

    span: int
    length: int
    rank: int
    protected: bool
    dropped: bool
    directive: Directive | None
    taken_by: int | None = None

    @property
    def strength(self) -> int:
        """What orders claims on one block: dropped, then by priority, then protected by priority."""
        return DROPPED if self.dropped else protect(self.rank) if self.protected else self.rank


def stands(plan: Plan, layout: Layout, unplaced: int | None = None) -> tuple[Stand, ...]:
    """Every span that holds tokens, in prompt order. unplaced: the token from which positions are unknown; spans that
    reach beyond it claim nothing."""
    directives = {d.span: d for d in plan.directives}
    rows: list[Stand] = []
    by_kind: int | None = None  # the first span dropped for its kind
    through_any: int | None = None  # the first span dropped at all
    for span in layout.order:
        stated = layout.spans[span]
        if stated.end == stated.start or (unplaced is not None and (stated.end is None or stated.end > unplaced)):
            continue
        directive = directives.get(span)
        lifetime = default_lifetime(stated.kind) if directive is None else directive.lifetime
        itself = directive is not None and directive.retention.mode == DROP
        if directive is not None and itself:
            by_kind = span if by_kind is None and directive.drop_by_kind else by_kind
            through_any = span if through_any is None else through_any
        cause = through_any if lifetime not in SHARED_LIFETIMES else by_kind
        dropped = cause is not None
        rank = 0 if dropped else DEFAULT if directive is None else directive.priority
        protected = not dropped and directive is not None and is_protected(directive, plan.at)
        rows.append(Stand(span, layout.prefix(span), rank, protected, dropped, directive, None if itself else cause))
    return tuple(rows)
