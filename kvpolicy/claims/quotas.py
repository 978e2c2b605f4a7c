"""Quotas on a tier itself: what a group of claims covers there beyond its share ranks lowest, in eviction order.

A block counts once in a group, whoever of it claims the block. Claims are taken strongest first, of equal ones the
latest used first, each as far as there is room; what is left over would be the first to be evicted, and it sinks to
the lowest rank. It stays there until its owner is planned again, so that nothing rises because others lapse. Another
owner's claim on such a block holds it as ever.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from math import inf

from kvpolicy.claims.claim import Claim
from kvpolicy.claims.line import Line
from kvpolicy.claims.ranks import Tiers
from kvpolicy.claims.strength import PROTECTED

Group = Callable[[Line, Claim], Hashable | None]
Settle = Callable[[Line, float], None]


@dataclass(frozen=True, slots=True)
class Share:
    """blocks: how many of `tier` the claims of one group may cover. group: which one a claim of a line is counted in;
    None: not limited."""

    tier: str
    blocks: int
    group: Group
    name: str = ""


class Quotas:
    """The shares of tiers, and who is counted in which group. settle: brings a line up to date after a cut."""

    def __init__(self, tiers: Tiers, shares: tuple[Share, ...], settle: Settle) -> None:
        self.shares = shares
        self._tiers = tiers
        self._settle = settle
        self._members: dict[tuple[int, Hashable], dict[Line, None]] = {}
        self._groups: dict[Line, list[tuple[int, Hashable]]] = {}
        self._dirty: dict[tuple[int, Hashable], None] = {}
        self._moved = 0

    def changed(self, line: Line) -> None:
        """The line claims other blocks than before, or is no more."""
        for key in self._groups.pop(line, ()):
            self._members[key].pop(line, None)
            if not self._members[key]:
                del self._members[key]
                self._dirty.pop(key, None)
        keys = {
            (number, group): None
            for number, share in enumerate(self.shares)
            for claim in line.claims
            if (group := share.group(line, claim)) is not None
        }
        for key in keys:
            self._members.setdefault(key, {})[line] = None
            self._dirty[key] = None
        if keys:
            self._groups[line] = list(keys)

    def keep(self, now: float) -> None:
        """Sink what is beyond its share by now."""
        moved = self._tiers.movements
        if moved != self._moved:  # what sank to a tier is counted there
            self._moved = moved
            self._dirty.update(dict.fromkeys(self._members))
        while self._dirty:
            key, _ = self._dirty.popitem()
            self._keep(key, now)

    def _keep(self, key: tuple[int, Hashable], now: float) -> None:
        share, members = self.shares[key[0]], self._members.get(key, {})
        if sum(line.length for line in members) <= share.blocks:
            return
        order = []
        for number, line in enumerate(members):
            if not line.marks:
                continue
            for claim in line.claims:
                if not claim.yields and not claim.ended and share.group(line, claim) == key[1]:
                    order += _steps(line, claim, self._tiers, number, now)
        order.sort(key=lambda step: step[0], reverse=True)
        tally = self._tiers.tally(share.tier, share.blocks)
        cut: dict[Line, None] = {}
        for _, line, claim, length in order:
            kept = tally.add(line.marks[0], length)
            if kept < length and kept < claim.kept:
                # INVARIANT: what a group covers of a tier without being ranked lowest never exceeds its share.
                claim.kept, line.cut = kept, True
                cut[line] = None
        for line in cut:
            self._settle(line, now)


def _steps(
    line: Line, claim: Claim, tiers: Tiers, number: int, now: float
) -> list[tuple[tuple[float, float, int, int], Line, Claim, int]]:
    """A claim's prefix in pieces of one strength, with their place in the order of eviction."""
    length = int(min(claim.length, line.length, claim.kept))
    if length <= 0:
        return []
    strength = claim.strength(now)
    if strength < 0:  # dropped: lowest as it is
        return []
    released = tiers.last_release(line.marks[0], length)
    age = inf if released is None else released
    steps = [((float(strength), age, -number, -length), line, claim, length)]
    granted = int(min(line.granted, claim.granted, length))
    if strength >= PROTECTED and granted < length:
        steps[0] = ((float(claim.priority), age, -number, -length), line, claim, length)
        if granted:
            steps.append(((float(strength), age, -number, -granted), line, claim, granted))
    return steps
