"""One claim: what one owner wants for the prefix up to a span's end, with its clocks.

Made by the ledger from a directive, from a span without one (an implicit claim), or from a call. A claim does not
know the pool; `line` asks it for its strength and tells it when its last block was released.
"""

from __future__ import annotations

from collections.abc import Hashable
from math import inf

from kvpolicy import words
from kvpolicy.claims.strength import DEFAULT, DROPPED, PROTECTED
from kvpolicy.claims.wish import Wish
from kvpolicy.directive import DROP

NEVER = -inf  # one object: there are claims by the million
MAX_AGE_S = 24 * 3600.0  # a claim ends this long after its last use
NAMELESS_AGE_S = 3600.0  # an implicit one of an owner known by prefix alone
# No event ends these, and a drop reached through `any` spares them.
SHARED_LIFETIMES = frozenset({"agent", "workflow", "tenant"})


class Claim:
    """kind, end: the span (end in tokens; None: an output still growing), with its owner the claim's key.

    span: its index in the request's layout. length: blocks that it wants. full: full blocks among them; proof: the
    hash of the last full one, by which a later prompt is known to go through it. first: when the owner first claimed
    the span (`fixed` runs from there). priority, ttl, lifetime: the directive's. hold_s: a hold that starts at the
    release; hold_from: when it did. protected_until: seconds, -inf for never. expires: end of a `fixed`, else inf.
    born: a claim made without a request runs its `ttl` from here at the earliest. spread: a drop before it takes it
    along. yields: an explicit claim of the owner stands in for this implicit one. users: requests that made it and
    still run; settled: one that made it has finished, so cancelling another does not withdraw it. over, over_at: the
    start of a hold whose event has come, and when it ends for that. granted, kept: blocks up to which limits let it
    protect, and quotas on a tier let it rank above the lowest. plain: no clock of its own runs, so that all such claims
    with one directive have the same strength and times. timed: it has a lifetime of its own. ended: that is over, until
    a request uses the span again or a plan says something else of it.
    """

    __slots__ = (
        "born",
        "by_kind",
        "directive",
        "drop",
        "end",
        "ended",
        "expires",
        "first",
        "full",
        "granted",
        "hold_from",
        "hold_s",
        "kept",
        "kind",
        "length",
        "lifetime",
        "max_age",
        "over",
        "over_at",
        "plain",
        "priority",
        "proof",
        "protected_until",
        "settled",
        "span",
        "spread",
        "timed",
        "ttl",
        "users",
        "yields",
    )

    def __init__(self, kind: str, end: int | None, span: int, now: float, nameless: bool = False) -> None:
        self.kind = kind
        self.end = end
        self.span = span
        self.first = now
        self.length = 0
        self.full = 0
        self.proof: Hashable = None
        self.directive: Wish | None = None
        self.priority = DEFAULT
        self.ttl: float | None = None
        self.expires = inf
        self.protected_until = NEVER
        self.hold_s: float | None = None
        self.hold_from: float | None = None
        self.born = NEVER
        self.max_age = NAMELESS_AGE_S if nameless else MAX_AGE_S
        self.lifetime = words.DEFAULT_LIFETIME_BY_KIND.get(kind, words.DEFAULT_LIFETIME)
        self.drop = False
        self.by_kind = True
        self.spread = False
        self.yields = False
        self.settled = False
        self.users = 0
        self.over: float | None = None
        self.over_at = NEVER
        self.granted: float = inf
        self.kept: float = inf
        self.plain = True
        self.timed = nameless
        self.ended = False

    def apply(self, directive: Wish | None, nameless: bool) -> None:
        """Take a directive's values, keeping the clocks that run; None makes the claim an implicit one."""
        if self.ended and directive != self.directive:
            self.ended = False
        self.directive = directive
        if directive is None:
            self.priority, self.ttl, self.expires, self.protected_until = DEFAULT, None, inf, NEVER
            self.hold_s, self.drop = None, False
            self.lifetime = words.DEFAULT_LIFETIME_BY_KIND.get(self.kind, words.DEFAULT_LIFETIME)
            self.max_age = NAMELESS_AGE_S if nameless else MAX_AGE_S
            self.timed = nameless
            self.plain = True
            return
        self.yields = False
        self.priority = directive.priority
        self.lifetime = directive.lifetime
        self.max_age = MAX_AGE_S
        self.drop = directive.retention.mode == DROP
        self.by_kind = directive.drop_by_kind
        self.ttl, self.expires = directive.ttl, inf
        self.timed = directive.ttl is not None
        if directive.ttl is not None and directive.ttl_fixed:
            # INVARIANT: `fixed` runs from the first claim for the span and is never armed again.
            self.ttl, self.expires = None, self.first + directive.ttl
        until = directive.protected_until
        self.protected_until = NEVER if until is None else until
        self.hold_s = directive.hold_after_release
        self.plain = self.hold_s is None and self.over is None and not directive.ttl_fixed
        if self.hold_s is not None:  # planning again never moves a hold that has started
            self.protected_until = inf if self.hold_from is None else self.hold_from + self.hold_s
        if self.over is not None and self.over == (until if self.hold_s is None else self.hold_from):
            self.protected_until = min(self.protected_until, self.over_at)  # its event has come

    def came(self, event: str, now: float, ends: float) -> bool:
        """An event came to its owner: a hold until it, once begun, is over at `ends` (`now`, or a grace later). True
        where that shortened one."""
        directive = self.directive
        if directive is None or directive.retention.until != event or not now < self.protected_until < inf:
            return False  # one that starts at the release has no end before
        if ends >= self.protected_until:
            return False
        self.over = directive.protected_until if self.hold_s is None else self.hold_from
        self.over_at = self.protected_until = ends
        self.plain = False
        return True

    def release(self, now: float) -> None:
        """The request that made it has let go of its blocks: a hold without an event starts."""
        if self.hold_s is not None and self.hold_from is None:
            self.hold_from = now
            self.protected_until = now + self.hold_s

    def strength(self, now: float) -> int:
        """What it asks for at `now` while it lives."""
        if self.drop or self.spread:
            return DROPPED
        return PROTECTED + self.priority if now < self.protected_until else self.priority

    def expired(self, now: float) -> bool:
        """Whether its `fixed` lifetime is over, used or not."""
        # INVARIANT: a lifetime does not end a hold, and counts for ranks above the default alone.
        return self.expires <= now and now >= self.protected_until and self.priority > DEFAULT and not self.dropped

    def ends_at(self, released: float) -> float:
        """When it ends by its clocks, if its last block, released at `released`, is not used again."""
        since = released if released > self.born else self.born
        age = since + self.max_age
        if self.priority <= DEFAULT or self.drop or self.spread:  # `ttl` says how long it stays ABOVE the default
            return age
        end = self.expires
        if self.ttl is not None and since + self.ttl < end:
            end = since + self.ttl
        end = end if end > self.protected_until else self.protected_until
        return end if end < age else age

    @property
    def dropped(self) -> bool:
        """Whether its owner will not send it again."""
        return self.drop or self.spread

    @property
    def implicit(self) -> bool:
        """Whether no rule and no call asked for it."""
        return self.directive is None


def spread_drops(claims: list[Claim]) -> bool:
    """A dropped span takes along what its owner holds behind it; one reached through `any` spares shared lifetimes.
    Returns whether any is dropped, or was."""
    dropped = [claim for claim in claims if claim.drop or claim.spread]
    if not dropped:
        return False
    by_kind = through_any = False
    for claim in claims:
        if claim.drop:
            by_kind = by_kind or claim.by_kind
            through_any = True
        claim.spread = through_any and (by_kind or claim.lifetime not in SHARED_LIFETIMES)
        if claim.drop and not claim.by_kind and claim.lifetime in SHARED_LIFETIMES:
            claim.drop = False  # it reached this span through `any`, which does not touch shared lifetimes
    return True
