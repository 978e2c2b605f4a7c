"""What `kvp simulate` says: the JSON document, and the table for people. Reads an outcome, writes text."""

from __future__ import annotations

from textwrap import wrap

from kvpolicy.faults import Notice
from kvpolicy.simulate.columns import aligned
from kvpolicy.simulate.simulate import Outcome
from kvpolicy.simulate.tally import Tally

LEGEND = (
    "Hit ratio: share of all prompt blocks that were found in the cache. Recomputed: tokens that had been computed "
    "before and were computed again. Gap closed: how far a policy gets from lru (0 %, what engines do today) to "
    "belady-resident (100 %, the best order that knows the future)."
)
COLUMNS = (
    "Blocks, tokens: the size of the cache. Infinite: what a cache would find that never has to let go. Seconds: how "
    "long this replay took here; it says nothing about a server."
)
_WIDTH = 110  # of the lines of the legend


def notices(outcome: Outcome) -> list[Notice]:
    """The trace's own notices, and one where no capacity puts the cache under pressure."""
    found = list(outcome.facts.notices)
    unique = outcome.facts.unique_blocks
    roomy = sorted({t.capacity_blocks for t in outcome.tallies if t.capacity_blocks >= unique})
    if roomy:
        sizes = ", ".join(f"{size:,}" for size in roomy)
        message = (
            f"at {sizes} blocks the whole trace fits ({unique:,} unique blocks): nothing is ever evicted, so "
            "policies cannot differ"
        )
        found.append(Notice("NO_PRESSURE", message, {"capacity_blocks": roomy}))
    return found


def failures(outcome: Outcome) -> list[str]:
    """One sentence for every run in which planning broke."""
    return [
        f"{tally.policy} at {tally.capacity_blocks:,} blocks: planning broke {tally.failures:,} times, and those "
        "calls were served as without a policy; the figures of this run are not the policy's"
        for tally in outcome.tallies
        if tally.failures
    ]


def document(outcome: Outcome, price_ratio: float) -> dict[str, object]:
    """`{"trace", "runs", "notices"}` of the interfaces."""
    return {
        "trace": outcome.facts.as_json(),
        "runs": [tally.as_json(price_ratio, outcome.gap_closed(tally)) for tally in outcome.tallies],
        "notices": [notice.as_json() for notice in notices(outcome)],
    }


_HEAD = ("policy", "blocks", "tokens", "hit ratio", "recomputed", "gap closed", "seconds")


def table(name: str, outcome: Outcome) -> str:
    """Aligned columns, one group of rows per capacity, the legend below."""
    facts = outcome.facts
    rows = (
        (tally.capacity_blocks, _row(tally, outcome.gap_closed(tally), facts.block_size)) for tally in outcome.tallies
    )
    lines = [
        f"trace     {name}: {facts.label}" if facts.label != "file" else f"trace     {name}",
        f"          {facts.requests:,} requests, {facts.block_refs:,} block references, {facts.unique_blocks:,} "
        f"unique blocks of {facts.block_size} tokens, {facts.sessions:,} sessions",
        f"sha256    {facts.sha256}",
        f"infinite  {_share(facts.seen_blocks, facts.block_refs)} hit ratio with room for everything",
        "",
    ]
    lines += aligned(_HEAD, rows)
    lines += ["", *wrap(f"{LEGEND} {COLUMNS}", _WIDTH)]
    lines += [f"notice {notice.code}: {notice.message}" for notice in notices(outcome)]
    return "\n".join(lines)


def _row(tally: Tally, gap: float | None, block_size: int) -> tuple[str, ...]:
    return (
        tally.policy,
        f"{tally.capacity_blocks:,}",
        _tokens(tally.capacity_blocks * block_size),
        f"{100 * tally.hit_ratio:.2f} %",
        f"{tally.recomputed_tokens:,}",
        "-" if gap is None else f"{100 * gap:.1f} %",
        f"{tally.wall_s:.2f}",
    )


def _tokens(count: int) -> str:
    """Thousands from 10,000 on, so that a column has one unit: `1,293k`."""
    return f"{count:,}" if count < 10_000 else f"{round(count / 1000):,}k"


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.2f} %" if whole else "-"
