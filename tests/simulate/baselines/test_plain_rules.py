"""One lifetime for everything is the engine's own order, and a pin on everything is cut to the budget: it costs no more
than doing without the protected part of the memory."""

from __future__ import annotations

import pytest

from kvpolicy.simulate.names import Contender
from kvpolicy.simulate.replay import Replay
from kvpolicy.simulate.tally import Tally
from kvpolicy.simulate.trace import Call, Facts
from kvpolicy.simulate.workloads.catalogue import workload

TTL = 'policy uniform_ttl "One lifetime for everything."\n\nany { priority: 60  ttl: 10min }\n'
PINS = 'policy pins "A pin on everything."\n\nany { retention: pin }\n'
BUDGET = 0.4


def hits(calls: list[Call], text: str | None, blocks: int) -> list[int]:
    """Of every call."""
    policy = None if text is None else Contender("rule", "policy", False, text=text).policy()
    tally = Tally("rule", False, blocks)
    replay, found = Replay(policy, blocks, 16, tally), []
    for call in calls:
        before = tally.block_hits
        replay.feed(call)
        found.append(tally.block_hits - before)
    assert replay.end().failures == 0
    return found


@pytest.mark.parametrize(("name", "sessions"), [("uniform-chat", 60), ("one-shot", 300)])
@pytest.mark.parametrize("share", [0.05, 0.2, 0.5])
def test_one_lifetime_for_everything_is_lru_exactly(name: str, sessions: int, share: float) -> None:
    """Where nothing is dead or ended: call by call the same hits."""
    facts = Facts()
    calls = list(workload(name, 11, {"sessions": sessions}).calls(facts))
    blocks = int(share * facts.unique_blocks)
    assert hits(calls, TTL, blocks) == hits(calls, None, blocks)


@pytest.mark.parametrize(("name", "sessions"), [("uniform-chat", 60), ("continuum-swe", 15)])
def test_pins_on_everything_are_cut_to_the_budget(name: str, sessions: int) -> None:
    """They never do worse than the engine's own order in the memory that they leave, and everything is served."""
    facts = Facts()
    calls = list(workload(name, 11, {"sessions": sessions}).calls(facts))
    for share in (0.15, 0.3):
        blocks = int(share * facts.unique_blocks)
        pinned, left = sum(hits(calls, PINS, blocks)), sum(hits(calls, None, int((1 - BUDGET) * blocks)))
        assert pinned >= left
