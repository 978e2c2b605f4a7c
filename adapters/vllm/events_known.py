"""What events tell, fed to a plan: a span that need not stay on the GPU ranks low there once a copy below is known.

vLLM's pool moves nothing on demand, so a rung below the GPU alone would mean nothing. Where its offloading connector
has copied the blocks, and events have said so, their GPU copies are the first that may go. Reads a `Residency` and a
plan; the result goes to the adapter's `lower`, or over the control channel for a span that has been idle.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kvpolicy import words
from kvpolicy.blocks import lay_out
from kvpolicy.directive import Directive, Plan
from kvpolicy.request import Request
from kvpolicy.residency import Residency

SUNK = 0  # the priority of a GPU copy that another one below stands in for
_LEVELS = {tier: level for level, tier in enumerate(words.TIERS)}


def copies_of(residency: Residency, worker: str, rank: int, tokens: Sequence[int], now: float) -> list[tuple[str, ...]]:
    """The tiers that hold each full block of a prompt, highest first, as events told; empty where that is unknown.
    Renews nothing."""
    rows = []
    for name in residency.blocks_of(worker, rank, tokens):
        rows.append(() if name is None else residency.lookup(worker, rank, [name], now)[0].tiers)
    return rows


def sink_copied(plan: Plan, request: Request, copies: Sequence[tuple[str, ...]], idle_s: float = 0.0) -> Plan:
    """The plan with low ranks for spans whose rung, after `idle_s` seconds without use, is below the GPU and whose
    blocks all have a copy at that tier or lower. A span that is protected keeps what it has."""
    layout = lay_out(request)
    made = []
    for directive in plan.directives:
        level = _level(directive, idle_s)
        owned = layout.owned(directive.span)
        copied = bool(owned) and all(index < len(copies) and _below(copies[index], level) for index in owned)
        protected = directive.protected_until is not None or directive.hold_after_release is not None
        sinks = level > 0 and copied and not protected and directive.priority > SUNK
        made.append(replace(directive, priority=SUNK) if sinks else directive)
    return replace(plan, directives=tuple(made))


def _level(directive: Directive, idle_s: float) -> int:
    """How far down it may be by now."""
    reached = [_LEVELS.get(rung.tier, 0) for rung in directive.tier or () if rung.after_s <= idle_s]
    return reached[-1] if reached else 0


def _below(tiers: tuple[str, ...], level: int) -> bool:
    return any(_LEVELS.get(tier, 0) >= level for tier in tiers)
