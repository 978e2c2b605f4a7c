"""When a line's claims end, and when it wants to be looked at again.

Called by `line` at every settling. Clocks run from releases, which the pool is asked for as rarely as will do.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from kvpolicy.claims.ranks import Ranks
from kvpolicy.claims.strength import DEFAULT

if TYPE_CHECKING:
    from kvpolicy.claims.line import Line


def lapse(line: Line, ranks: Ranks, now: float, held: bool) -> float:
    """End for good the claims whose lifetime is over, in the front or not, so that no later use by others revives
    them. Returns when the next one may end."""
    soonest = inf
    tail: float | None = None
    asked = held or not line.marks
    frozen = line.frozen if now < line.grace else None
    lives: object = line  # the directive of a plain claim that lives: others with it live as long
    for claim in line.claims:
        if not claim.timed or claim.ended or (claim.directive is lives and claim.plain):
            continue
        if frozen and claim in frozen:
            continue
        if claim.expired(now):
            claim.ended = True
            continue
        if held or now < claim.protected_until:
            end = claim.protected_until if now < claim.protected_until else claim.expires
            soonest = min(soonest, end) if now < end else soonest
            lives = claim.directive if claim.plain else lives
            continue
        soonest = min(soonest, claim.expires) if now < claim.expires else soonest
        if not asked:
            tail, asked = ranks.last_release(line.marks[0]), True
        # Whoever uses the end uses all before it, so no block was released earlier than the tail.
        released = tail
        if tail is None or claim.ends_at(tail) <= now:
            released = ranks.last_release(line.marks[0], min(claim.length, line.length)) if line.marks else None
        if released is None:  # held: its whole time is still to come
            soonest = min(soonest, now + max(1.0, min(claim.max_age, inf if claim.ttl is None else claim.ttl)))
        elif (end := claim.ends_at(released)) <= now:
            claim.ended = True
        else:
            soonest = min(soonest, end)
            if released is tail and claim.plain and not claim.dropped:
                lives = claim.directive
    return soonest


def due(line: Line, ranks: Ranks, now: float, held: bool) -> float:
    """The first time at which a member of the front changes by its clocks."""
    soonest = min(line.grace, line.withdraw, line.replan)
    if held:  # `ttl` does not run; only ends with a date of their own count
        for _, _, claim in line.pieces:
            if now < claim.protected_until < soonest:
                soonest = claim.protected_until
            if now < claim.expires < soonest and claim.priority > DEFAULT:
                soonest = claim.expires
        return soonest
    skip = len(line.marks) - len(line.pieces)
    for place, (_, _, claim) in enumerate(line.pieces):
        mark = line.marks[place + skip]
        released = ranks.last_release(mark)
        if released is None:  # someone else's request holds it: its time has not begun
            if claim.ttl is not None:
                mark.notify = True
            end = min(claim.ends_at(inf), now + claim.max_age)
        else:
            end = claim.ends_at(released)
        if now < claim.protected_until < end:
            end = claim.protected_until
        soonest = end if end < soonest else soonest
    if skip and line.claims:  # nothing claims the end any more; the anchor goes with the last claim's age
        released = ranks.last_release(line.marks[0])
        soonest = min(soonest, (now if released is None else released) + line.longest_age)
    return soonest
