"""Which spans of one request are sure to get the same verdicts, so that the policy is asked once for all of them.

Rules see a span by its kind and a few attributes (a policy's `menu`), and the state by functions. Where all functions
that a menu reads are about the owner, spans with one menu differ in nothing that a rule could see. Where no selector
reads an attribute, the kinds of a prompt's spans tell all its groups, which are worked out once for all such prompts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from kvpolicy.plan.clocks import default_lifetime
from kvpolicy.policy.resolve import Menu

_NO_FACTS: Mapping[str, object] = {}  # where no selector reads any
_KEPT = 4096  # sequences of kinds
_KINDS_KEPT = 65_536  # in all of them together: what was said of each is kept as well
_LONGEST = 256  # spans of one that is kept
_MISSING = object()


@dataclass(slots=True)
class Groups:
    """menus, lifetimes (where no rule sets one): one a group. of_spans: the group of each span, in prompt order; -1: it
    holds no token. said: what was said of such a prompt while nothing was open (see `make`)."""

    menus: tuple[Menu, ...]
    lifetimes: tuple[str, ...]
    of_spans: tuple[int, ...]
    said: Any = None


def groups_of(policy: Any, kinds: tuple[str | None, ...], kind_blind: bool) -> Groups | None:
    """The groups of spans of these kinds in prompt order (None: one without tokens), numbered as they are met; None
    where a kind does not tell its group. policy: one whose selectors read no attribute. kind_blind: whether the state
    answers alike for all kinds."""
    kept: dict[object, object] = policy.groups
    key = (kinds, kind_blind)
    found = kept.get(key, _MISSING)  # in one step: engines in two threads may share a policy
    if found is not _MISSING:
        return cast("Groups | None", found)
    found = _found(policy, kinds, kind_blind)
    if len(kinds) <= _LONGEST:
        size = policy.kinds_kept + len(kinds)
        if len(kept) >= _KEPT or size > _KINDS_KEPT:
            kept.clear()
            size = len(kinds)
        policy.kinds_kept, kept[key] = size, found
    return found


def _found(policy: Any, kinds: Iterable[str | None], kind_blind: bool) -> Groups | None:
    numbers: dict[tuple[Menu, str], int] = {}
    of_kind: dict[str | None, int] = {None: -1}
    lifetimes: list[str] = []
    of_spans: list[int] = []
    for kind in kinds:
        if kind is not None and kind not in of_kind:
            menu: Menu = policy.menu_of(kind, _NO_FACTS)
            if not menu.of_the_owner:
                return None
            lifetime = default_lifetime(kind)
            of_kind[kind] = numbers.setdefault((menu, lifetime if kind_blind else kind), len(numbers))
            if len(numbers) > len(lifetimes):
                lifetimes.append(lifetime)
        of_spans.append(of_kind[kind])
    return Groups(tuple([menu for menu, _ in numbers]), tuple(lifetimes), tuple(of_spans))
