"""Policies, plans and reports as a notebook shows them: small HTML tables, made when a cell displays one.

Called by the `_repr_html_` of `Policy`, `Plan` and the outcome of a simulation, with what it prints; imports nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from math import inf
from typing import Any

MOST = 200  # rows that are shown
_CELL = "text-align:left;padding:1px 10px;vertical-align:top"


def table(caption: str, head: Sequence[str], rows: Iterable[Sequence[object]], below: str = "") -> str:
    """One table. Everything is escaped; rows beyond `MOST` are counted."""
    listed = [list(row) for row in rows]
    said = "".join(f"<th style='{_CELL}'>{escape(each)}</th>" for each in head)
    body = "".join(
        "<tr>" + "".join(f"<td style='{_CELL}'>{escape(_plain(cell))}</td>" for cell in row) + "</tr>"
        for row in listed[:MOST]
    )
    more = f"{len(listed) - MOST} more rows. " if len(listed) > MOST else ""
    foot = f"<div>{escape(more + below)}</div>" if more or below else ""
    return (
        f"<div><b>{escape(caption)}</b><table><thead><tr>{said}</tr></thead><tbody>{body}</tbody></table>{foot}</div>"
    )


def policy(one: Any) -> str:
    """The rules of a policy: where each stands, which spans it means, and what it sets."""
    rows = [
        (
            rule.label,
            rule.layer[1],
            ", ".join(dict.fromkeys(each.kind for each in rule.matches)),
            ", ".join(rule.values),
            f"{rule.place.file}:{rule.place.line}",
        )
        for rule in one.rules
    ]
    below = f"{len(one.clamps)} limits, {len(one.quotas)} quotas, {len(one.workflows)} workflows"
    return table(f"policy {one.name}", ("rule", "layer", "spans", "sets", "place"), rows, below)


def plan(one: Any) -> str:
    """The directives of a plan, one a span. Times are seconds on the clock that it was planned on."""
    rows = [
        (
            each.kind,
            f"{each.start} to {'the end' if each.end is None else each.end}",
            each.priority,
            each.retention.mode,
            each.protected_until,
            each.expires,
            each.lifetime,
            each.rules.get("priority", ""),
        )
        for each in one.directives
    ]
    head = ("span", "tokens", "priority", "retention", "protected until", "expires", "for", "rule of the priority")
    below = "; ".join(f"{notice.code}: {notice.message}" for notice in one.notices)
    return table(f"plan of {one.request} at {one.at:g} s, shared by {one.share}", head, rows, below)


def report(facts: Any, tallies: Iterable[Any], gap_closed: Any) -> str:
    """What a simulation found, a row for each policy and size."""
    rows = []
    for tally in tallies:
        gap = gap_closed(tally)
        ratio = tally.block_hits / tally.block_refs if tally.block_refs else 0.0
        closed = "" if gap is None else f"{gap:.0%}"
        rows.append(
            (tally.policy, f"{tally.capacity_blocks:,}", f"{ratio:.1%}", f"{tally.recomputed_tokens:,}", closed)
        )
    head = ("policy", "blocks", "hit ratio", "recomputed tokens", "gap closed")
    below = f"{facts.requests:,} requests, {facts.block_refs:,} block references of {facts.block_size} tokens"
    return table(f"simulation of {facts.label}", head, rows, below)


def _plain(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return "never" if value == inf else f"{value:g}"
    return str(value)
