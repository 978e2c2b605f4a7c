"""`plan`: every span of a request is shown to the policy, and its verdicts become directives.

Called for every request and for every re-reading of one, so it is written tight: its work grows with the spans, not
with tokens or blocks. Same policy, request and state: same plan, whatever the order of spans or attributes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import Any, Protocol

from kvpolicy import words
from kvpolicy.blocks import lay_out
from kvpolicy.directive import Directive, Plan, Verdict
from kvpolicy.faults import Notice
from kvpolicy.plan.alike import is_of_the_owner
from kvpolicy.plan.clocks import Common, clock_values, next_end
from kvpolicy.plan.notices import clipped, narrowest_share, position_unknown, shorter_than_block, unplaced_from
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


@dataclass(slots=True)
class _Answer:
    """What the policy says of a span, and of every span like it in this request.

    values: None where no rule touches it. lapse: the first time at which it may change, inf for none.
    strained: verdicts that were brought into their range.
    """

    values: Common | None
    share: str
    lapse: float
    strained: tuple[Verdict, ...] = ()


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
    # A state that tells spans apart by more than their owner is asked for each of them.
    menu_of = None if getattr(state, "per_span", False) else getattr(policy, "menu", None)
    answers: dict[object, _Answer] = {}
    directives: list[Directive] = []
    notices: list[Notice] = []
    shares: dict[str, int] = {}
    valid_until = inf
    for index in layout.order:
        span = layout.spans[index]
        kind, start, end = span.kind, span.start, span.end
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
        subject = Subject(kind, attributes, owner, index)
        menu = None if menu_of is None else menu_of(subject)
        answer = None if menu is None else answers.get(menu)
        if answer is None:
            answer = _ask(policy, subject, state, now, idle_since)
            if menu is not None and is_of_the_owner(menu):
                answers[menu] = answer
            valid_until = min(valid_until, answer.lapse)
        shares[answer.share] = index
        if answer.strained:
            notices += [clipped(kind, index, verdict) for verdict in answer.strained]
        if answer.values is None or (unplaced is not None and (end is None or end > unplaced)):
            continue  # no rule, or no known place; what it says about sharing counts all the same
        directives.append(Directive(index, kind, start, end, *answer.values))
    share, narrowed = narrowest_share(shares)
    if narrowed is not None:
        notices.append(narrowed)
    if unplaced is not None:
        notices.append(position_unknown(layout, unplaced))
    # INVARIANT: nothing but policy, request, state and now goes into a plan (law 9: same state, same plan).
    return Plan(request.id, now, tuple(directives), share, None if valid_until == inf else valid_until, tuple(notices))


def _ask(policy: Resolver, subject: Subject, state: State, now: float, idle_since: float | None) -> _Answer:
    """Ask the policy about one span, and start the clocks."""
    verdicts = policy.resolve(subject, state)
    lapse = next((step for step in policy.steps(subject, state) if step > now), inf)
    if not verdicts:
        return _Answer(None, words.DEFAULT_SHARE, lapse)
    values = clock_values(subject.kind, verdicts, now)
    strained = tuple(v for v in verdicts.values() if v.limited_by is not None or v.notice is not None)
    return _Answer(values, values.share, min(lapse, next_end(values, now, idle_since)), strained)


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
    merged.update((name, value) for name, value in told(owner, branch).items() if value is not None)
    merged.update(stated)
    return merged


def _idle_since(state: State, owner: Owner) -> float | None:
    """When the owner's last use ended, where the state knows it; ladders step from then."""
    ask = getattr(state, "idle_since", None)
    since = None if ask is None else ask(owner)
    return since if isinstance(since, int | float) else None
