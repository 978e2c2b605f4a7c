"""Rules compared with all others at once: which can meet, which stand wherever another does, which win.

Made once for an analysis from a policy's rules; every question that would compare pairs reads it. What it says is what
`order` says of each pair (a test compares), for it asks `order` wherever it cannot tell by itself.
"""

from __future__ import annotations

from collections.abc import Iterable

from kvpolicy.policy.analysis.crossing import Crossing
from kvpolicy.policy.analysis.during import intervals
from kvpolicy.policy.analysis.facets import FEW, guards
from kvpolicy.policy.bits import bits_of, members
from kvpolicy.policy.compiled import Rule
from kvpolicy.policy.layers import Layer
from kvpolicy.policy.order import Order, implies
from kvpolicy.policy.over import numbered


class Index:
    """Rules by number. always: those without guard and interval. few: so many different values of an interval or an
    attribute are compared pair by pair."""

    def __init__(self, rules: Iterable[Rule], order: Order, few: int = FEW) -> None:
        rows = list(rules)
        self.rules = numbered(rows, [len(rule.matches) for rule in rows])
        self.number = {id(rule): i for i, rule in enumerate(self.rules)}
        self._crossing = Crossing(self.rules, few)
        self._guards = guards([rule.condition for rule in self.rules])
        self._intervals = intervals([rule.interval for rule in self.rules], few)
        self.rough = self._crossing.rough | self._intervals.rough
        size = len(self.rules)
        self.always = bits_of((i for i, r in enumerate(self.rules) if r.guard is None and r.interval is None), size)
        by_layer: dict[Layer, list[int]] = {}
        for i, rule in enumerate(self.rules):
            by_layer.setdefault(rule.layer, []).append(i)
        have = {layer: bits_of(some, size) for layer, some in by_layer.items()}
        self._same: dict[Layer, int] = have
        self._later: dict[Layer, int] = {}
        self._unordered: dict[Layer, int] = {}
        everything, before = (1 << size) - 1, dict.fromkeys(have, 0)
        for layer, bits in have.items():
            later = 0
            for other in order.layers.after(layer):
                if other in have:
                    later |= have[other]
                    before[other] |= bits
            self._later[layer] = later
        for layer, bits in have.items():
            self._unordered[layer] = everything & ~(self._later[layer] | before[layer] | bits)
        self._implied: dict[int, int] = {}
        self._implying: dict[int, int] = {}

    def bits(self, rules: Iterable[Rule]) -> int:
        """Some rules as a set."""
        return bits_of((self.number[id(rule)] for rule in rules), len(self.rules))

    def of(self, bits: int) -> list[Rule]:
        """A set as rules."""
        return [self.rules[i] for i in members(bits)]

    def meeting(self, at: int) -> int:
        """The rules that may be candidates together with this one, itself left out; some never are."""
        apart = self._guards.apart[self._guards.of[at]] | self._intervals.apart[self._intervals.of[at]] | 1 << at
        return self._crossing.meeting(at) & ~apart

    def meeting_outside(self, at: int, covers: Iterable[int]) -> int:
        """`meeting`, without what meets this rule only on spans that some rules reach, as far as that is seen."""
        matches = [match for cover in covers for match in self.rules[cover].matches]
        return self._crossing.meeting(at, matches) & ~(1 << at)

    def unordered(self, at: int) -> int:
        """The rules of layers that have no order with this one's."""
        return self._unordered[self.rules[at].layer]

    def together(self, at: int) -> int:
        """The rules of its own layer."""
        return self._same[self.rules[at].layer]

    def over(self, at: int) -> int:
        """The rules that this one is written over."""
        return self.rules[at].over.bits

    def under(self, at: int) -> int:
        """The rules that are written over this one."""
        return self.rules[at].over.under

    def overruling(self, at: int) -> int:
        """The rules that beat this one by `over` or by their layer."""
        return self.rules[at].over.under | (self._later[self.rules[at].layer] & ~self.rules[at].over.bits)

    def implied(self, at: int) -> int:
        """The rules that stand wherever this one does, of those that can meet it."""
        if at not in self._implied:
            self._implied[at] = self._exactly(at, self.surely_implied(at), forward=True)
        return self._implied[at]

    def implying(self, at: int) -> int:
        """The rules wherever which this one stands, of those that can meet it."""
        if at not in self._implying:
            self._implying[at] = self._exactly(at, self.surely_implying(at), forward=False)
        return self._implying[at]

    def narrower(self, at: int) -> int:
        """The rules that beat this one because they are narrower."""
        free = self.together(at) & ~self.over(at) & ~self.under(at)
        return self.implying(at) & ~self.implied(at) & free if free else 0

    def broader(self, at: int) -> int:
        """The rules that this one beats because it is narrower."""
        free = self.together(at) & ~self.over(at) & ~self.under(at)
        return self.implied(at) & ~self.implying(at) & free if free else 0

    def surely_implied(self, at: int) -> int:
        """`implied`, without what only a comparison can tell: where neither rule is `rough`, it is all."""
        stands = self._guards.wider[self._guards.of[at]] & self._intervals.wider[self._intervals.of[at]]
        return stands & self._crossing.wider(at) & ~(1 << at)

    def surely_implying(self, at: int) -> int:
        """`implying`, likewise."""
        stands = self._guards.narrower[self._guards.of[at]] & self._intervals.narrower[self._intervals.of[at]]
        return stands & self._crossing.narrower(at) & ~(1 << at)

    def _exactly(self, at: int, sure: int, *, forward: bool) -> int:
        meeting = self.meeting(at)
        unsure = meeting if self.rough >> at & 1 else meeting & self.rough
        rule = self.rules[at]
        found = [
            j for j in members(unsure) if (implies(rule, self.rules[j]) if forward else implies(self.rules[j], rule))
        ]
        return (sure & meeting & ~unsure) | bits_of(found, len(self.rules))
