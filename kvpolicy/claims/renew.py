"""A request's spans become its owner's claims: those that stood before are kept with their clocks, others are made.

Called by the ledger for every request, so of a session whose prompt only grows the old claims are taken as they are,
and looked for or made are those of the new spans alone.
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
    same = _in_common(old, layout, size)
    claims, spans = old[:same], list(layout.order[:same])
    if same < len(layout.order):
        left = (*gone, *old[same:])
        others: dict[tuple[str, int | None], Claim] = {(c.kind, c.end): c for c in left if c.end is not None}
        before = layout.ends[same - 1] if same else 0
        for span, kind, end in zip(layout.order[same:], layout.kinds[same:], layout.ends[same:], strict=True):
            if end == before:
                continue  # it holds nothing to keep
            before = end
            claim = others.pop((kind, end), None) or Claim(kind, end, span, now, nameless)
            claim.full = full = min((tokens if end is None else end) // size, total)
            claim.proof = hashes[full - 1] if full else None
            claims.append(claim)
            spans.append(span)
    for span, claim in zip(spans, claims, strict=True):
        claim.span = span
        claim.ended = False  # used again
        claim.length = claim.full
        directive = directives.get(span)
        if directive is not claim.directive:
            claim.apply(directive, nameless)
    # The last block of a prompt may have a name although it is not full; the claims of the prompt's end have it, too.
    for claim in reversed(claims):
        if claim.end is not None and claim.end < tokens:
            break
        claim.length = min(-(-tokens // size), total)
    return claims


def _in_common(old: list[Claim], layout: Layout, size: int) -> int:
    """How many claims, from the first, are those of spans that stand where they stood, as long as they were."""
    same = 0
    for claim, kind, end in zip(old, layout.kinds, layout.ends, strict=False):
        if end is None or claim.end != end or claim.kind != kind or claim.full != end // size:
            break
        same += 1
    return same
