"""What rules are written over, closed: `a over b` and `b over c` put `a` over `c`.

Made by `compile`, asked by `order` for a name, and by the analysis for all rules at once. Kept as bits, for a thousand
rules each over the one before are half a million pairs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from typing import TypeVar

from kvpolicy.policy.bits import members


class Over(Set[str]):
    """The names of the rules that one is written over. bits: their numbers; under: the numbers of those that are
    written over it. Rules are numbered as `numbered` has them."""

    __slots__ = ("_names", "_numbers", "bits", "under")

    def __init__(self, names: Sequence[str], numbers: Mapping[str, int], bits: int, under: int) -> None:
        self._names, self._numbers, self.bits, self.under = names, numbers, bits, under

    def __contains__(self, name: object) -> bool:
        number = self._numbers.get(name) if isinstance(name, str) else None
        return number is not None and bool(self.bits >> number & 1)

    def __iter__(self) -> Iterator[str]:
        return (self._names[number] for number in members(self.bits))

    def __hash__(self) -> int:
        return self._hash()

    def __len__(self) -> int:
        return self.bits.bit_count()


NOTHING = Over((), {}, 0, 0)
Row = TypeVar("Row")


def numbered(rows: Sequence[Row], matches: Sequence[int]) -> list[Row]:
    """Rules in the order of their numbers: those with most matches first."""
    order = sorted(range(len(rows)), key=lambda at: -matches[at])
    return [rows[at] for at in order]


def closed(edges: Mapping[int, int], size: int) -> list[int]:
    """Per number, all that its edges lead to, by way of others."""
    found = [edges.get(at, 0) for at in range(size)]
    order = _last_first(edges)
    changed = True
    while changed:  # once more than rounds are in it, which is once as a rule
        changed = False
        for at in order:
            reached = found[at]
            for step in members(edges[at]):
                reached |= found[step]
            if reached != found[at]:
                found[at], changed = reached, True
    return found


def _last_first(edges: Mapping[int, int]) -> list[int]:
    """Those with edges, each after those it leads to where that can be."""
    left: list[int] = []
    seen: set[int] = set()
    for start in edges:
        if start in seen:
            continue
        seen.add(start)
        path = [(start, members(edges[start]))]
        while path:
            at, ways = path[-1]
            step = next((s for s in ways if s in edges and s not in seen), None)
            if step is None:
                left.append(at)
                path.pop()
            else:
                seen.add(step)
                path.append((step, members(edges[step])))
    return left
