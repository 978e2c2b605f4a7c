"""What `kvp simulate --engine-model` says: the JSON document, and the table for people. Reads an outcome."""

from __future__ import annotations

from textwrap import wrap

from kvpolicy.faults import Notice
from kvpolicy.simulate.closed.compare import ClosedOutcome
from kvpolicy.simulate.closed.frozen import digest
from kvpolicy.simulate.closed.tally import ClosedTally
from kvpolicy.simulate.columns import aligned

LEGEND = (
    "Requests take time on a modelled engine: no figure here is of a real one. Hit ratio: share of all prompt blocks "
    "found when a request was first admitted. First token: from a call's arrival to the first token of its answer. "
    "Session: from its first call to its last answer, pauses of tools and humans included. Times in seconds."
)
_HEAD = (
    "policy",
    "blocks",
    "hit ratio",
    "recomputed",
    "first token p50",
    "p90",
    "session mean",
    "p90",
    "preempted",
    "refused",
    "busy",
)
_WIDTH = 110


def notices(outcome: ClosedOutcome) -> list[Notice]:
    """The trace's own, capacities that nothing ever left, and requests that fit nowhere."""
    found = list(outcome.facts.notices)
    still = sorted(
        {t.capacity_blocks for t in outcome.tallies} - {t.capacity_blocks for t in outcome.tallies if _moved(t)}
    )
    if still:
        sizes = ", ".join(f"{size:,}" for size in still)
        message = f"at {sizes} blocks nothing was ever evicted, so policies cannot differ"
        found.append(Notice("NO_PRESSURE", message, {"capacity_blocks": still}))
    for size, refused in sorted({(t.capacity_blocks, t.refused) for t in outcome.tallies if t.refused}):
        message = (
            f"at {size:,} blocks {refused:,} requests can never fit with their answers; they were refused, and their "
            "sessions are not among those whose time is given"
        )
        found.append(Notice("CAPACITY_TOO_SMALL", message, {"capacity_blocks": size, "refused": refused}))
    return found


def _moved(tally: ClosedTally) -> bool:
    return bool(tally.evictions or tally.preemptions)


def document(outcome: ClosedOutcome, price_ratio: float) -> dict[str, object]:
    """`{"trace", "engine_model", "runs", "notices"}`; the latency keys are in every run."""
    engine = outcome.engine
    return {
        "trace": {**outcome.facts.as_json(), "pauses_from_stamps": outcome.stamped},
        "engine_model": {
            **engine.model.as_json(),
            "cpu_blocks": engine.cpu_blocks,
            "disk_blocks": engine.disk_blocks,
            "queue": engine.queue,
            "digest": digest(),
        },
        "runs": [tally.as_json(price_ratio, None) for tally in outcome.tallies],
        "notices": [notice.as_json() for notice in notices(outcome)],
    }


def table(name: str, outcome: ClosedOutcome) -> str:
    """Aligned columns, one group of rows per capacity, the legend below."""
    facts, model = outcome.facts, outcome.engine.model
    rows = ((tally.capacity_blocks, _row(tally)) for tally in outcome.tallies)
    lines = [
        f"trace     {name}: {facts.label}" if facts.label != "file" else f"trace     {name}",
        f"          {facts.requests:,} requests, {facts.unique_blocks:,} unique blocks of {facts.block_size} tokens, "
        f"{facts.sessions:,} sessions",
        f"engine    {model.name}: a step takes {1e3 * model.overhead_s:g} ms + {1e6 * model.token_s:g} us a token, "
        f"at most {model.chunk:,} tokens and {model.seqs:,} requests; queue {outcome.engine.queue}",
        f"          {model.source}",
        "",
    ]
    lines += aligned(_HEAD, rows)
    lines += ["", *wrap(LEGEND, _WIDTH)]
    lines += [f"notice {notice.code}: {notice.message}" for notice in notices(outcome)]
    return "\n".join(lines)


def _row(tally: ClosedTally) -> tuple[str, ...]:
    row = tally.as_json(1.0, None)
    ttft, session = row["ttft_s"], row["session_s"]
    assert isinstance(ttft, dict)
    assert isinstance(session, dict)
    return (
        tally.policy,
        f"{tally.capacity_blocks:,}",
        f"{100 * tally.hit_ratio:.2f} %",
        f"{tally.recomputed_tokens:,}",
        _seconds(ttft["p50"]),
        _seconds(ttft["p90"]),
        _seconds(session["mean"]),
        _seconds(session["p90"]),
        f"{tally.preemptions:,}",
        f"{tally.refused:,}",
        f"{100 * tally.busy_s / tally.makespan_s:.0f} %" if tally.makespan_s else "-",
    )


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:,.2f}"


def failures(outcome: ClosedOutcome) -> list[str]:
    """One sentence for every run in which planning broke."""
    return [
        f"{tally.policy} at {tally.capacity_blocks:,} blocks: planning broke {tally.failures:,} times, and those "
        "calls were served as without a policy; the figures of this run are not the policy's"
        for tally in outcome.tallies
        if tally.failures
    ]
