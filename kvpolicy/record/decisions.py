"""The decision log of `kvp serve`. It has no text: runs of a prompt are known by their digests (`prefix`), their
lengths by the counted tokens, spread evenly over the runs that a prompt has more than the longest known one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from kvpolicy.record.calls import Recorded
from kvpolicy.record.reading import MOST_TOKENS, Lines, guarded, name_of, objects, sound
from kvpolicy.simulate.prompt_parts import Parts


def decisions(lines: Lines, counts: Counter[str]) -> Iterator[Recorded]:
    """One call a row."""
    parts = Parts()
    for row in objects(lines, counts):
        call = guarded(counts, _call, row, parts)
        if call is not None:
            yield call


def _call(row: Mapping[str, Any], parts: Parts) -> Recorded:
    digests, total, tools = row.get("prefix"), _count(row.get("prompt_tokens")), _count(row.get("tool_calls") or 0)
    if not isinstance(digests, list) or not digests:
        raise ValueError("no runs")
    runs = [bytes.fromhex(digest) for digest in digests]
    owner = {"session": name_of(row.get("owner")), "run": name_of(row.get("run"))}
    at = None if row.get("at") is None else float(row["at"]) - float(row.get("seconds") or 0.0)
    call = sound(Recorded(
        at, (), owner, name_of(row.get("model")),
        "tool_use" if tools else None, ["tool"] * tools, row.get("output_tokens"), row.get("seconds"),
    ))  # fmt: skip
    # Last: a row that is refused is not remembered, as later ones would be laid out by it.
    units, before = [], 0
    for run, end in zip(runs, parts.ends(digests, total), strict=True):
        units.append((run, end - before))
        before = end
    call.units = units
    return call


def _count(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MOST_TOKENS:
        raise ValueError("a length or a count is none")
    return value
