"""What a claim takes from a directive: its values, without the place of the span.

A `Directive` has them, and so has what a plan makes once for all spans that the policy answers alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from kvpolicy.directive import Directive, Retention, TierRung


class Wish(Protocol):
    """Fields as `directive.Directive` has them. The same object again means that nothing has changed."""

    @property
    def priority(self) -> int: ...
    @property
    def retention(self) -> Retention: ...
    @property
    def protected_until(self) -> float | None: ...
    @property
    def expires(self) -> float | None: ...
    @property
    def ttl(self) -> float | None: ...
    @property
    def ttl_fixed(self) -> bool: ...
    @property
    def lifetime(self) -> str: ...
    @property
    def hold_after_release(self) -> float | None: ...
    @property
    def tier(self) -> tuple[TierRung, ...] | None: ...
    @property
    def prefetch(self) -> bool | float: ...
    @property
    def admit(self) -> bool: ...
    @property
    def drop_by_kind(self) -> bool: ...


def wishes_of(directives: Iterable[Directive]) -> Mapping[int, Wish | None]:
    """The wishes by span, None or absent where no rule touches it. Directives that were not made yet stay so."""
    known: Mapping[int, Wish | None] | None = getattr(directives, "wishes", None)
    return {d.span: d for d in directives} if known is None else known


def distinct_of(directives: Iterable[Directive]) -> Iterable[Wish]:
    """Every wish, spans that the policy answers alike counted once where that is known."""
    known: Iterable[Wish] | None = getattr(directives, "distinct", None)
    return directives if known is None else known
