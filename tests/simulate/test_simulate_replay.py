"""The replay loop: the service's own plan, claims and pool, and no knowledge of what comes later."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvpolicy.claims.ledger import Ledger
from kvpolicy.pool import Pool
from kvpolicy.simulate.names import Contender, contender
from kvpolicy.simulate.replay import Replay
from kvpolicy.simulate.tally import Tally
from kvpolicy.simulate.trace import Call
from kvpolicy.steering import passing, replanning
from kvpolicy.steering.steering import Steering
from tests.simulate.traces_for_tests import call

TEXT = """\
policy looks_at_answers "Hold over a tool's run, sink what waits for a person."
on tool_call until tool_result { any { retention: hold 30s } }
on turn_end until turn_start { any { priority: 10 } }
"""
POLICY = Contender("looks_at_answers", "policy", False, text=TEXT).policy


def trace_of(seed: int, length: int) -> list[Call]:
    """Sessions that grow, with answers that call tools or end."""
    draw = random.Random(seed)
    lists: dict[str, list[int]] = {}
    calls, at = [], 0.0
    for i in range(length):
        session = f"s{draw.randrange(4)}"
        grown = lists.setdefault(session, [])
        if draw.random() < 0.1:
            del grown[len(grown) // 2 :]
        grown += range(1000 * i, 1000 * i + draw.randint(1, 4))
        at += draw.choice((0.0, 1.0, 20.0, 200.0))
        calls.append(call(list(grown), at, session, draw.choice(("tool_use", "end_turn", None)), f"r{i}"))
    return calls


def decisions(calls: list[Call], policy: Any, capacity: int = 12) -> list[tuple[Any, ...]]:
    """What the engine did with every request, blocks by name."""
    replay = Replay(policy, capacity, 16, Tally("p", False, capacity))
    seen: list[tuple[Any, ...]] = []
    original = replay.steering.pass_by

    def watched(*args: Any, **more: Any) -> Any:
        outcome = original(*args, **more)
        seen.append((outcome.cached, tuple(outcome.stored), tuple(outcome.evicted)))
        return outcome

    replay.steering.pass_by = watched  # type: ignore[method-assign]
    for one in calls:
        replay.feed(one)
    assert replay.end().failures == 0
    return seen


@settings(max_examples=15)
@given(st.integers(0, 10**6), st.integers(1, 40))
def test_nothing_later_changes_an_earlier_decision(seed: int, cut: int) -> None:
    """Cutting the trace, or permuting all later rows with their answers, leaves every earlier decision as it was."""
    policy = POLICY()
    calls = trace_of(seed, 40)
    whole = decisions(calls, policy)
    assert decisions(calls[:cut], policy) == whole[:cut]
    later = calls[cut:]
    random.Random(seed).shuffle(later)
    times = sorted(one.at for one in later)
    moved = [Call(one.request, one.hashes, at, one.answer) for one, at in zip(later, times, strict=True)]
    assert decisions(calls[:cut] + moved, policy)[:cut] == whole[:cut]


def test_an_answer_is_known_only_afterwards() -> None:
    """The last call's own answer changes nothing about that call."""
    policy = POLICY()
    calls = trace_of(5, 30)
    for stop in ("tool_use", "end_turn", None):
        last = calls[-1]
        changed = call(list(last.hashes), last.at, last.request.owner.session, stop, "last")  # type: ignore[arg-type]
        assert decisions([*calls[:-1], changed], policy)[-1] == decisions(calls, policy)[-1]


def counting(monkeypatch: pytest.MonkeyPatch, where: Any, name: str) -> list[int]:
    count = [0]
    original: Callable[..., Any] = getattr(where, name)

    def counted(*args: Any, **more: Any) -> Any:
        count[0] += 1
        return original(*args, **more)

    monkeypatch.setattr(where, name, counted)
    return count


def test_a_replay_runs_through_plan_claims_and_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = {
        "request": counting(monkeypatch, Steering, "pass_by"),
        "say": counting(monkeypatch, passing, "say"),
        "claim": counting(monkeypatch, Ledger, "pass_by"),
        "acquire": counting(monkeypatch, Pool, "acquire"),
        "release": counting(monkeypatch, Pool, "release"),
    }
    decisions(trace_of(1, 25), contender("coding_agent").policy())
    assert {name: count[0] for name, count in counts.items()} == dict.fromkeys(counts, 25)


def test_a_policy_that_holds_at_once_goes_through_both_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = {
        "request": counting(monkeypatch, Steering, "request"),
        "finish": counting(monkeypatch, Steering, "finish"),
        "plan": counting(monkeypatch, replanning, "plan"),
        "place": counting(monkeypatch, Ledger, "place"),
        "acquire": counting(monkeypatch, Pool, "acquire"),
        "release": counting(monkeypatch, Pool, "release"),
    }
    text = 'policy p "x" system { retention: hold 5s } on tool_call { turn { priority: 60 } }'
    decisions(trace_of(1, 25), Contender("p", "policy", False, text=text).policy())
    once = ("request", "finish", "place", "acquire", "release")
    assert {name: counts[name][0] for name in once} == dict.fromkeys(once, 25)
    assert counts["plan"][0] >= 25  # every request, and again after answers


def test_lru_is_the_pool_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    planned = counting(monkeypatch, replanning, "plan")
    acquired = counting(monkeypatch, Pool, "acquire")
    decisions(trace_of(1, 25), contender("lru").policy())
    assert (planned[0], acquired[0]) == (0, 25)


def test_events_of_the_trace_reach_the_policy() -> None:
    """What an agent held goes when the trace says that its session is over."""
    policy = Contender("h", "policy", False, text='policy h "x"\nany[session = a] { priority: 90  ttl: 1h }\n').policy()
    kept = call([1, 2, 3], 0.0, "a", None, "r1")
    end = ({"event": "session_end", "session": "a"},)
    for after, hits in (((), 3), (end, 0)):
        first = Call(kept.request, kept.hashes, 0.0, kept.answer, (), after)
        fill = [call([10 * i, 10 * i + 1, 10 * i + 2], float(i), "b", None, f"f{i}") for i in range(1, 4)]
        assert decisions([first, *fill, call([1, 2, 3], 9.0, "a", None, "r2")], policy, 6)[-1][0] == hits


def test_a_planning_fault_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: Any) -> None:
        raise RuntimeError("no")

    monkeypatch.setattr(passing, "say", broken)
    replay = Replay(POLICY(), 12, 16, Tally("p", False, 12))
    for one in trace_of(1, 5):
        replay.feed(one)
    assert replay.end().failures == 5
    assert not replay.steering.running
    state = replay.steering.state
    assert all(state.idle_since(owner) is not None for owner in state.owners())  # their answers are over all the same
