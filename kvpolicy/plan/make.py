"""`plan`: every span of a request is shown to the policy, and its verdicts become directives.

Called for every request and for every re-reading of one, so it is written tight: the policy is asked once for each
group of spans that it cannot tell apart (`outline`), and full rows are made when somebody reads them (`directives`).
Same policy, request and state: same plan, whatever the order of spans or attributes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from math import inf
from typing import Protocol

from kvpolicy import words
from kvpolicy.blocks import Layout
from kvpolicy.directive import Plan, Verdict
from kvpolicy.faults import Notice
from kvpolicy.plan.alike import Groups
from kvpolicy.plan.answer import Answer, answer
from kvpolicy.plan.asking import Asking
from kvpolicy.plan.directives import Directives
from kvpolicy.plan.later import Later
from kvpolicy.plan.notices import clipped, position_unknown, short_spans, shorter_than_block
from kvpolicy.plan.outline import Outline
from kvpolicy.plan.said import Said
from kvpolicy.policy.model import State, Subject
from kvpolicy.policy.resolve import Menu
from kvpolicy.request import Owner, Request

_KEPT = 1024  # answers by agent, of one menu


class Resolver(Protocol):
    """What a plan asks of a compiled policy."""

    def resolve(self, subject: Subject, state: State) -> Mapping[str, Verdict]:
        """The verdicts of the properties that somebody sets for this span, now."""
        ...

    def steps(self, subject: Subject, state: State) -> tuple[float, ...]:
        """Times, soonest first, at which a verdict that reads the clock may change."""
        ...


def outline(policy: Resolver | None, request: Request, state: State, layout: Layout | None = None) -> Outline | None:
    """What the plans of a request have in common, to be handed to `plan` again and again. layout: that of the request,
    where it is laid out already. Raises InputFault for spans that overlap or leave the prompt."""
    return None if policy is None else Outline(policy, request, state, layout)


def plan(
    policy: Resolver | None,
    request: Request,
    state: State,
    now: float,
    drawn: Outline | None = None,
    pace: Callable[[], None] | None = None,
) -> Plan:
    """The directives of one request at `now` (seconds), in prompt order.

    `Directive.span` is the span's place among the stated ones in prompt order; the stretches that no span covers
    follow as turns (`blocks.lay_out`). Without a policy the plan is empty. drawn: an outline of this request; one that
    no longer fits is drawn anew. pace: called on the way; what it raises ends the planning. Raises InputFault for spans
    that overlap or leave the prompt.
    """
    if policy is None:
        return Plan(request.id, now, (), words.DEFAULT_SHARE, None)
    if drawn is None or not drawn.fits(policy, request, state):
        drawn = Outline(policy, request, state, None if drawn is None else drawn.layout)
    # INVARIANT: nothing but policy, request, state and now goes into a plan (law 9: same state, same plan).
    said = say(policy, drawn, state, now, pace)
    notices = Later(lambda: _notices(drawn, said))
    return Plan(request.id, now, Directives(said, drawn.layout.spans), said.share, said.valid_until, notices)


def say(policy: Resolver, drawn: Outline, state: State, now: float, pace: Callable[[], None] | None = None) -> Said:
    """What a plan says, without its rows; while nothing is open it may have been said of other requests before. drawn:
    one that fits."""
    owner, alike = drawn.request.owner, drawn.alike
    looks = getattr(state, "intervals_of", None)
    quiet = alike is not None and looks is not None and looks(owner) is None
    told = (owner.tenant, owner.agent, getattr(state, "hits_stamp", None)) if quiet else None
    before = None if alike is None else alike.said  # once: engines in other threads may share the policy
    if before is not None and before[0] == told:
        said: Said = before[1]
    else:
        said = Said(_ask(policy, drawn, state, now, pace), drawn.claimed, drawn.groups)
        if alike is not None and told is not None and _lasts(alike, owner, told[2]):
            alike.said = (told, said)
    drawn.answers = said.answers
    return said


def _lasts(alike: Groups, owner: Owner, stamp: object) -> bool:
    """Whether all groups would be answered the same again."""
    return all(_recall(menu, owner, life, stamp) for menu, life in zip(alike.menus, alike.lifetimes, strict=True))


def _ask(policy: Resolver, drawn: Outline, state: State, now: float, pace: Callable[[], None] | None) -> list[Answer]:
    """The policy's answer for each group."""
    owner = drawn.request.owner
    idle_since = partial(_idle_since, state, owner)
    stamp: object = getattr(state, "hits_stamp", None)
    asking = Asking(drawn, state, now)
    answers: list[Answer] = []
    for group, menu in enumerate(drawn.menus):
        if pace is not None:
            pace()
        still = menu is not None and (asking.quiet or not menu.intervals)
        kept = _recall(menu, owner, drawn.lifetimes[group], stamp) if still and menu is not None else None
        if kept is not None:
            answers.append(kept)
            continue
        if menu is None:
            subject = drawn.subject(group)
            verdicts: Mapping[str, Verdict] = policy.resolve(subject, state)
            step = next((at for at in policy.steps(subject, state) if at > now), inf)
        else:
            verdicts, step = asking.decide(menu, group)
        found = answer(drawn.lifetimes[group], verdicts, step, now, idle_since, drawn.answers[group])
        answers.append(found)
        if still and menu is not None:
            _remember(menu, owner, drawn.lifetimes[group], stamp, found)
    return answers


def _recall(menu: Menu, owner: Owner, lifetime: str, stamp: object) -> Answer | None:
    """What was answered while none of the menu's intervals was open, where nothing that its rules read has changed."""
    kept: Answer | None = None
    if menu.quiet is not None:
        kept = menu.quiet.made.get(lifetime)
    elif menu.by_hits:
        seen = menu.kept.get((owner.tenant, owner.agent, lifetime))
        kept = None if seen is None or seen[0] is not stamp else seen[1]
    return kept if kept is not None and kept.lasting else None


def _remember(menu: Menu, owner: Owner, lifetime: str, stamp: object, found: Answer) -> None:
    laddered = found.values is not None and found.values.tier is not None  # such an answer depends on idle times, too
    if stamp is None or not menu.by_hits or not found.lasting or laddered:
        return
    if len(menu.kept) >= _KEPT:
        menu.kept.clear()
    menu.kept[owner.tenant, owner.agent, lifetime] = (stamp, found)


def _notices(drawn: Outline, said: Said) -> tuple[Notice, ...]:
    """What to tell besides, span by span in prompt order."""
    notices: list[Notice] = []
    layout, short = drawn.layout, short_spans(drawn.layout)
    rows = zip(layout.order, drawn.groups, strict=True)
    for index, group in rows if short or any(each.strained for each in said.answers) else ():
        if index in short:
            notices.append(shorter_than_block(layout, index))
        if group >= 0:
            notices += [clipped(layout.spans[index].kind, index, one) for one in said.answers[group].strained]
    if said.narrowed is not None:
        notices.append(said.narrowed)
    if drawn.unplaced is not None:
        notices.append(position_unknown(layout, drawn.unplaced))
    return tuple(notices)


def _idle_since(state: State, owner: Owner) -> float | None:
    """When the owner's last use ended, where the state knows it; ladders step from then."""
    ask = getattr(state, "idle_since", None)
    since = None if ask is None else ask(owner)
    return since if isinstance(since, int | float) else None
