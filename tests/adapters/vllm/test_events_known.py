"""A rung below the GPU becomes a low rank there, once events tell of a copy below."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

import kvpolicy
from kvpolicy.adapters.vllm.decode import decode
from kvpolicy.adapters.vllm.events_known import SUNK, copies_of, sink_copied
from kvpolicy.directive import Plan
from kvpolicy.request import Owner, Request, Span
from kvpolicy.residency import Residency

TOKENS = list(range(100, 112))  # three blocks of four
REQUEST = Request("r", Owner(session="s"), 12, 4, spans=(Span("system", 0, 4), Span("document", 4, 12)))
TEXT = """
system { priority: 90 }
document { priority: 60  tier: cpu }
"""


def told(*rows: tuple[str, list[int], int | None, list[int]]) -> Residency:
    """medium, hashes, parent, tokens: as a server would tell them."""
    residency = Residency()
    for number, (medium, hashes, parent, tokens) in enumerate(rows):
        event = {
            "type": "BlockStored",
            "block_hashes": hashes,
            "parent_block_hash": parent,
            "token_ids": tokens,
            "block_size": 4,
            "medium": medium,
        }
        payload = msgspec.msgpack.encode([float(number), [event], 0])
        residency.take("w", 0, number, decode(payload).event, 0.0)
    return residency


def planned(text: str = TEXT) -> Plan:
    return kvpolicy.Engine(text, blocks=16, block_size=4).plan(REQUEST, now=0.0)


def priorities(plan: Plan) -> dict[str, int]:
    return {directive.kind: directive.priority for directive in plan.directives}


GPU = ("GPU", [1, 2, 3], None, TOKENS)


def test_tiers_come_from_events() -> None:
    residency = told(GPU, ("CPU", [2, 3], 1, TOKENS[4:]))
    assert copies_of(residency, "w", 0, TOKENS, 0.0) == [("gpu",), ("gpu", "cpu"), ("gpu", "cpu")]
    assert copies_of(residency, "w", 0, [7, *TOKENS[1:]], 0.0) == [(), (), ()]
    assert copies_of(residency, "elsewhere", 0, TOKENS, 0.0) == []


@pytest.mark.parametrize(
    ("copied", "priority"), [([], 60), ([2], 60), ([2, 3], SUNK)], ids=["no copy", "half of it", "all of it"]
)
def test_a_span_sinks_when_all_of_it_is_below(copied: list[int], priority: int) -> None:
    rows = [GPU] + ([("CPU", copied, 1, TOKENS[4 : 4 + 4 * len(copied)])] if copied else [])
    plan = sink_copied(planned(), REQUEST, copies_of(told(*rows), "w", 0, TOKENS, 0.0))
    assert priorities(plan) == {"system": 90, "document": priority}


def test_a_rung_that_is_not_reached_and_a_protected_span_stay() -> None:
    copies = [("gpu", "cpu")] * 3
    later = planned("document { priority: 60  tier: gpu, cpu after 10s }")
    assert priorities(sink_copied(later, REQUEST, copies)) == {"document": 60}
    assert priorities(sink_copied(later, REQUEST, copies, idle_s=11.0)) == {"document": SUNK}
    held = replace(later, directives=tuple(replace(d, protected_until=99.0) for d in later.directives))
    assert priorities(sink_copied(held, REQUEST, copies, idle_s=11.0)) == {"document": 60}
    disk = planned("document { priority: 60  tier: disk }")
    assert priorities(sink_copied(disk, REQUEST, copies)) == {"document": 60}
