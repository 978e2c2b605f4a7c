"""A line: one owner's claims along one prompt, and the few marks in the pool that stand for them.

A claim that ends before another of its owner which is at least as strong adds nothing to any block, so only the
front is marked: from the longest claim to shorter ones, each stronger than all behind it. Whenever a member of the
front weakens, ends or is cut, the next ones step forward in the same instant. The work follows claims, never blocks.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Sequence
from math import inf
from typing import TYPE_CHECKING

from kvpolicy.claims import lapsing
from kvpolicy.claims.claim import Claim
from kvpolicy.claims.ranks import Lease, Mark, Ranks
from kvpolicy.claims.strength import DROPPED, LOWEST, PROTECTED

if TYPE_CHECKING:
    from kvpolicy.claims.owners import Holder
    from kvpolicy.request import Request

Piece = tuple[int, int, Claim]  # length in blocks, strength, the claim behind it


class Line:
    """claims: in prompt order. pieces: the front, longest first. marks: those of the pieces, and an anchor without
    weight at the end where no piece is that long. running: requests that hold it. granted: blocks up to which its
    protections count (the budget's cut). cut: limits or quotas have cut some of its claims. The times say when the
    line is looked at again: grace (an answer may still be classified), withdraw (a cancelled request's claims go),
    replan (its plan has to be read again; valid_until: what the plan itself said of that).
    """

    __slots__ = (
        "before",
        "claims",
        "cut",
        "frozen",
        "grace",
        "granted",
        "head",
        "holder",
        "manual",
        "marks",
        "outline",
        "pieces",
        "queued",
        "replan",
        "request",
        "running",
        "steps",
        "valid_until",
        "withdraw",
    )

    def __init__(self, holder: Holder, head: Hashable) -> None:
        self.holder = holder
        self.head = head
        self.claims: list[Claim] = []
        self.pieces: list[Piece] = []
        self.marks: list[Mark] = []
        self.request: Request | None = None
        self.outline: object = None  # what the planner keeps of that request
        self.running = 0
        self.granted: float = inf
        self.cut = False
        self.grace = self.withdraw = self.replan = self.valid_until = inf
        self.frozen: dict[Claim, int] | None = None
        self.before: list[Claim] | None = None
        self.queued: tuple[int, ...] = ()  # priorities at which it stands in the budget's order
        self.manual = False
        self.steps: list[Mark] = []  # marks without weight where a ladder of claims changes its tier

    @property
    def length(self) -> int:
        """Blocks of its longest claim that are left."""
        return self.marks[0].length if self.marks else 0

    def reproduced(self, hashes: Sequence[Hashable]) -> int:
        """How many of its claims, from the first, end on the prompt with these block hashes."""
        claims, total = self.claims, len(hashes)
        if not claims:
            return 0
        full = claims[-1].full
        if full == 0 or (full <= total and hashes[full - 1] == claims[-1].proof):
            return len(claims)

        def misses(claim: Claim) -> bool:
            full = claim.full
            return full > 0 and (full > total or hashes[full - 1] != claim.proof)

        return bisect_left(claims, True, key=misses)

    @property
    def longest_age(self) -> float:
        """Seconds after the last use at which none of its claims is left, whatever else they ask for."""
        return max((claim.max_age for claim in self.claims), default=0.0)

    def settle(
        self, ranks: Ranks, now: float, at: Lease | Sequence[Hashable] | None = None, present: int | None = None
    ) -> float:
        """Bring the marks in line with what the claims ask for at `now`. at, present: the prompt to mark on and its
        leading blocks that are resident, where blocks were stored since. Returns when to look again, inf for never."""
        held = at is not None and self.running > 0  # the request that is being placed holds all of it
        if present is None:
            present = self.length
        if self.claims:
            present = min(present, self.claims[-1].length)
        soonest = lapsing.lapse(self, ranks, now, held)
        self.pieces = self._front(ranks, now, present, held)
        place: Lease | Mark | Sequence[Hashable] | None = at
        if place is None:
            if not self.marks:
                return min(self.grace, self.withdraw, self.replan)
            place = self.marks[0]
        self._mark(ranks, place, present, now)
        due = lapsing.due(self, ranks, now, held)
        return due if due < soonest else soonest

    def _mark(self, ranks: Ranks, place: Lease | Mark | Sequence[Hashable], present: int, now: float) -> None:
        """Marks for the front, and an anchor without weight where it is shorter than `present`: those that stand are
        kept, others set, and what is left of the old ones is taken away."""
        pieces, before = self.pieces, self.marks
        old = {mark.length: mark for mark in before}
        merged = len(old) < len(before)  # eviction has brought several to one place
        self.marks = marks = []
        if present and (not pieces or pieces[0][0] < present):  # an anchor keeps the place for the next reading
            marks.append(self._at(ranks, place, old, present, None, now))
        for length, strength, _ in pieces:
            mark = old.pop(length, None)
            if mark is None:
                mark = ranks.mark(place, length, strength, self, now)
            elif mark.strength != strength:
                ranks.weigh(mark, strength, now)
            marks.append(mark)
        if merged:
            kept = set(map(id, marks))
            old = {number: mark for number, mark in enumerate(before) if id(mark) not in kept}
        for mark in old.values():
            ranks.unmark(mark, now)

    def uncut(self) -> None:
        """Its claims count in full again, until the next look at limits and quotas."""
        self.granted = inf
        if self.cut:
            self.cut = False
            for claim in self.claims:
                claim.granted = claim.kept = inf

    def loosen(self, ranks: Ranks, length: int, now: float) -> None:
        """Take away its marks beyond `length`: they stand on blocks of an earlier prompt. A settling with a lease
        has to follow."""
        for mark in self.marks:
            if mark.length > length:
                ranks.unmark(mark, now)
        self.marks = [mark for mark in self.marks if mark.length <= length and mark.length]

    def living(self, ranks: Ranks, now: float) -> list[Piece]:
        """Every claim that lives, whether the front shows it or not: length left, strength, claim; in prompt order."""
        lapsing.lapse(self, ranks, now, False)
        present = self.length
        return [
            (min(claim.length, present), claim.strength(now), claim)
            for claim in self.claims
            if min(claim.length, present) and not claim.yields and not claim.ended
        ]

    def clear(self, ranks: Ranks, now: float) -> None:
        """Take all its marks away."""
        for mark in (*self.marks, *self.steps):
            ranks.unmark(mark, now)
        self.marks, self.pieces, self.steps = [], [], []

    def _at(
        self,
        ranks: Ranks,
        place: Lease | Mark | Sequence[Hashable],
        old: dict[int, Mark],
        length: int,
        strength: int | None,
        now: float,
    ) -> Mark:
        mark = old.pop(length, None)
        if mark is None:
            return ranks.mark(place, length, strength, self, now)
        if mark.strength != strength:
            ranks.weigh(mark, strength, now)
        return mark

    def _front(self, ranks: Ranks, now: float, present: int, held: bool) -> list[Piece]:
        pieces: list[Piece] = []
        best, cut = -2, self.cut or self.granted < present
        frozen = self.frozen if now < self.grace else None
        tail_released: float | None = None
        asked = held or not self.marks
        shown: object = self  # the directive of the latest piece, where shorter ones with it can add nothing
        for claim in reversed(self.claims):
            if claim.directive is shown and claim.plain:
                continue
            strength = claim.strength(now)
            if frozen is not None:
                strength = max(strength, frozen.get(claim, strength))
            if (strength <= best and not cut) or claim.yields or claim.ended:
                continue
            length = claim.length if claim.length < present else present
            if length == 0:
                break
            if not asked:
                tail_released, asked = ranks.last_release(self.marks[0]), True
            if tail_released is not None and tail_released + claim.max_age <= now and self._aged(ranks, claim, now):
                continue
            if cut:
                length = self._granted(pieces, claim, strength, length)
                if length == 0:
                    continue
            elif pieces and pieces[-1][0] == length:
                pieces.pop()  # same end: the stronger one counts alone
            pieces.append((length, strength, claim))
            best = strength
            if not self.cut and frozen is None and claim.plain and strength != DROPPED:
                shown = claim.directive
        return _staircase(pieces) if cut else pieces

    def _granted(self, pieces: list[Piece], claim: Claim, strength: int, length: int) -> int:
        """How much of a claim counts in full; what is cut of it counts as less, and goes to `pieces`."""
        if length > claim.kept:  # by a quota on a tier: its tail ranks lowest
            pieces.append((length, min(strength, LOWEST), claim))
            length = int(claim.kept)
        granted = min(self.granted, claim.granted)
        if strength >= PROTECTED and length > granted:  # by the budget: its tail counts as its priority
            pieces.append((length, claim.priority, claim))
            length = int(granted)
        return length

    def _aged(self, ranks: Ranks, claim: Claim, now: float) -> bool:
        """Whether a claim was not used for as long as any claim lives; it ends then."""
        released = ranks.last_release(self.marks[0], min(claim.length, self.length))
        claim.ended = released is not None and max(released, claim.born) + claim.max_age <= now
        return claim.ended


def _staircase(pieces: list[Piece]) -> list[Piece]:
    """Of pieces in any order those that are the strongest for some block: longest first, each stronger than before."""
    front: list[Piece] = []
    for piece in sorted(pieces, key=lambda p: (-p[0], -p[1])):
        if not front or piece[1] > front[-1][1]:
            front.append(piece)
    return front
