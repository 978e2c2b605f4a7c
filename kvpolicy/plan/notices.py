"""What the caller of a plan should know about it: spans too short to matter, shares that differ, unknown positions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kvpolicy import words
from kvpolicy.blocks import Layout
from kvpolicy.directive import Verdict
from kvpolicy.faults import Notice

_NARROWEST_FIRST = {share: place for place, share in enumerate(words.SHARES)}


def unplaced_from(extra: Mapping[str, object]) -> int | None:
    """The token from which positions are unknown: the start of the first image whose expansion nobody told.

    An image stands in the text as one placeholder and in the engine as many; until their number is known, no later
    token has a place.
    """
    images = extra.get("images")
    if not isinstance(images, Sequence):
        return None
    starts = [_number(image, "start") for image in images if not _number(image, "length")]
    known = [start for start in starts if start is not None]
    if len(known) < len(starts):
        return 0  # an image that may be anywhere
    return min(known, default=None)


def position_unknown(layout: Layout, unplaced: int) -> Notice:
    """No directive for the spans that reach beyond the first image of unknown length."""
    lost = [i for i in layout.order if layout.spans[i].end is None or layout.end(i) > unplaced]
    return Notice(
        "POSITION_UNKNOWN",
        f"the image at token {unplaced} has no expanded length, so no directive is made for spans that reach beyond it",
        {"spans": sorted(lost)},
    )


def short_spans(layout: Layout) -> frozenset[int]:
    """The stated spans that hold no full block, and never will."""
    long = 2 * layout.block_size  # there is a full block within so many tokens, wherever they start
    stated = enumerate(layout.spans[: layout.given])
    few = [at for at, span in stated if span.end is not None and span.end - span.start < long]
    return frozenset([at for at in few if not layout.inside(at)])


def shorter_than_block(layout: Layout, span: int) -> Notice:
    """A stated span that holds no full block."""
    stated = layout.spans[span]
    length = layout.end(span) - stated.start
    return Notice(
        "SPAN_SHORTER_THAN_BLOCK",
        f"{stated.kind} [{stated.start}, {layout.end(span)}) holds no full block: {length} tokens, blocks of "
        f"{layout.block_size}",
        {"span": span, "tokens": length, "block_size": layout.block_size},
    )


def narrowest_share(shares: Mapping[str, int]) -> tuple[str, Notice | None]:
    """The share of the whole request, and a notice where its spans differ.

    shares: each value met, with one span that has it. An engine has one salt for a request.
    """
    if not shares:
        return words.DEFAULT_SHARE, None
    if len(shares) == 1:
        return next(iter(shares)), None
    narrowest = min(shares, key=_NARROWEST_FIRST.__getitem__)
    ordered = sorted(shares, key=_NARROWEST_FIRST.__getitem__)
    return narrowest, Notice(
        "SHARE_NARROWED",
        f"spans ask for share {' and '.join(ordered)}; a request has one salt, so all are shared by {narrowest} only",
        {"share": narrowest, "asked": ordered},
    )


def clipped(kind: str, span: int, verdict: Verdict) -> Notice:
    """A value that a limit has cut, or that was computed outside its range."""
    details: dict[str, object] = {"span": span, "property": verdict.property, "rule": verdict.rule}
    if verdict.limited_by is None:
        return Notice("CLIPPED", verdict.notice or f"{verdict.property} of {kind} was brought into its range", details)
    details["limit"] = verdict.limited_by
    text = f"{verdict.property} of {kind} is {verdict.value} because of the limit {verdict.limited_by}"
    return Notice("CLIPPED", text, details)


def _number(image: object, key: str) -> int | None:
    value = image.get(key) if isinstance(image, Mapping) else None
    return value if isinstance(value, int) else None
