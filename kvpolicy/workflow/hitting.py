"""How likely a walk gets to what it looks for, from each node of one strongly connected part of a graph.

A walk chooses among a node's choices by their probabilities; of the ways of one choice, and of what a node calls, the
likeliest counts. That is a Markov decision process: its ways are chosen by policy iteration (Howard 1960), and for one
set of ways the linear equations are solved by elimination without subtractions (Grassmann, Taksar and Heyman,
Operations Research 33, 1985), the node with the fewest neighbours first. Exact but for rounding, however slowly a loop
is left. Called by `ways_to`, a part at a time; what it costs is counted, so that a question can be given up.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

_BETTER = 1e-13  # by how much another way has to be likelier to be taken instead
_AT_ONCE = 64  # sets of ways of a part that are kept factored

Choice = tuple[float, float, list[int]]  # its probability, the best that is known of its ways, ways within the part
Call = tuple[float, int]  # its probability, whom it calls within the part
_Picked = tuple[tuple[int, ...], ...]  # by node: of each choice which way (_KNOWN: what is known); last: which call
_Pivot = tuple[int, float, list[tuple[int, float]], list[tuple[int, float]]]

_KNOWN = -1  # of a choice: none of its ways within the part; of a node: no call


class TooMuch(Exception):
    """A question costs more than it may."""


class Work:
    """What a question may still cost, in multiplications or so."""

    __slots__ = ("left",)

    def __init__(self, left: int) -> None:
        self.left = left

    def take(self, operations: int) -> None:
        """So much is about to be done. Raises TooMuch where that is more than there is left."""
        self.left -= operations
        if self.left < 0:
            raise TooMuch


class Row:
    """One node: choices, by probability; calls within the part; called: the best that is known of its other calls."""

    __slots__ = ("called", "calls", "choices")

    def __init__(self, choices: list[Choice], calls: list[Call], called: float) -> None:
        self.choices, self.calls, self.called = choices, calls, called


class Part:
    """A part that is solved several times, with other values around it; its nodes are numbered from 0."""

    __slots__ = ("_factored", "_picked", "_work")

    def __init__(self, work: Work) -> None:
        self._work = work
        self._picked: _Picked | None = None  # the best ways last time
        self._factored: dict[object, list[_Pivot]] = {}

    def solve(self, rows: Sequence[Row], shape: object) -> list[float]:
        """The chance from each node. shape: where it is the same, probabilities and ways within the part are, too.

        Raises TooMuch.
        """
        size = sum(len(row.calls) + sum(len(ways) + 1 for _, _, ways in row.choices) for row in rows)
        picked = self._picked
        if picked is None or not all(map(_fits, rows, picked)):
            picked = tuple(_first(row) for row in rows)
        while True:
            values = self._values(rows, picked, shape)
            self._work.take(size)
            better = tuple(_best(row, ways, values) for row, ways in zip(rows, picked, strict=True))
            if better == picked:
                self._picked = picked
                return values
            picked = better

    def _values(self, rows: Sequence[Row], picked: _Picked, shape: object) -> list[float]:
        """The least solution for these ways."""
        key = shape, picked
        pivots = self._factored.get(key)
        if pivots is None:
            if len(self._factored) >= _AT_ONCE:
                self._factored.clear()
            pivots = self._factored[key] = _eliminate(*_equations(rows, picked), self._work)
        values = []
        for row, ways in zip(rows, picked, strict=True):
            known = 0.0
            if ways[-1] == _KNOWN:
                for (chance, best, _), way in zip(row.choices, ways, strict=False):
                    known += chance * best if way == _KNOWN else 0.0
            elif ways[-1] == len(row.calls):
                known = row.called
            values.append(known)
        for index, inverse, above, _ in pivots:
            value = values[index] = values[index] * inverse
            for other, weight in above:
                values[other] += weight * value
        for index, _, above, below in reversed(pivots):
            self._work.take(len(above) + len(below) + 2)
            for other, weight in below:
                values[index] += weight * values[other]
        return values


def _first(row: Row) -> tuple[int, ...]:
    return (*(0 if ways and known < 1.0 else _KNOWN for _, known, ways in row.choices), _KNOWN)


def _fits(row: Row, picked: tuple[int, ...]) -> bool:
    """Whether a node has the ways that were picked for it."""
    return len(picked) == len(row.choices) + 1 and all(
        way < len(ways) for (_, _, ways), way in zip(row.choices, picked, strict=False)
    )


def _best(row: Row, picked: tuple[int, ...], values: Sequence[float]) -> tuple[int, ...]:
    """The likeliest ways by these values; those that were picked where none is likelier."""
    found, after = [], 0.0
    for (chance, known, ways), before in zip(row.choices, picked, strict=False):
        way, best = before, known if before == _KNOWN else values[ways[before]]
        if known > best + _BETTER:
            way, best = _KNOWN, known
        if len(ways) > 1 or way == _KNOWN:
            for number, target in enumerate(ways):
                if values[target] > best + _BETTER:
                    way, best = number, values[target]
        found.append(way)
        after += chance * best
    call = picked[-1]
    if row.calls or row.called:
        offers = [*(chance * values[target] for chance, target in row.calls), row.called]
        best = after if call == _KNOWN else offers[call]
        if after > best + _BETTER:
            best, call = after, _KNOWN
        for number, offer in enumerate(offers):
            if offer > best + _BETTER:
                best, call = offer, number
    return (*found, call)


def _equations(rows: Sequence[Row], picked: _Picked) -> tuple[list[dict[int, float]], list[float]]:
    """(by node, how likely its ways lead to which others; how likely they leave the part)."""
    inside: list[dict[int, float]] = []
    leaves = []
    for row, ways in zip(rows, picked, strict=True):
        leads: dict[int, float] = {}
        leave, call = 0.0, ways[-1]
        if call == len(row.calls):
            leave = 1.0
        elif call != _KNOWN:
            chance, target = row.calls[call]
            leads[target] = chance
            leave = max(0.0, 1.0 - chance)
        else:
            leave = max(0.0, 1.0 - sum(chance for chance, _, _ in row.choices))  # so likely the run ends here
            for (chance, _, targets), way in zip(row.choices, ways, strict=False):
                if way == _KNOWN:
                    leave += chance
                else:
                    leads[targets[way]] = leads.get(targets[way], 0.0) + chance
        inside.append(leads)
        leaves.append(leave)
    return inside, leaves


def _eliminate(rows: list[dict[int, float]], leaves: list[float], work: Work) -> list[_Pivot]:
    """Node by node: its number; by what its known part is multiplied; the weight that it then has in others; and of
    which later ones its own value is made. A closed set of nodes, from which nothing leaves, is worth 0."""
    into: list[set[int]] = [set() for _ in rows]
    for index, row in enumerate(rows):
        for target in row:
            if target != index:
                into[target].add(index)
    waiting = [(len(into[index]) * len(row), index) for index, row in enumerate(rows)]
    heapq.heapify(waiting)
    work.take(8 * len(rows))
    pivots: list[_Pivot] = []
    while waiting:
        cost, index = heapq.heappop(waiting)
        row = rows[index]
        row.pop(index, None)
        now = len(into[index]) * len(row)
        if now > cost and waiting and now > waiting[0][0]:
            heapq.heappush(waiting, (now, index))
            work.take(8)
            continue
        work.take(now + 4 * (len(into[index]) + len(row)))
        leaving = sum(row.values()) + leaves[index]
        below = [(target, weight / leaving) for target, weight in row.items()] if leaving else []
        away = leaves[index] / leaving if leaving else 1.0
        for target in row:
            into[target].discard(index)
        above = []
        for source in into[index]:
            other = rows[source]
            weight = other.pop(index)
            above.append((source, weight))
            leaves[source] += weight * away
            for target, share in below:
                if target in other:
                    other[target] += weight * share
                else:
                    other[target] = weight * share
                    if target != source:
                        into[target].add(source)
        pivots.append((index, 1.0 / leaving if leaving else 0.0, above, below))
    return pivots
