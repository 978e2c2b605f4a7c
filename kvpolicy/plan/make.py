"""`plan`: every span of a request is shown to the policy, and its verdicts become directives.

Called for every request and for every re-reading of one, so it is written tight: its work grows with the spans, not
with tokens or blocks. Same policy, request and state: same plan, whatever the order of spans or attributes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import inf
from typing import Any, Protocol

from kvpolicy import words
from kvpolicy.blocks import lay_out
from kvpolicy.directive import Directive, Plan, Verdict
from kvpolicy.faults import Notice
from kvpolicy.plan.clocks import next_end, start_clocks
from kvpolicy.plan.notices import limited, narrowest_share, position_unknown, shorter_than_block, unplaced_from
from kvpolicy.policy.model import State, Subject
from kvpolicy.request import Owner, Request


class Resolver(Protocol):
    """What a plan asks of a compiled policy."""

    def resolve(self, subject: Subject, state: State) -> Mapping[str, Verdict]:
        """The verdicts of the properties that somebody sets for this span, now."""
        ...

    def steps(self, subject: Subject, state: State) -> tuple[float, ...]:
        """Times, soonest first, at which a verdict that reads the clock may change."""
        ...


def plan(  # noqa: PLR0912 - the hot loop stays in one piece
    policy: Resolver | None, request: Request, state: State, now: float
) -> Plan:
    """The directives of one request at `now` (seconds), in prompt order.

    `Directive.span` is the span's place among the stated ones in prompt order; the stretches that no span covers
    follow as turns (`blocks.lay_out`). Without a policy the plan is empty. Raises InputFault for spans that overlap
    or leave the prompt.
    """
    if policy is None:
        return Plan(request.id, now, (), words.DEFAULT_SHARE, None)
    layout = lay_out(request)
    owner, size, given = request.owner, request.block_size, layout.given
    facts = _facts(request, state)
    unplaced = unplaced_from(request.extra) if request.extra else None
    idle_since = _idle_since(state, owner)
    directives: list[Directive] = []
    notices: list[Notice] = []
    shares: dict[str, int] = {}
    valid_until = inf
    for index in layout.order:
        span = layout.spans[index]
        start, end = span.start, span.end
        if end is not None:
            if index < given and -(-start // size) >= end // size:
                notices.append(shorter_than_block(layout, index))
            if start == end:
                continue  # nothing to keep
            attributes = {**facts, "tokens": end - start}
        else:
            attributes = facts
        if span.attributes:
            attributes = _with_own(attributes, span.attributes, owner, state)
        subject = Subject(span.kind, attributes, owner, index)
        verdicts = policy.resolve(subject, state)
        for soonest in policy.steps(subject, state):
            if soonest > now:
                valid_until = min(valid_until, soonest)
                break
        if not verdicts:
            shares.setdefault(words.DEFAULT_SHARE, index)
            continue
        directive = start_clocks(index, span, verdicts, now)
        shares.setdefault(directive.share, index)
        for verdict in verdicts.values():
            if verdict.limited_by is not None:
                notices.append(limited(span.kind, index, verdict))
        if unplaced is not None and (end is None or end > unplaced):
            continue  # its place is unknown; what it says about sharing still counts
        directives.append(directive)
        lapse = next_end(directive, now, idle_since)
        valid_until = min(valid_until, lapse)
    share, narrowed = narrowest_share(shares)
    if narrowed is not None:
        notices.append(narrowed)
    if unplaced is not None:
        notices.append(position_unknown(layout, unplaced))
    # INVARIANT: nothing but policy, request, state and now goes into a plan (law 9: same state, same plan).
    return Plan(request.id, now, tuple(directives), share, None if valid_until == inf else valid_until, tuple(notices))


def _facts(request: Request, state: State) -> dict[str, Any]:
    """The attributes that all spans of a request have: its own, its owner's, and what events said of the owner."""
    facts: dict[str, Any] = {name: value for name, value in request.attributes.items() if value is not None}
    owner = request.owner
    if request.last_step:
        facts["last_step"] = True
    if request.model is not None:
        facts["model"] = request.model
    facts["tenant"] = owner.tenant  # comes from authentication: nothing the client states replaces it
    if owner.session is not None:
        facts["session"] = owner.session
    if owner.agent is not None:
        facts["agent"] = owner.agent
    if owner.branch is not None:
        facts["branch"] = owner.branch
    told = getattr(state, "attributes", None)
    if told is not None:
        facts.update((name, value) for name, value in told(owner).items() if value is not None)
    return facts


def _with_own(facts: dict[str, Any], own: Mapping[str, object], owner: Owner, state: State) -> dict[str, Any]:
    """The facts of a span with attributes of its own, which replace the request's, except what comes from
    authentication. A span labelled with another branch has that branch's rank, score and status."""
    stated = {name: value for name, value in own.items() if value is not None and name not in words.TRUSTED_ATTRIBUTES}
    branch = stated.get("branch")
    told = getattr(state, "attributes", None)
    if told is None or not isinstance(branch, str) or branch == owner.branch:
        return {**facts, **stated}
    merged = {name: value for name, value in facts.items() if name not in ("rank", "score", "status")}
    merged.update((name, value) for name, value in told(replace(owner, branch=branch)).items() if value is not None)
    merged.update(stated)
    return merged


def _idle_since(state: State, owner: Owner) -> float | None:
    """When the owner's last use ended, where the state knows it; ladders step from then."""
    ask = getattr(state, "idle_since", None)
    since = None if ask is None else ask(owner)
    return since if isinstance(since, int | float) else None
