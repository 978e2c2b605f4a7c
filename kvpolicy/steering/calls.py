"""A claim by call: what an operator or a framework asks for on named blocks, without a request."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf

from kvpolicy import words
from kvpolicy.claims.claim import Claim
from kvpolicy.directive import DROP, HOLD, PIN, Directive, Retention, Ttl

CALLED = "claim"  # the kind of such a claim in rows
UNTIL_EVENT_S = 3600.0


@dataclass(frozen=True, slots=True)
class Wish:
    """priority: 0 to 100, None for the default rank. ttl: from the last release (or from now, on idle blocks), or
    fixed. max_age: seconds since the last use after which it ends, None for the usual 24 h."""

    priority: int | None = None
    ttl: Ttl | None = None
    retention: Retention = field(default_factory=Retention)
    lifetime: str = words.DEFAULT_LIFETIME
    max_age: float | None = None


def claim_of(wish: Wish, blocks: int, now: float) -> Claim:
    """The claim of a wish for `blocks` blocks, made at `now` (seconds)."""
    priority = words.DEFAULT_PRIORITY if wish.priority is None else min(100, max(0, wish.priority))
    until: float | None = None
    if wish.retention.mode == PIN:
        until = inf
    elif wish.retention.mode == HOLD:
        length = wish.retention.seconds if wish.retention.until is None else wish.retention.at_most
        until = now + (UNTIL_EVENT_S if length is None else length)
    ttl = wish.ttl if priority > words.DEFAULT_PRIORITY else None
    claim = Claim(CALLED, None, 0, now)
    claim.apply(
        Directive(
            span=0,
            kind=CALLED,
            start=0,
            end=None,
            priority=priority,
            retention=wish.retention,
            protected_until=until,
            expires=None,
            ttl=None if ttl is None else ttl.seconds,
            ttl_fixed=ttl is not None and ttl.fixed,
            lifetime=wish.lifetime,
            drop_by_kind=wish.retention.mode == DROP,
        ),
        nameless=False,
    )
    if wish.max_age is not None:
        claim.max_age, claim.timed = wish.max_age, True
    return claim
