"""What another policy would mean for a trace: tokens whose directive differs, blocks whose rank or protection does.

Every call is planned under both policies in the state that a service would have then: when the request arrives, and
once more when its answer is done. Reads calls; `kvp diff --trace` shows the counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kvpolicy import plan as planning
from kvpolicy.blocks import Layout, lay_out
from kvpolicy.plan.rows import block_rows, directive_row
from kvpolicy.policy.policy import Policy
from kvpolicy.pool import Pool
from kvpolicy.request import Request
from kvpolicy.simulate.trace import END_TURN, Call, Facts, Trace
from kvpolicy.steering import Steering
from kvpolicy.workflow.events import Event

_ROOM = 100_000  # blocks: hardly anything is to leave, or functions that read the pool would differ for that reason


@dataclass(slots=True)
class Affected:
    """Counts over the calls of a trace. tokens: of prompts; by_kind: those affected, a kind of span each."""

    requests: int = 0
    requests_affected: int = 0
    tokens: int = 0
    tokens_affected: int = 0
    blocks: int = 0
    blocks_affected: int = 0
    by_kind: dict[str, int] = field(default_factory=dict)

    def as_json(self) -> dict[str, object]:
        """The `trace` object of `kvp diff --format json`."""
        return {
            "requests": {"of": self.requests, "affected": self.requests_affected},
            "tokens": {"of": self.tokens, "affected": self.tokens_affected},
            "blocks": {"of": self.blocks, "affected": self.blocks_affected},
            "tokens_by_kind": dict(sorted(self.by_kind.items())),
        }


def affected(trace: Trace, before: Policy, after: Policy) -> Affected:
    """Go through a trace under two policies. Raises InputFault with file and line."""
    found = Affected()
    sides: tuple[_Side, _Side] | None = None
    for call in trace.calls(Facts()):
        request = call.request
        if sides is None:
            sides = _Side(before, request.block_size), _Side(after, request.block_size)
        layout = lay_out(request)
        spans: set[int] = set()
        blocks: set[int] = set()
        one, two = (side.met(call, layout) for side in sides)
        for was, now in zip(one, two, strict=True):
            spans |= {span for span in was[0].keys() | now[0].keys() if was[0].get(span) != now[0].get(span)}
            blocks |= {i for i, (a, b) in enumerate(zip(was[1], now[1], strict=True)) if a != b}
        _count(found, request, layout, spans, blocks, len(one[0][1]))
    return found


def _count(found: Affected, request: Request, layout: Layout, spans: set[int], blocks: set[int], size: int) -> None:
    found.requests += 1
    found.requests_affected += bool(spans or blocks)
    found.tokens += request.tokens
    found.blocks += size
    found.blocks_affected += len(blocks)
    for index in spans:
        span = layout.spans[index]
        length = max(0, min(request.tokens if span.end is None else span.end, request.tokens) - span.start)
        found.tokens_affected += length
        found.by_kind[span.kind] = found.by_kind.get(span.kind, 0) + length


Seen = tuple[dict[int, dict[str, Any]], list[tuple[int, bool, bool]]]


class _Side:
    """One policy on its way through the trace."""

    def __init__(self, policy: Policy, block_size: int) -> None:
        self.policy = policy
        self.steering = Steering(policy, Pool(_ROOM, block_size=block_size))

    def met(self, call: Call, layout: Layout) -> list[Seen]:
        """The plan as the request arrives, and as its answer is done."""
        steering, now = self.steering, call.at
        for row in call.before:
            steering.event(_event(row, now), now)
        steering.request(call.request, call.hashes, now)
        found = [self._planned(call, layout)]
        answer = call.answer
        tools = [(tool, None) for tool in answer.tool_calls]
        finished = answer.stop == END_TURN or None
        steering.finish(call.request.id, now, tool_calls=tools, finished=finished)
        for row in call.after:
            steering.event(_event(row, now), now)
        return [*found, self._planned(call, layout)]

    def _planned(self, call: Call, layout: Layout) -> Seen:
        made = planning.plan(self.policy, call.request, self.steering.state, call.at)
        rows = {d.span: {k: v for k, v in directive_row(d).items() if k != "rules"} for d in made.directives}
        return rows, [(b.rank, b.protected, b.dropped) for b in block_rows(made, layout)]


def _event(row: Mapping[str, object], now: float) -> Event:
    at = row.get("at", now)
    attributes = {key: value for key, value in row.items() if key not in ("at", "event")}
    return Event(float(at) if isinstance(at, int | float) else now, str(row["event"]), attributes)
