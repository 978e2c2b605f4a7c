"""A compiled policy: what should happen to a span's blocks, now.

Made by `compile`, read by `plan` (resolve, steps), `claims` (quotas), `workflow` (intervals, workflows) and the
command line (explain). It reads the state it is handed and nothing else: no clock, no files.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from kvpolicy.directive import Verdict
from kvpolicy.language import syntax
from kvpolicy.policy.buckets import Buckets
from kvpolicy.policy.compiled import Clamp, Quota, Rule
from kvpolicy.policy.model import IntervalPattern, State, Subject
from kvpolicy.policy.order import Order
from kvpolicy.policy.resolve import Menu
from kvpolicy.policy.settle import Lets

_MENUS_KEPT = 4096


@dataclass(slots=True, eq=False, repr=False)
class Policy:
    """Rules, limits and quotas of one file set, with the order among them.

    digests: SHA-256 of every file, by name. intervals: each distinct `on … until …`, the very objects that
    `State.opening` is asked with. files, lets: what it was compiled from.
    """

    name: str
    digests: Mapping[str, str]
    rules: tuple[Rule, ...]
    clamps: tuple[Clamp, ...]
    quotas: tuple[Quota, ...]
    intervals: tuple[IntervalPattern, ...]
    workflows: tuple[syntax.Workflow, ...]
    order: Order
    files: syntax.FileSet
    lets: Lets
    _buckets: Buckets = field(init=False)
    selectable: frozenset[str] = field(init=False)  # the attributes that its selectors read
    _menus: dict[tuple[object, ...], Menu] = field(init=False, default_factory=dict)
    _distinct: dict[tuple[object, ...], Menu] = field(init=False, default_factory=dict)
    groups: dict[object, Any] = field(init=False, default_factory=dict)  # what `plan.alike` makes of menus
    kinds_kept: int = field(init=False, default=0)  # … and how large that is

    def __post_init__(self) -> None:
        speaking: tuple[Rule | Clamp, ...] = (*self.rules, *self.clamps)
        self._buckets = Buckets(m for s in speaking for m in s.matches)
        self.selectable = self._buckets.names

    def __repr__(self) -> str:
        """One line: its name, how much it says, and the digest of its files, which is the service's."""
        counts = [("rule", self.rules), ("limit", (*self.clamps, *self.quotas)), ("workflow", self.workflows)]
        said = ", ".join(f"{len(of)} {what}{'s' * (len(of) != 1)}" for what, of in counts if of or what == "rule")
        whole = sha256("".join(f"{digest}\0" for digest in sorted(self.digests.values())).encode()).hexdigest()
        return f"<Policy {self.name!r}: {said}, digest {whole[:12]}>"

    def _repr_html_(self) -> str:
        """For notebooks."""
        from kvpolicy.notebook import policy

        return policy(self)

    def resolve(self, subject: Subject, state: State) -> dict[str, Verdict]:
        """The verdict on every property that a rule or a limit sets for this span in this state.

        A property whose winning rule says `default` is absent, as one that nobody sets. The dictionary may be shared:
        read it, do not change it.
        """
        return self.menu(subject).verdicts(subject, state)

    def decide(self, property: str, subject: Subject, state: State) -> Verdict | None:
        """The verdict on one property, None where it is not set. Asks the state nothing that plays no part in it."""
        return self.menu(subject).verdicts(subject, state, property).get(property)

    def steps(self, subject: Subject, state: State) -> tuple[float, ...]:
        """Future times, soonest first, at which a verdict that reads `idle()`, `age()` or another function that
        drifts with time may change, or a grace ends. Empty where only events can change what `resolve` says. Ladders
        and the ends of holds and lifetimes are the plan's own."""
        return self.menu(subject).steps(subject, state)

    def reads_state(self, subject: Subject) -> bool:
        """Whether the verdicts of spans like this one depend on the state at all."""
        menu = self.menu(subject)
        return bool(menu.intervals) or menu.asks

    def menu(self, subject: Subject) -> Menu:
        """The rules and limits that reach a span, whatever the state."""
        return self.menu_of(subject.kind, subject.attributes)

    def menu_of(self, kind: str, attributes: Mapping[str, object]) -> Menu:
        """`menu`, from what selectors read of a span: its kind and the attributes among `selectable`."""
        key = self._buckets.key(kind, attributes) if self.selectable else (kind,)
        menu = self._menus.get(key)
        if menu is None:
            if len(self._menus) >= _MENUS_KEPT:
                self._menus.clear()
                self._distinct.clear()
            menu = Menu(kind, attributes, self.rules, self.clamps, self.order)
            menu = self._menus[key] = self._distinct.setdefault(menu.same_as(), menu)
        return menu

    @property
    def limits(self) -> tuple[Clamp, ...]:
        """What clamps values; what bounds memory is in `quotas`."""
        return self.clamps

    def quotas_of(self, subject: Subject) -> tuple[Quota, ...]:
        """The quotas that count a span."""
        return tuple(q for q in self.quotas if q.matches_span(subject.kind, subject.attributes))

    def rules_of(self, kinds: Iterable[str]) -> tuple[Rule, ...]:
        """The rules that can reach a span of one of some kinds."""
        wanted = {*kinds, "any"}
        return tuple(r for r in self.rules if any(m.kind in wanted for m in r.matches))
