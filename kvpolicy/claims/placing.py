"""Requests: what one shows to be dead, and what it claims.

`answering` is about their ends; `passing` has those that end as they come; `ledger` adds claims by call and the passing
of time.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from math import inf

from kvpolicy.blocks import Layout
from kvpolicy.claims import dead
from kvpolicy.claims.answering import Answering
from kvpolicy.claims.arrival import Arrival
from kvpolicy.claims.claim import Claim, spread_drops
from kvpolicy.claims.line import Line
from kvpolicy.claims.owners import Chain, Holder, head_of
from kvpolicy.claims.ranks import Lease
from kvpolicy.claims.renew import renew
from kvpolicy.claims.wish import Wish, wishes_of
from kvpolicy.directive import Directive
from kvpolicy.request import Request


class Placing(Answering):
    """The life of a request, as far as claims go."""

    def arrive(
        self,
        request: Request,
        layout: Layout,
        hashes: Sequence[Hashable],
        now: float,
        *,
        waits: Collection[str | None] = (),
    ) -> Arrival:
        """A request has come, and its blocks are not looked up yet: what it shows to be dead ends. waits: see
        `Arrival`."""
        holder = self._holder(request.owner)
        arrival = Arrival(request, layout, hashes, head_of(request, layout, hashes), waits)
        if waits and dead.is_aside(holder, arrival):
            arrival = replace(arrival, aside=True)
        if not holder.nameless:
            for line in dead.bury(holder, arrival):
                if line.claims:
                    self.settle(line, now)
                else:
                    self._drop(line, now)
        return arrival

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
        chain, line = self._claim(arrival, hashes, wishes_of(directives), now, replan)
        chain.running += 1
        line.running += 1
        made = line.claims
        for claim in made:
            claim.users += 1
        try:
            spread_drops(made)
            self.settle(line, now, lease)
            self._counted(line, now)
        except Exception:
            chain.running -= 1
            line.running -= 1
            for claim in made:
                claim.users -= 1
            self._undo(line, now)
            raise
        return line

    def _undo(self, line: Line, now: float) -> None:
        """What a request claims has broken on the way: a line that no other runs on is none, so that nothing waits for
        an end of the request that the ledger is not told of."""
        if not line.running:
            self._drop(line, now)

    def _claim(
        self,
        arrival: Arrival,
        hashes: Sequence[Hashable],
        wishes: Mapping[int, Wish | None],
        now: float,
        replan: float | None,
    ) -> tuple[Chain, Line]:
        """The chain of a request, and its line with what it wishes for its spans."""
        request, head = arrival.request, arrival.head
        holder = self._holder(request.owner)
        chain = holder.chains.get(head)
        if chain is None:
            chain = holder.chains[head] = Chain()
        holder.latest = head
        line, gone = self._take_over(holder, chain, head, hashes, now)
        line.before = line.claims if line.running == 0 else line.before
        line.claims = renew(line.claims, gone, request, arrival.layout, hashes, wishes, holder.nameless, now)
        if holder.manual:
            for claim in line.claims:
                if claim.implicit:
                    claim.yields = dead.stands_in(holder.manual.values(), claim, hashes)
        if holder.nameless:
            holder.index.update((claim.proof, line) for claim in line.claims if claim.full)
        line.request = request
        line.cut = line.cut or self.limited  # claims taken over from other lines were perhaps cut there
        line.uncut()
        line.grace, line.frozen, line.withdraw = inf, None, inf
        line.replan = inf if replan is None else replan
        self.placed += 1
        return chain, line

    def leave(self, arrival: Arrival) -> None:
        """The request makes no claims after all; an owner who has none is forgotten."""
        holder = self.holder(arrival.request.owner)
        if holder is not None:
            self._reap(holder, arrival.head)

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
        self._counted(line, now)

    def resume(self, line: Line, made: Iterable[Claim], hashes: Sequence[Hashable], lease: Lease, now: float) -> None:
        """A preempted request goes on, on other blocks. made: the claims that it made."""
        for claim in made:
            claim.ended = False  # used again
        self.grow(line, hashes, lease, now)

    def relabel(
        self,
        line: Line,
        request: Request,
        layout: Layout,
        hashes: Sequence[Hashable],
        directives: Iterable[Directive],
        now: float,
    ) -> None:
        """The line's running request has other spans at its end: the answer's parts in the place of its output. A
        settling of the line has to follow."""
        holder, old = line.holder, set(line.claims)
        self._forget_ends(line, line.claims)
        line.claims = renew(line.claims, [], request, layout, hashes, wishes_of(directives), holder.nameless, now)
        for claim in line.claims:
            if claim not in old:
                claim.users += 1
            if holder.nameless and claim.full:
                holder.index[claim.proof] = line
        spread_drops(line.claims)
        line.request = request

    def stand(self, line: Line, hashes: Sequence[Hashable], now: float) -> None:
        """A line that no request holds has other claims than before, which may reach further along its prompt; hashes
        name the prompt's blocks, its answer's included."""
        self._settle(line, now, hashes, len(hashes))
        self.settle(line, now)
        self._counted(line, now)

    def plan(self, line: Line, directives: Iterable[Directive], now: float, replan: float | None = None) -> None:
        """The line's request read again: same spans, other values, the same clocks."""
        by_span = wishes_of(directives)
        nameless = line.holder.nameless
        for claim in line.claims:
            directive = by_span.get(claim.span)
            if directive is not claim.directive:
                claim.apply(directive, nameless)
        if spread_drops(line.claims):
            self._spread_beyond(line, now)
        line.uncut()
        line.replan = inf if replan is None else replan
        self.placed += 1
        self.settle(line, now)
        self._counted(line, now)

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
            if last is None:  # whatever prompt it stood on, nothing ties it there any more
                base.loosen(self.ranks, 0, now)
            elif last.length > last.full:  # a partial block's name is of one request only
                base.loosen(self.ranks, last.full, now)
        return base, gone

    def _spread_beyond(self, line: Line, now: float) -> None:
        """A drop takes along what the owner's other lines hold behind it."""
        for dropped in line.claims:
            if dropped.dropped:
                for other in line.holder.lines():
                    if other is not line and dead.behind(other, dropped):
                        self.settle(other, now)
                return
