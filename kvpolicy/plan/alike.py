"""Which spans of one request are sure to get the same verdicts, so that the policy is asked once for all of them.

Rules see a span by its kind and a few attributes (a policy's `menu`), and the state by functions. Where all functions
that a menu reads are about the owner, spans with one menu differ in nothing that a rule could see. Where no selector
reads an attribute, the kinds of a prompt tell all its groups, which are worked out once for all prompts of such kinds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kvpolicy.plan.clocks import default_lifetime
from kvpolicy.policy.resolve import Menu

_NO_FACTS: Mapping[str, object] = {}  # where no selector reads any
_KEPT = 4096


@dataclass(frozen=True, slots=True)
class Groups:
    """menus, lifetimes (where no rule sets one): one a group. of_kind: the group that a kind's spans are in."""

    menus: tuple[Menu, ...]
    lifetimes: tuple[str, ...]
    of_kind: Mapping[str, int]


def groups_of(policy: Any, kinds: Iterable[str], kind_blind: bool) -> Groups | None:
    """The groups of spans of these kinds, numbered as they are met; None where a kind does not tell its group.
    policy: one whose selectors read no attribute. kind_blind: whether the state answers alike for all kinds."""
    met = tuple(dict.fromkeys(kinds))
    kept: dict[object, Groups | None] = policy.groups
    key = (met, kind_blind)
    if key not in kept:
        if len(kept) >= _KEPT:
            kept.clear()
        kept[key] = _found(policy, met, kind_blind)
    return kept[key]


def _found(policy: Any, kinds: Iterable[str], kind_blind: bool) -> Groups | None:
    numbers: dict[tuple[Menu, str], int] = {}
    of_kind: dict[str, int] = {}
    lifetimes: list[str] = []
    for kind in kinds:
        menu: Menu = policy.menu_of(kind, _NO_FACTS)
        if not menu.of_the_owner:
            return None
        lifetime = default_lifetime(kind)
        of_kind[kind] = numbers.setdefault((menu, lifetime if kind_blind else kind), len(numbers))
        if len(numbers) > len(lifetimes):
            lifetimes.append(lifetime)
    return Groups(tuple([menu for menu, _ in numbers]), tuple(lifetimes), of_kind)
