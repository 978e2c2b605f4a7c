"""What is kept from plan to plan changes nothing: the same histories with everything asked and looked at anew."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvpolicy.claims.claim import Claim
from kvpolicy.language.load import load_text
from kvpolicy.plan import plan
from kvpolicy.policy.compile import compile as compile_policy
from kvpolicy.policy.policy import Policy
from kvpolicy.steering import replanning
from tests.laws.world import POLICIES, World, histories, play, policy

TEXTS = (
    *POLICIES,
    "policy guards\nsystem when hits(system) else 0 > 0 { priority: 50 ttl: 5min }\n"
    "on tool_call until tool_result { any { retention: hold 4s } any when idle() <= 6s { priority: 60 } }\n"
    "on session_end { turn, tool_result { retention: drop } }\n",
    "policy graces\non tool_call until tool_result { turn { retention: hold 50s priority: 70 } }\n"
    "layer late { turn when age() > 40s { priority: 45 ttl: 9s fixed } }\n"
    "limit turn { priority: at most 65 }\n",
    "policy spans\nturn[tokens > 4] { priority: 55 }\nany when pressure(gpu) > 50% { priority: 20 }\n"
    "document { priority: 30 + count(tool.duration) }\ndocument, scratchpad { share: session }\n",
)


class Forgetful:
    """A state without the short cuts that plans take where they find them."""

    per_span = True

    def __init__(self, state: Any) -> None:
        self._state = state

    def __getattr__(self, name: str) -> Any:
        if name in ("intervals_of", "kind_blind", "hits_stamp"):
            raise AttributeError(name)
        return getattr(self._state, name)


def anew(text: str) -> Any:
    """`plan` that keeps nothing: neither outlines nor tables, and asks for every span."""
    loaded = load_text(text)
    assert loaded.files is not None
    own = compile_policy(loaded.files)

    def made(policy: Policy, request: Any, state: Any, now: float, *kept: Any) -> Any:
        own._menus.clear()
        own._distinct.clear()
        return plan(own, request, Forgetful(state), now)  # type: ignore[arg-type]

    return made


@contextmanager
def without_memos(text: str) -> Iterator[None]:
    """Plans made anew, claims looked at one by one."""
    began, apply = Claim.__init__, Claim.apply

    def begin(self: Claim, *a: Any, **k: Any) -> None:
        began(self, *a, **k)
        self.plain = False

    def take(self: Claim, *a: Any, **k: Any) -> None:
        apply(self, *a, **k)
        self.plain = False

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replanning, "plan", anew(text))
        patch.setattr(Claim, "__init__", begin)
        patch.setattr(Claim, "apply", take)
        yield


def seen(world: World) -> list[object]:
    """Everything that a step may have changed: what leaves first, ranks, and when each line is looked at again."""
    steering = world.steering
    lines = [line for holder in steering.ledger.holders.values() for line in holder.lines()]
    running = [r.plan and (r.plan.directives, r.plan.share, r.plan.notices) for r in steering.running.values()]
    return [
        steering.pool.eviction_order(),
        [world.strengths([h.rsplit("/", 1)[-1] for h in prompt]) for prompt in world.prompts.values()],
        [(line.replan, line.granted, line.length) for line in lines],
        [str(row) for row in running],
        {name: count for name, count in steering.counters.items() if name != "plans"},
    ]


# Sessions whose prompts grow from pause to pause: what is kept is met again, with other times.
pauses = st.lists(
    st.one_of(
        st.builds(
            lambda owner, length, end: ("ask", owner, 0, list(range(length)), end),
            st.integers(0, 1),
            st.integers(1, 7),
            st.sampled_from([1, 1, 1, 0, 2]),
        ),
        st.tuples(st.just("wait"), st.sampled_from([0.5, 1.0, 2.0, 3.0, 5.0, 10.0, 31.0])),
        st.tuples(st.just("event"), st.sampled_from(["tool_result", "tool_call", "session_end"]), st.integers(0, 1)),
        st.tuples(st.just("open"), st.integers(0, 1), st.just(0), st.lists(st.integers(0, 7), max_size=5)),
        st.tuples(st.just("close"), st.integers(0, 2)),
    ),
    min_size=4,
    max_size=20,
)


@pytest.mark.parametrize("text", TEXTS, ids=lambda text: text.split()[1])
@given(st.one_of(pauses, pauses, histories), st.integers(12, 40))
@settings(max_examples=30)
def test_the_same_with_and_without_what_is_kept(text: str, history: list[tuple[object, ...]], blocks: int) -> None:
    kept: list[list[object]] = []
    world = World(text, blocks)
    play(world, history, lambda w: kept.append(seen(w)))
    fresh: list[list[object]] = []
    with without_memos(text):
        play(World(text, blocks), history, lambda w: fresh.append(seen(w)))
    assert kept == fresh
    assert world.steering.counters["failures"] == 0


@pytest.mark.parametrize("blocks", [29])
def test_what_a_replay_kept_says_nothing_of_another_time(blocks: int) -> None:
    """A bound that had passed in one replay is still to come in the next, which begins at 0 again."""
    text = POLICIES[5]
    policy.cache_clear()
    history: list[tuple[object, ...]] = [("ask", 0, 0, [2, 3], 1), ("event", "compact", 2), ("wait", 4000.0)]
    before: list[tuple[object, ...]] = [*history, ("event", "compact", 0)]  # read again once the bound has passed
    play(World(text, blocks), before)
    test_the_same = test_the_same_with_and_without_what_is_kept.hypothesis.inner_test  # type: ignore[attr-defined]
    test_the_same(text, history, blocks)


def test_the_comparison_sees_a_memo_that_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    from kvpolicy.plan.outline import Outline

    text = TEXTS[len(POLICIES)]
    history: list[tuple[object, ...]] = [("ask", 0, 0, [1, 2], 1), ("wait", 5.0), ("ask", 0, 0, [1, 2, 3], 1)]
    outcomes = []
    for broken in (False, True):
        if broken:
            monkeypatch.setattr(Outline, "subject", lambda self, group: None)
        rows: list[list[object]] = []
        play(World(text, 12), history, lambda w, rows=rows: rows.append(seen(w)))  # type: ignore[misc]
        outcomes.append(rows)
    assert outcomes[0] != outcomes[1]
