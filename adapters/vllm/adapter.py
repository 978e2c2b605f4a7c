"""vLLM as an adapter: what it can do with kvpolicy in its engine, and a plan as fields of a request's body.

`lower` writes what `kvpolicy.channel.payload` reads in the engine. Found by entry point; needs no vLLM.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from math import inf
from typing import Any

from kvpolicy import words
from kvpolicy.adapter import READY, Capabilities, Lowered
from kvpolicy.adapters.vllm.versions import RANGE, SUPPORTED
from kvpolicy.blocks import lay_out
from kvpolicy.channel.payload import KEY
from kvpolicy.directive import Directive, Plan
from kvpolicy.faults import Notice
from kvpolicy.request import Request

CAPABILITIES = Capabilities(
    name="vllm",
    version=SUPPORTED[0],
    unit_s=0.001,
    zero_means="nothing is kept",
    verified="engine-executed",
    versions=RANGE,
    granularity="range",
    merge="strongest claim of all owners",
    ttl_origin="last release",
    ranks_change=True,
    tiers=("gpu",),
    prefetch=False,
    events=True,
)


class Vllm:
    """The adapter."""

    @property
    def capabilities(self) -> Capabilities:
        """What a vLLM with kvpolicy in its engine can do."""
        return CAPABILITIES

    def lower(self, plan: Plan, request: Request) -> Lowered:
        """Fields for the body of the request: `vllm_xargs`, which every one of vLLM's routes passes on."""
        layout = lay_out(request)
        told = told_of(plan, request)
        losses = tuple(_losses(plan))
        claimed = max((layout.prefix(directive.span) for directive in plan.directives), default=0)
        answer = {
            "status": "clipped" if losses else "accepted",
            "requested": claimed,
            "granted": claimed,
            "reason": losses[0].code if losses else None,
        }
        text = json.dumps(told, separators=(",", ":"), allow_nan=False)
        return Lowered({"vllm_xargs": {KEY: text}}, losses, READY, answer)


def told_of(plan: Plan, request: Request) -> dict[str, Any]:
    """What the engine is told of a request: its owner and what has happened to it, and its spans, each with what was
    decided for it. Times become seconds from the plan's own."""
    layout = lay_out(request)
    made = {directive.span: directive for directive in plan.directives}
    rows = []
    for index in layout.order:
        span = layout.spans[index]
        row: dict[str, Any] = {"kind": span.kind, "start": span.start, "end": span.end, "claim": str(index)}
        directive = made.get(index)
        if directive is not None:
            row.update(_wish(directive, plan.at))
        if directive is not None or index < layout.given:
            rows.append(row)
    owner = request.owner
    named = {name: getattr(owner, name) for name in ("tenant", "session", "run", "agent", "branch")}
    known = {k: v for k, v in named.items() if v is not None}
    told: dict[str, Any] = {"owner": known, "request": request.id, "spans": rows}
    if request.model is not None:
        told["model"] = request.model
    if request.key is not None:
        told["key"] = request.key
    if request.head is not None:
        told["head"] = request.head
    if request.waits:
        told["waits"] = list(request.waits)
    if request.brings:
        told["brings"] = True
    if request.events:
        told["events"] = list(request.events)
    return told


def _wish(directive: Directive, at: float) -> dict[str, Any]:
    row: dict[str, Any] = {"priority": directive.priority, "for": directive.lifetime}
    if directive.retention.mode != "normal":
        row["retention"] = directive.retention.mode
    if directive.retention.until is not None:
        row["until"] = directive.retention.until
    if directive.ttl is not None:
        row["ttl"] = directive.ttl
        if directive.ttl_fixed:
            row["fixed"] = True
    if directive.hold_after_release is not None:
        row["hold"] = directive.hold_after_release
    if directive.protected_until is not None:
        left = directive.protected_until - at
        row["protected_for"] = "never" if left == inf else max(left, 0.0)
        if left < inf:
            row["ends"] = directive.protected_until
    if not directive.drop_by_kind:
        row["by_kind"] = False
    return row


def _losses(plan: Plan) -> Iterator[Notice]:
    """What vLLM's GPU pool cannot do: it copies to lower tiers by rules of its own, and fetches nothing in advance."""
    below = sorted({r.tier for d in plan.directives for r in d.tier or () if r.tier != words.TIERS[0]})
    if below:
        yield Notice(
            "CLIPPED",
            f"vllm moves nothing to {', '.join(below)} on demand; the blocks keep their rank on the GPU",
            {"tiers": below},
        )
    if any(directive.prefetch for directive in plan.directives):
        yield Notice("CLIPPED", "vllm fetches nothing in advance; the blocks are loaded when a request needs them")


adapter = Vllm()
