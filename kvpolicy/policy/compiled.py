"""A rule, a limit and a quota in compiled form: what `compile` makes, `order` compares and `resolve` runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kvpolicy.faults import Place
from kvpolicy.policy.code import Code
from kvpolicy.policy.layers import Layer, shown
from kvpolicy.policy.matching import Matcher
from kvpolicy.policy.model import IntervalPattern, State, Subject
from kvpolicy.policy.over import NOTHING, Over
from kvpolicy.policy.terms import Term
from kvpolicy.policy.timing import Watcher


class _Default:
    """The value `default`: as if no rule had set the property."""

    def __repr__(self) -> str:
        return "default"


DEFAULT = _Default()


@dataclass(frozen=True, slots=True, eq=False)
class Value:
    """What a rule sets a property to. `run` gives the value (see `directive.Verdict`), or DEFAULT.

    fixed: whether it is the same in every state. terms: the expressions it is made of. strained: the sentence of a
    notice where the expression's own result had to be brought into range, else None. watchers: of the terms that time
    alone changes.
    """

    property: str
    run: Callable[[Subject, State], object]
    fixed: bool
    terms: tuple[Term, ...]
    place: Place
    strained: Callable[[Subject, State], str | None]
    watchers: tuple[Watcher, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Guard:
    """`when …`: its term in normal form, and the code of it. watcher: None where time alone does not change it."""

    term: Term
    run: Code
    watcher: Watcher | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Rule:
    """One rule: name as messages give it, layer, selector, interval, guard and values.

    over: the rules it is written over, closed transitively.
    """

    name: str
    group: str
    label: str | None
    layer: Layer
    place: Place
    matches: tuple[Matcher, ...]
    interval: IntervalPattern | None
    guard: Guard | None
    values: Mapping[str, Value]
    over: Over = NOTHING

    def matches_span(self, kind: str, attributes: Mapping[str, object]) -> bool:
        """Whether the selector reaches a span."""
        return any(m.matches(kind, attributes) for m in self.matches)

    def by_kind(self, kind: str, attributes: Mapping[str, object]) -> bool:
        """Whether the selector reaches a span by naming its kind rather than through `any`."""
        return any(m.kind == kind and m.matches(kind, attributes) for m in self.matches)

    @property
    def condition(self) -> Term | None:
        """What `when` says, in normal form."""
        return None if self.guard is None else self.guard.term

    @property
    def layer_name(self) -> str:
        """The layer as messages give it."""
        return shown(self.layer)


@dataclass(frozen=True, slots=True, eq=False)
class Clamp:
    """`priority: at most 40`: one side of one property's range, for the spans of a selector."""

    property: str  # priority, ttl, replicas, or hold for the duration of a hold
    side: str  # "most" or "least"
    run: Code
    term: Term
    matches: tuple[Matcher, ...]
    name: str
    place: Place

    def matches_span(self, kind: str, attributes: Mapping[str, object]) -> bool:
        """Whether the limit reaches a span."""
        return any(m.matches(kind, attributes) for m in self.matches)


@dataclass(frozen=True, slots=True, eq=False)
class Quota:
    """`hold: at most 40% of gpu` or `gpu: at most 2GiB`: a share of memory, for `claims` to keep.

    property: `hold`, or the tier's name. amount: a fraction of `of` (unit percent), bytes, or tokens.
    per: `tenant`, `session`, or None: over all spans of the selector together.
    """

    property: str
    side: str
    amount: float
    unit: str
    of: str
    per: str | None
    matches: tuple[Matcher, ...]
    name: str
    place: Place

    def matches_span(self, kind: str, attributes: Mapping[str, object]) -> bool:
        """Whether the quota counts a span."""
        return any(m.matches(kind, attributes) for m in self.matches)
