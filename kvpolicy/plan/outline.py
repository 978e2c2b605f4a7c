"""What all plans of one request have in common: its layout, and which of its spans are sure to get one answer.

Made once a request and kept by steering for as long as the request may be read again; `make` asks the policy once for
every group, whatever the number of spans. Its work grows with the spans, never with tokens or blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kvpolicy import words
from kvpolicy.blocks import Layout, lay_out
from kvpolicy.plan.alike import Groups, groups_of
from kvpolicy.plan.answer import Answer
from kvpolicy.plan.clocks import default_lifetime
from kvpolicy.plan.notices import unplaced_from
from kvpolicy.policy.model import State, Subject
from kvpolicy.policy.resolve import Menu
from kvpolicy.request import Owner, Request, Span

_NO_FACTS: dict[str, Any] = {}  # where no selector reads any
_NOTHING: Mapping[int, dict[str, Any]] = {}  # where no group's first span has attributes of its own


class Outline:
    """groups: by place in prompt order, the number of the span's group; -1: it holds no token. claimed: the spans in
    the same order, -1 for one whose position is unknown, of which no directive is made. menus (None: the
    policy tells none), lifetimes (where no rule sets one): one for each group. unplaced: the token from which positions
    are unknown. alike: what it has in common with all prompts of spans of such kinds, where kinds tell everything.
    answers: the latest of each group, so that one that says the same again is the same object."""

    __slots__ = (
        "_apart",
        "_facts",
        "_owner",
        "_policy",
        "_subjects",
        "_told",
        "alike",
        "answers",
        "claimed",
        "groups",
        "layout",
        "lifetimes",
        "menus",
        "request",
        "unplaced",
    )

    def __init__(self, policy: Any, request: Request, state: State, layout: Layout | None = None) -> None:
        self.request, self._policy, self._owner = request, policy, request.owner
        self.layout = layout = lay_out(request) if layout is None else layout
        self.unplaced = unplaced = unplaced_from(request.extra) if request.extra else None
        self._told: Mapping[str, object] | None = _told(state, request.owner)
        self._facts: dict[str, Any] | None = None
        self._apart: Mapping[int, dict[str, Any]] = _NOTHING
        spans, order = layout.spans, layout.order
        # A state that tells spans apart by more than their owner is asked for each of them.
        menu_of = None if getattr(state, "per_span", False) else getattr(policy, "menu_of", None)
        found: Groups | None = None
        if menu_of is not None and not policy.selectable and not [span for span in spans if span.attributes]:
            kinds: tuple[str | None, ...] = layout.kinds
            if not layout.filled:
                kinds = tuple([None if (span := spans[i]).start == span.end else span.kind for i in order])
            found = groups_of(policy, kinds, getattr(state, "kind_blind", False))
        # Kept while the request may be read again, for a hundred thousand owners: tuples, which have no spare room.
        self.menus: tuple[Menu | None, ...]
        self.lifetimes: tuple[str, ...]
        if found is not None:
            self.menus, self.lifetimes, self.groups = found.menus, found.lifetimes, found.of_spans
        else:
            self._tell_apart(menu_of, state)
        self.alike = found if layout.as_stated and unplaced is None else None
        self.claimed: Sequence[int] = order
        if unplaced is not None:
            self.claimed = [i if (e := spans[i].end) is not None and e <= unplaced else -1 for i in order]
        self.answers: Sequence[Answer | None] = (None,) * len(self.menus)
        self._subjects: list[Subject | None] | None = None

    def _tell_apart(self, menu_of: Callable[[str, Mapping[str, object]], Menu] | None, state: State) -> None:
        """The groups of spans that attributes may tell apart, or functions: span by span."""
        kind_blind = getattr(state, "kind_blind", False)
        selectable: frozenset[str] = frozenset() if menu_of is None else self._policy.selectable
        by_kind = menu_of is not None and "tokens" not in selectable
        known: dict[str, int] = {}  # groups of spans without attributes that a selector reads, by kind
        shared: dict[object, int] = {}
        groups: list[int] = []
        menus: list[Menu | None] = []
        lifetimes: list[str] = []
        apart: dict[int, dict[str, Any]] = {}
        for index in self.layout.order:
            span = self.layout.spans[index]
            kind, own = span.kind, span.attributes
            if span.start == span.end:
                groups.append(-1)  # nothing to keep
                continue
            plain = by_kind and (not own or ("branch" not in own and selectable.isdisjoint(own)))
            group = known.get(kind) if plain else None
            if group is None:
                attributes = self._attributes(span, plain, state) if selectable or not plain else _NO_FACTS
                menu = None if menu_of is None else menu_of(kind, attributes)
                lifetime = default_lifetime(kind)
                alone = menu is None or not menu.of_the_owner
                key = None if alone else (menu, lifetime if kind_blind else kind)
                group = len(menus) if key is None else shared.setdefault(key, len(menus))
                if group == len(menus):
                    menus.append(menu)
                    lifetimes.append(lifetime)
                    if not plain:
                        apart[group] = attributes
                if plain and not alone:
                    known[kind] = group
            groups.append(group)
        self.groups, self.menus, self.lifetimes = tuple(groups), tuple(menus), tuple(lifetimes)
        self._apart = apart or _NOTHING

    def rest(self) -> None:
        """Nobody is expected to ask for a while: what can be worked out again is not kept."""
        self._facts = None
        self._subjects = None

    def subject(self, group: int) -> Subject:
        """The first span of a group, as rules see it."""
        subjects = self._subjects
        if subjects is None:
            subjects = self._subjects = [None] * len(self.menus)
        subject = subjects[group]
        if subject is None:
            index = self.layout.order[self.groups.index(group)]
            span, attributes = self.layout.spans[index], self._apart.get(group)
            if attributes is None:
                attributes = self._attributes(span, False, None)
            subject = subjects[group] = Subject(span.kind, attributes, self._owner, index)
        return subject

    def subject_of(self, index: int, state: State) -> Subject:
        """One span of the layout, as rules see it in a state: for explanations, which look at each alone."""
        span = self.layout.spans[index]
        return Subject(span.kind, self._attributes(span, False, state), self._owner, index)

    def _attributes(self, span: Span, plain: bool, state: State | None) -> dict[str, Any]:
        """What rules see of a span besides its kind; for a plain one, where the policy reads nothing of its own, what
        all spans have in common will do."""
        facts = self._facts
        if facts is None:
            facts = self._facts = _facts(self.request, self._told or {})
        if plain:
            return facts
        attributes = facts if span.end is None else {**facts, "tokens": span.end - span.start}
        return self._with_own(attributes, span.attributes, self.request.owner, state) if span.attributes else attributes

    def fits(self, policy: Any, request: Request, state: State) -> bool:
        """Whether a new one of this request would be the same: what events said of the owner's branch is."""
        if self._policy is not policy or self.request is not request or self._told is None:
            return False
        ask = getattr(state, "attributes", None)
        return (not self._told) if ask is None else bool(ask(request.owner) == self._told)

    def _with_own(
        self, facts: dict[str, Any], own: Mapping[str, object], owner: Owner, state: State | None
    ) -> dict[str, Any]:
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
    return _NO_FACTS if ask is None else dict(ask(owner)) or _NO_FACTS
