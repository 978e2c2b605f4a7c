"""A request that ends in the instant in which it comes claims once, at its end: nobody sees a difference.

Random sessions under policies that hold, drop, pin and limit: every hit, every evicted block, the order of eviction
and the claims after each step are those of requests that claim when they come as well.
"""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvpolicy.claims.ledger import Ledger
from kvpolicy.pool import Pool
from kvpolicy.request import Owner, Request, Span
from kvpolicy.simulate.names import Contender, contender
from kvpolicy.steering import Steering, passing
from kvpolicy.workflow.events import Event

SIZE = 4
WHILE = "on tool_call until tool_result"
TEXTS = {
    "held at once": "turn { retention: hold 5s  priority: 70 } tool_result { priority: 20 }",
    "dropped": "tool_result { retention: drop } " + WHILE + " { turn { retention: pin } }",
    "let go": "turn { retention: hold 60s } " + WHILE + " { turn { retention: normal } }",
    "limited": WHILE + " { turn { retention: hold 9s } } limit turn { hold: at most 20% of gpu }",
    "two ranks": WHILE
    + " { turn { retention: hold 20s  priority: 50 } tool_result { retention: hold 20s  priority: 90 } }",
    "lives": "turn { priority: 60 } " + WHILE + " { turn, scratchpad { for: session } tool_result { for: request } }",
    "with the request": "scratchpad, tool_result { for: request  priority: 50 }",
    "idle": "tool_result when idle() >= 4s { priority: 20 } "
    + WHILE
    + " { turn { retention: hold 6s  priority: 70 } }",
    "for a human": "on turn_end until turn_start { any { retention: hold until turn_start at most 9s  ttl: 20s } }",
    "fixed": "turn { priority: 60  ttl: 10s fixed } " + WHILE + " { turn { priority: 80  ttl: 6s } }",
}


def policy_of(name: str) -> Any:
    text = TEXTS.get(name)
    if text is None:
        return contender(name).policy()
    return Contender("p", "policy", False, text=f'policy p "x" {text}').policy()


def history(seed: int, policy: Any, *, at_once: bool) -> list[Any]:
    """What was seen of one history, step by step."""
    draw = random.Random(seed)
    steering = Steering(policy, Pool(24, block_size=SIZE))
    prompts: dict[str, list[Span]] = {name: [Span("system", 0, 6)] for name in ("a", "b", "c")}
    seen: list[Any] = []
    now = 0.0
    for number in range(60):
        now += draw.choice((0.0, 0.5, 0.5, 3.0, 3.0, 8.0, 40.0))
        session = draw.choice("abc")
        spans = prompts[session]
        if len(spans) > 2 and draw.random() < 0.15:
            del spans[draw.randint(1, len(spans) - 1) :]
        end = spans[-1].end or 0
        spans.append(Span(draw.choice(("turn", "tool_result", "scratchpad")), end, end + draw.randint(0, 9)))
        tokens = spans[-1].end or 0
        head = draw.choice("kl") if session == "c" else "k"  # two chains of one owner, each with a line
        hashes = [(session if i else head, head, i, str(spans[1:3])) for i in range(tokens // SIZE)]
        request = Request(f"r{number}", Owner(session=session), tokens, SIZE, tuple(spans))
        calls = ["grep"] if draw.random() < 0.7 else []
        finished = draw.choice((True, True, False, None)) if not calls else None
        if at_once:
            outcome = steering.pass_by(request, hashes, now, tool_calls=calls, finished=finished)
        else:
            outcome = steering.request(request, hashes, now)
            steering.finish(request.id, now, tool_calls=calls, finished=finished)
        if draw.random() < 0.1:
            steering.event(
                Event(now, draw.choice(("session_end", "tool_result", "tool_call")), {"session": session}), now
            )
        told = {name: count for name, count in steering.stats().items() if name not in ("placed", "replans")}
        seen += [outcome.cached, outcome.evicted, steering.pool.eviction_order()]
        shown = steering.show_all(hashes, range(len(hashes)))
        seen += [[{**row, "claims": sorted(row["claims"], key=str)} for row in shown], told]
    return seen


@pytest.mark.parametrize("name", ["coding_agent", "chat_rag", "continuum", *TEXTS])
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_claiming_once_is_claiming_twice(name: str, seed: int) -> None:
    policy = policy_of(name)
    twice = history(seed, policy, at_once=False)
    assert history(seed, policy, at_once=True) == twice
    assert twice[-1]["failures"] == 0


def test_one_plan_and_one_settling_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing of them would stay; with quotas of its own a policy's claims are ranked as the request comes."""
    counts: list[int] = []
    settle = Ledger.settle

    def counted(*given: Any) -> None:
        counts.append(1)
        settle(*given)

    monkeypatch.setattr(Ledger, "settle", counted)
    for name, fewer in (("coding_agent", True), ("limited", False)):
        told = []
        for at_once in (False, True):
            counts.clear()
            history(7, policy_of(name), at_once=at_once)
            told.append(len(counts))
        assert (told[1] < told[0]) is fewer


@pytest.mark.parametrize("call", ["grep", None])
def test_what_breaks_costs_the_claims_and_tells_the_answer_once(
    call: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Told twice, one tool call would be two, and its owner would wait for a second result."""
    steering, owner = Steering(policy_of("coding_agent"), Pool(24, block_size=SIZE)), Owner(session="a")
    calls = [] if call is None else [call]

    def broken(*given: Any) -> None:
        raise RuntimeError

    monkeypatch.setattr(passing, "say", broken)
    request = Request("r", owner, 12, SIZE, (Span("system", 0, 8), Span("turn", 8, 12)))
    outcome = steering.pass_by(request, [1, 2, 3], 1.0, tool_calls=calls)
    assert outcome.failed
    assert steering.counters["failures"] == 1
    assert steering.state.waits_of(owner) == (("r",) if call else ())
    assert not steering.running
    assert steering.pool.available == 24  # its blocks are let go
    assert steering.state.idle_since(owner) == 1.0
    steering.event(Event(2.0, "tool_result", {"session": "a"}), 2.0)
    assert steering.state.phase(owner) != "tool_pause"
