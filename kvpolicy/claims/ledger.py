"""The ledger: what every owner claims, from the first request to the last lapse.

Steering feeds it requests with their directives, ends of requests, and events; it keeps lines of claims and puts their
marks into the pool. Each call is a step at `now` (seconds, never going back); `advance` first makes what has lapsed
until then lapse, each at its own time.

    arrive   what a new request shows to be dead ends          place    its claims, once the engine has stored blocks
    grow     more blocks stored                                 plan     the same request read again
    finish   an answer ended        cancel   withdrawn          claim    a claim by call        release / end   the end
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from math import inf

from kvpolicy.blocks import Layout
from kvpolicy.claims import dead
from kvpolicy.claims.budget import Budget, Limit
from kvpolicy.claims.claim import Claim, spread_drops
from kvpolicy.claims.line import Line
from kvpolicy.claims.owners import Chain, Holder, OwnerKey, head_of, owner_key
from kvpolicy.claims.ranks import Lease, Mark, Ranks
from kvpolicy.claims.renew import renew
from kvpolicy.claims.strength import PROTECTED
from kvpolicy.claims.timers import Timers
from kvpolicy.directive import Directive
from kvpolicy.request import Owner, Request

ANSWER_GRACE_S = 2.0  # after an answer, until it is classified
LATE_S = 1.0  # a clock that asks for the present again is a fault of ours; it must not stop the time
CANCEL_GRACE_S = 30.0  # after a cancel, until its claims are withdrawn
BUDGET = 0.40  # of the first tier

Replan = Callable[[Line, float], None]


@dataclass(frozen=True, slots=True)
class Arrival:
    """A request that has come: layout of its spans, all its block hashes, the head of its chain. aside: its owner
    waits for a tool, and this request neither carries the result nor goes on where the answer that called ended."""

    request: Request
    layout: Layout
    hashes: Sequence[Hashable]
    head: Hashable
    aside: bool


class Ledger:
    """budget: the share of the first tier that may be protected. limits: quotas besides. replan: called with a line
    whose plan has to be read again at a time of its own (set by steering)."""

    def __init__(self, ranks: Ranks, *, budget: float = BUDGET, limits: tuple[Limit, ...] = ()) -> None:
        self.ranks = ranks
        self.holders: dict[OwnerKey, Holder] = {}
        self.timers: Timers[Line] = Timers()
        self.budget = Budget(ranks, int(budget * ranks.capacity), self._settle, limits)
        self.replan: Replan = _no_replan
        self.placed = 0  # plans taken up, so that a test can show who came through here
        self._turn = 0
        self._told: dict[Line, None] = {}  # in the order told: a set's order would be that of memory addresses

    # --- what the pool tells ------------------------------------------------------------------------------

    def released(self, mark: Mark, now: float) -> None:
        """A mark's last block was let go: its line's clocks may run now."""
        mark.notify = False
        if isinstance(mark.claim, Line):
            self._told[mark.claim] = None

    def emptied(self, mark: Mark, now: float) -> None:
        """A mark's prefix is gone, and with it the claims behind it."""
        if isinstance(mark.claim, Line):
            self._told[mark.claim] = None

    def heed(self, now: float) -> None:
        """Take up what the pool has told since."""
        while self._told:
            line = next(iter(self._told))
            del self._told[line]
            if line.running == 0 and line.length == 0:
                self._drop(line, now)
            else:
                self.settle(line, now)

    # --- requests -----------------------------------------------------------------------------------------

    def arrive(
        self, request: Request, layout: Layout, hashes: Sequence[Hashable], now: float, *, open_calls: bool = False
    ) -> Arrival:
        """A request has come, and its blocks are not looked up yet: what it shows to be dead ends. open_calls: whether
        a tool call of its owner is open."""
        holder = self._holder(request.owner)
        head = head_of(request, layout, hashes)
        aside = open_calls and dead.is_aside(holder, head, layout, hashes)
        if not holder.nameless:
            for line in dead.bury(holder, head, layout, hashes, open_calls):
                if line.claims:
                    self.settle(line, now)
                else:
                    self._drop(line, now)
        return Arrival(request, layout, hashes, head, aside)

    def place(
        self,
        arrival: Arrival,
        hashes: Sequence[Hashable],
        directives: Iterable[Directive],
        lease: Lease,
        now: float,
        replan: float | None = None,
    ) -> Line:
        """The request's claims, at the ends of its spans, as far as its blocks are stored. They replace what its owner
        claims on the prompt. replan: when the plan has to be read again (None: events alone can change it)."""
        request, head = arrival.request, arrival.head
        holder = self._holder(request.owner)
        chain = holder.chains.get(head)
        if chain is None:
            chain = holder.chains[head] = Chain()
        chain.running += 1
        line, gone = self._take_over(holder, chain, head, hashes, now)
        line.before = line.claims if line.running == 0 else line.before
        line.claims = renew(
            line.claims, gone, request, arrival.layout, hashes, {d.span: d for d in directives}, holder.nameless, now
        )
        for claim in line.claims:
            if claim.implicit and holder.manual:
                claim.yields = dead.stands_in(holder.manual.values(), claim, hashes)
            if holder.nameless and claim.full:
                holder.index[claim.proof] = line
        spread_drops(line.claims)
        line.request = request
        line.running += 1
        line.granted, line.grace, line.frozen, line.withdraw = inf, inf, None, inf
        line.replan = inf if replan is None else replan
        self.placed += 1
        self.settle(line, now, lease)
        return line

    def grow(self, line: Line, hashes: Sequence[Hashable], lease: Lease, now: float) -> None:
        """More of a running request is stored: `hashes` name all its blocks by now."""
        stored = lease.length
        for claim in line.claims:
            if claim.end is None:
                claim.length = claim.full = stored
                claim.proof = hashes[stored - 1] if stored else None
                if line.holder.nameless and stored:
                    line.holder.index[claim.proof] = line
        self.settle(line, now, lease)

    def plan(self, line: Line, directives: Iterable[Directive], now: float, replan: float | None = None) -> None:
        """The line's request read again: same spans, other values, the same clocks."""
        by_span = {directive.span: directive for directive in directives}
        nameless = line.holder.nameless
        for claim in line.claims:
            directive = by_span.get(claim.span)
            if directive is not claim.directive or directive is None:
                claim.apply(directive, nameless)
        spread_drops(line.claims)
        self._spread_beyond(line, now)
        line.granted = inf
        line.replan = inf if replan is None else replan
        self.placed += 1
        self.settle(line, now)

    def finish(self, line: Line, now: float, classified: bool = False) -> None:
        """An answer ended, and its blocks are released. Unless it is classified already, what it protected and the
        rank of its output stand until `classify`, or 2 s. Holds without an event start. A settling of the line has
        to follow (`plan` or `settle`)."""
        self._leave(line)
        frozen: dict[Claim, int] = {}
        waits = False
        for claim in line.claims:
            strength = claim.strength(now)
            if strength >= PROTECTED or claim.kind == "output":
                frozen[claim] = strength
            waits = waits or claim.lifetime == "request"
            claim.settled = True
            claim.release(now)
        line.before = None
        if classified:
            self.classify(line, now)
        elif frozen or waits:
            line.frozen, line.grace = frozen, now + ANSWER_GRACE_S

    def classify(self, line: Line, now: float) -> None:
        """What comes after the answer is known: its graces end, and claims `for request` with them."""
        line.frozen, line.grace = None, inf
        if line.running == 0:
            line.claims = [claim for claim in line.claims if claim.lifetime != "request"]
            if not line.claims:
                self._drop(line, now)

    def cancel(self, line: Line, now: float) -> None:
        """A request was withdrawn; what it alone claimed goes after 30 s."""
        self._leave(line)
        if line.running == 0:
            line.withdraw = now + CANCEL_GRACE_S
        self.settle(line, now)

    # --- calls --------------------------------------------------------------------------------------------

    def claim(self, owner: Owner, hashes: Sequence[Hashable], claim: Claim, now: float) -> Line | None:
        """A claim by call for the prompt with these block hashes; None where none of it is resident. A second one for
        the same blocks replaces it and keeps the clocks of `fixed` and `hold`."""
        holder = self._holder(owner)
        claim.length = claim.full = len(hashes)
        claim.proof, claim.born, claim.settled = hashes[-1], now, True
        key = (claim.full, claim.proof)
        line = holder.manual.get(key)
        if line is None:
            line = Line(holder, None)
            line.manual = True
        else:
            claim.first, claim.hold_from = line.claims[0].first, line.claims[0].hold_from
            claim.apply(claim.directive, nameless=False)
        claim.release(now)
        for other in holder.lines():
            if not other.manual and dead.yield_to(other, hashes):
                self.settle(other, now)
        line.claims, line.granted = [claim], inf
        holder.manual[key] = line
        self._settle(line, now, hashes, len(hashes))
        if line.length == 0:
            self._drop(line, now)
            return None
        self._protect(line, now)
        return line

    def release(self, owner: Owner, now: float, hashes: Sequence[Hashable] | None = None) -> int:
        """All claims of an owner end, or those whose end lies among `hashes`. Returns how many; again does nothing."""
        holder = self.holders.get(owner_key(owner))
        named = None if hashes is None else set(hashes)
        return 0 if holder is None else self._end(holder, lambda c: named is None or c.proof in named, now)

    def end(self, holder: Holder, lifetimes: frozenset[str], now: float) -> int:
        """The owner's claims with these lifetimes end; what it has dropped stays dropped."""
        return self._end(holder, lambda c: c.lifetime in lifetimes and not c.dropped, now)

    def release_all(self, now: float) -> int:
        """An operator takes all protection back; ranks stay. Returns how many lines lost some."""
        lines = [line for holder in list(self.holders.values()) for line in holder.protecting]
        for line in lines:
            line.granted = 0
            line.frozen = None
            self.settle(line, now)
        return len(lines)

    # --- time ---------------------------------------------------------------------------------------------

    def advance(self, now: float) -> None:
        """Everything that lapses until `now`, each at its own time."""
        while (due := self.timers.pop(now)) is not None:
            at, line = due
            if line.withdraw <= at:
                self._withdraw(line, at)
            if line.grace <= at:
                self.classify(line, at)
                line.replan = min(line.replan, at)
            if line.replan <= at and line.claims:
                line.replan = inf
                self.replan(line, at)
            self.settle(line, at)

    def settle(self, line: Line, now: float, lease: Lease | None = None) -> None:
        """Bring a line's marks and its protection up to date."""
        if not line.claims:
            if line.running == 0:
                self._drop(line, now)
            else:
                line.clear(self.ranks, now)
                self._unprotect(line)
            return
        self._settle(line, now, lease, None if lease is None else lease.length)
        if line.pieces or line.running:
            self._protect(line, now)
        elif line.manual or not line.marks or self._outlived(line, now):
            self._drop(line, now)
        else:
            self._protect(line, now)

    # --- inside -------------------------------------------------------------------------------------------

    def _settle(
        self, line: Line, now: float, at: Lease | Sequence[Hashable] | None = None, present: int | None = None
    ) -> None:
        due = line.settle(self.ranks, now, at, present)
        self.timers.arm(line, due if due > now else now + LATE_S)

    def _protect(self, line: Line, now: float) -> None:
        """Keep the count of who is protected since when, and the budget."""
        holder = line.holder
        if not line.pieces or line.pieces[-1][1] < PROTECTED:
            if line in holder.protecting:
                self._unprotect(line)
            return
        holder.protecting[line] = None
        if holder.since is None:
            self._turn += 1
            holder.since = self._turn
        self.budget.enter(line)
        self.budget.keep(line, now)

    def _unprotect(self, line: Line) -> None:
        line.holder.protecting.pop(line, None)
        self.budget.forget(line)
        if not line.holder.protecting:
            line.holder.since = None

    def holder(self, owner: Owner) -> Holder | None:
        """What is kept of an owner; None when it holds nothing."""
        return self.holders.get(owner_key(owner))

    def _holder(self, owner: Owner) -> Holder:
        key = owner_key(owner)
        holder = self.holders.get(key)
        if holder is None:
            holder = self.holders[key] = Holder(owner)
        return holder

    def _take_over(
        self, holder: Holder, chain: Chain, head: Hashable, hashes: Sequence[Hashable], now: float
    ) -> tuple[Line, list[Claim]]:
        """The line that a request's claims go to, and claims of its owner's other lines that they replace."""
        base: Line | None = None
        gone: list[Claim] = []
        if holder.nameless:
            index = holder.index
            candidates = {index[h]: None for h in index.keys() & set(hashes)} if index else {}
        else:
            candidates = {line: None for each in holder.chains.values() for line in each.lines}
        for line in candidates:
            count = line.reproduced(hashes)
            if count == len(line.claims) and line.head == head and (base is None or line.length > base.length):
                base, line = line, base  # noqa: PLW2901 - the longer one goes on, the other is replaced
                if line is None:
                    continue
                count = len(line.claims)
            if count:
                gone += line.claims[:count]
                self._forget_ends(line, line.claims[:count])
                line.claims = line.claims[count:]
                self.settle(line, now)
        if base is None:
            base = Line(holder, head)
            chain.lines.insert(0, base)
        else:
            self._forget_ends(base, base.claims)
            last = base.claims[-1] if base.claims else None
            if last is not None and last.length > last.full:  # a partial block's name is of one request only
                base.loosen(self.ranks, last.full, now)
        return base, gone

    def _forget_ends(self, line: Line, claims: Iterable[Claim]) -> None:
        if line.holder.nameless:
            for claim in claims:
                if line.holder.index.get(claim.proof) is line:
                    del line.holder.index[claim.proof]

    def _spread_beyond(self, line: Line, now: float) -> None:
        """A drop takes along what the owner's other lines hold behind it."""
        for dropped in line.claims:
            if dropped.dropped:
                for other in line.holder.lines():
                    if other is not line and dead.behind(other, dropped):
                        self.settle(other, now)
                return

    def _end(self, holder: Holder, ends: Callable[[Claim], bool], now: float) -> int:
        count = 0
        for line in holder.lines():
            kept = [claim for claim in line.claims if not ends(claim)]
            if len(kept) < len(line.claims):
                count += len(line.claims) - len(kept)
                self._forget_ends(line, [claim for claim in line.claims if ends(claim)])
                line.claims = kept
                if kept or line.running:
                    self._settle(line, now)
                    self._protect(line, now)
                else:
                    self._drop(line, now)
        return count

    def _leave(self, line: Line) -> None:
        line.running = max(0, line.running - 1)
        chain = line.holder.chains.get(line.head)
        if chain is not None:
            chain.running = max(0, chain.running - 1)
            self._reap(line.holder, line.head)

    def _withdraw(self, line: Line, now: float) -> None:
        line.withdraw = inf
        before = line.before or []
        line.before = None
        kept = [claim for claim in line.claims if claim.settled]
        line.claims = kept if kept else [claim for claim in before if claim.settled]
        self.settle(line, now)

    def _outlived(self, line: Line, now: float) -> bool:
        released = self.ranks.last_release(line.marks[0])
        return released is not None and released + line.longest_age <= now

    def _drop(self, line: Line, now: float) -> None:
        """The line is no more; an owner without lines is forgotten."""
        holder = line.holder
        self._forget_ends(line, line.claims)
        line.clear(self.ranks, now)
        line.claims = []
        line.replan = inf
        self.timers.disarm(line)
        self._unprotect(line)
        self._told.pop(line, None)
        if line.manual:
            for key in [key for key, other in holder.manual.items() if other is line]:
                del holder.manual[key]
        chain = holder.chains.get(line.head)
        if chain is not None and line in chain.lines:
            chain.lines.remove(line)
        self._reap(holder, line.head)

    def _reap(self, holder: Holder, head: Hashable) -> None:
        chain = holder.chains.get(head)
        if chain is not None and not chain.lines and not chain.running:
            del holder.chains[head]
        if not holder.chains and not holder.manual and self.holders.get(holder.key) is holder:
            del self.holders[holder.key]


def _no_replan(line: Line, now: float) -> None:
    return


__all__ = ["ANSWER_GRACE_S", "BUDGET", "CANCEL_GRACE_S", "Arrival", "Ledger"]
