"""Who beats whom among the candidates for one span: a few are compared pair by pair, many by the index of the analysis.

A policy of two thousand rules that may all decide one span has four million pairs. Asked by `contest` when it puts
candidates in order, and by `explain`.
"""

from __future__ import annotations

from collections.abc import Sequence

from kvpolicy.policy.compiled import Rule
from kvpolicy.policy.order import Order

_FEW = 40  # candidates that are compared pair by pair


def beaters(rules: Sequence[Rule], order: Order) -> tuple[list[int], list[int]]:
    """By candidate for one span: a number with one bit for it; as such bits, the others that beat it."""
    if len(rules) <= _FEW or len(rules) > len(order.rules):
        bits = [1 << at for at in range(len(rules))]
        rows = list(zip(rules, bits, strict=True))
        return bits, [sum(bit for o, bit in rows if o is not rule and order.beats(o, rule)) for rule in rules]
    if order.index is None:
        from kvpolicy.policy.analysis.index import Index  # few policies are so large

        order.index = Index(order.rules, order)
    index = order.index
    numbers = [index.number[id(rule)] for rule in rules]
    here = index.bits(rules)
    return [1 << at for at in numbers], [(index.overruling(at) | index.narrower(at)) & here for at in numbers]


def unbeaten(rules: Sequence[Rule], order: Order) -> tuple[Rule, ...]:
    """Those of some candidates for one span that no other of them beats."""
    return tuple(rule for rule, by in zip(rules, beaters(rules, order)[1], strict=True) if not by)
