"""What all plans of one request have in common: its layout, and which of its spans are sure to get one answer.

Made once a request and kept by steering for as long as the request may be read again; `make` asks the policy once for
every group, whatever the number of spans. Its work grows with the spans, never with tokens or blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from kvpolicy import words
from kvpolicy.blocks import Layout, lay_out
from kvpolicy.faults import Notice
from kvpolicy.plan.alike import is_of_the_owner
from kvpolicy.plan.answer import Answer
from kvpolicy.plan.clocks import default_lifetime
from kvpolicy.plan.notices import shorter_than_block, unplaced_from
from kvpolicy.policy.model import State, Subject
from kvpolicy.policy.resolve import Menu
from kvpolicy.request import Owner, Request


class Place(NamedTuple):
    """One span that holds tokens, `span` its index. group: its number among the groups. claims: whether a directive may be made of it:
    not where its position is unknown."""

    span: int
    kind: str
    start: int
    end: int | None
    group: int
    claims: bool


class Outline:
    """places: in prompt order. subjects, menus: one for each group (menu None: the policy tells none). short: notices
    of spans without a full block, by index. unplaced: the token from which positions are unknown. answers: the latest
    of each group, so that one that says the same again is the same object."""

    __slots__ = ("_policy", "_told", "answers", "layout", "menus", "places", "request", "short", "subjects", "unplaced")

    def __init__(self, policy: Any, request: Request, state: State, layout: Layout | None = None) -> None:
        self.request = request
        self.layout = layout = lay_out(request) if layout is None else layout
        self.subjects: list[Subject] = []
        self.menus: list[Menu | None] = []
        self.short: dict[int, Notice] = {}
        self.unplaced = unplaced_from(request.extra) if request.extra else None
        self._policy = policy
        told = _told(state, request.owner)
        self._told: Mapping[str, object] | None = told
        facts = _facts(request, told)
        owner, size, given, unplaced = request.owner, request.block_size, layout.given, self.unplaced
        # A state that tells spans apart by more than their owner is asked for each of them.
        menu_of = None if getattr(state, "per_span", False) else getattr(policy, "menu", None)
        kind_blind = getattr(state, "kind_blind", False)
        selectable: frozenset[str] = frozenset() if menu_of is None else policy.selectable
        by_kind = menu_of is not None and "tokens" not in selectable
        known: dict[str, int] = {}  # groups of spans without attributes that a selector reads, by kind
        groups: dict[object, int] = {}
        places: list[Place] = []
        for index in layout.order:
            span = layout.spans[index]
            kind, start, end, own = span.kind, span.start, span.end, span.attributes
            if end is not None:
                if index < given and -(-start // size) >= end // size:
                    self.short[index] = shorter_than_block(layout, index)
                if start == end:
                    continue  # nothing to keep
            claims = unplaced is None or (end is not None and end <= unplaced)
            plain = by_kind and (not own or ("branch" not in own and selectable.isdisjoint(own)))
            group = known.get(kind) if plain else None
            if group is None:
                attributes = facts if end is None else {**facts, "tokens": end - start}
                if own:
                    attributes = self._with_own(attributes, own, owner, state)
                subject = Subject(kind, attributes, owner, index)
                menu = None if menu_of is None else menu_of(subject)
                alone = menu is None or not is_of_the_owner(menu)
                key = None if alone else (menu, default_lifetime(kind) if kind_blind else kind)
                group = None if alone else groups.get(key)
                if group is None:
                    group = len(self.menus)
                    self.subjects.append(subject)
                    self.menus.append(menu)
                    groups[key] = group
                if plain and not alone:
                    known[kind] = group
            places.append(Place(index, kind, start, end, group, claims))
        self.places = tuple(places)
        self.answers: list[Answer | None] = [None] * len(self.menus)

    def fits(self, policy: Any, request: Request, state: State) -> bool:
        """Whether a new one of this request would be the same: what events said of the owner's branch is."""
        if self._policy is not policy or self.request is not request or self._told is None:
            return False
        return _told(state, request.owner) == self._told

    def _with_own(self, facts: dict[str, Any], own: Mapping[str, object], owner: Owner, state: State) -> dict[str, Any]:
        """The facts of a span with attributes of its own, which replace the request's, except what comes from
        authentication. A span labelled with another branch has that branch's rank, score and status."""
        stated = {n: value for n, value in own.items() if value is not None and n not in words.TRUSTED_ATTRIBUTES}
        branch = stated.get("branch")
        told: Callable[..., Mapping[str, object]] | None = getattr(state, "attributes", None)
        if told is None or not isinstance(branch, str) or branch == owner.branch:
            return {**facts, **stated}
        self._told = None  # another branch's standing is in it, and that may change at any event
        merged = {name: value for name, value in facts.items() if name not in ("rank", "score", "status")}
        merged.update((name, value) for name, value in told(owner, branch).items() if value is not None)
        merged.update(stated)
        return merged


def _facts(request: Request, told: Mapping[str, object]) -> dict[str, Any]:
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
    facts.update((name, value) for name, value in told.items() if value is not None)
    return facts


def _told(state: State, owner: Owner) -> Mapping[str, object]:
    ask = getattr(state, "attributes", None)
    return {} if ask is None else dict(ask(owner))
