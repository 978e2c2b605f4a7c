"""A request's spans become its owner's claims: those that stood before are kept with their clocks, others are made.

Called by the ledger for every request, so a session whose prompt only grows walks its old claims side by side with
the spans and makes new objects for the new ones alone.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

from kvpolicy.blocks import Layout
from kvpolicy.claims.claim import Claim
from kvpolicy.claims.wish import Wish
from kvpolicy.request import Request


def renew(
    old: list[Claim],
    gone: list[Claim],
    request: Request,
    layout: Layout,
    hashes: Sequence[Hashable],
    directives: Mapping[int, Wish | None],
    nameless: bool,
    now: float,
) -> list[Claim]:
    """The claims of a request in prompt order. old: of the line it extends; gone: of the owner's other lines that it
    replaces. nameless: its owner is known by prefix alone."""
    tokens, size, total = request.tokens, request.block_size, len(hashes)
    claims: list[Claim] = []
    others: dict[tuple[str, int | None], Claim] | None = None
    known = len(old)
    for span in layout.order:
        stated = layout.spans[span]
        kind, end = stated.kind, stated.end
        if end == stated.start:
            continue
        place = len(claims)
        if place < known and others is None and old[place].kind == kind and old[place].end == end and end is not None:
            claim = old[place]
        else:
            if others is None:
                others = {(c.kind, c.end): c for c in (*gone, *old[place:]) if c.end is not None}
            found = others.pop((kind, end), None)
            claim = Claim(kind, end, span, now, nameless) if found is None else found
        claim.span = span
        claim.ended = False  # used again
        directive = directives.get(span)
        if directive is not claim.directive:
            claim.apply(directive, nameless)
        claims.append(claim)
        reach = tokens if end is None else end
        full = reach // size
        full = full if full < total else total
        if full != claim.full or claim.proof is None:
            claim.full = full
            claim.proof = hashes[full - 1] if full else None
        # The last block of a prompt may have a name although it is not full; the claim of the prompt's end has it, too.
        claim.length = full if reach < tokens else min(-(-tokens // size), total)
    return claims
