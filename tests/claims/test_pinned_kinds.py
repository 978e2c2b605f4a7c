"""Lines with several protected kinds: what the budget leaves is what taking claims strongest first would leave.

The reference works on sets of block names and knows neither pieces that stand aside nor cuts that are given back.
"""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kvpolicy.claims.budget import Budget
from kvpolicy.claims.line import Line
from kvpolicy.claims.strength import PROTECTED
from kvpolicy.request import Owner
from tests.laws.world import World, prompt_of, spans

TWO = "policy two\nsystem { retention: pin priority: 90 }\nturn { retention: pin priority: 60 }\n"
THREE = TWO + "tool_result { retention: pin priority: 40 }\n"
MIXED = TWO + "tool_result { retention: pin priority: 60 }\ndocument { retention: pin priority: 20 }\n"
BLOCKS, OWNERS = 40, 6

asks = st.tuples(
    st.just("ask"),
    st.integers(0, OWNERS - 1),
    st.integers(0, 4),  # blocks behind the system prompt that every owner of it has
    st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 2)),  # blocks of each kind that are its own
    st.booleans(),
)
steps = st.lists(
    st.one_of(
        asks,
        asks,
        asks,
        st.tuples(st.just("evict"), st.integers(1, 8)),
        st.tuples(st.just("leave"), st.integers(1, 4)),
        st.tuples(st.just("release"), st.integers(0, OWNERS - 1)),
        st.tuples(st.just("wait"), st.sampled_from([1.0, 3.0])),
    ),
    min_size=3,
    max_size=25,
)
# Eviction brings the pieces of several kinds to the place where the system prompt ends, which others protect, too.
MET = [
    ("ask", 0, 0, (1, 1, 0), True),
    ("ask", 2, 0, (1, 1, 0), True),
    ("evict", 4),
    ("ask", 4, 0, (0, 0, 0), True),
    ("ask", 5, 0, (0, 0, 0), True),
    ("ask", 0, 0, (1, 1, 0), True),
]


def _prompt(number: int, shared: int, own: int) -> list[str]:
    """Two system prompts, each of three owners; the last two owners have much of their own behind it."""
    system = [f"head{number % 2}"] + ([f"system{number}.{i}" for i in range(5)] if number >= OWNERS - 2 else [])
    turns = [f"turn{number % 2}.{i}" for i in range(shared)]
    return system + turns + [f"own{number}.{i}" for i in range(own)]


def _strongest_first(world: World, budget: Budget, now: float) -> None:
    """Claims in order of priority, then of who was protected first, each as far as it fits."""
    protected: list[tuple[int, int, Line, int]] = []
    for line in budget._entered:
        since = line.holder.since
        assert since is not None
        pieces = ((min(n, line.length), s) for n, s, _ in line.pieces if s >= PROTECTED)
        protected += [(-strength, since, line, length) for length, strength in pieces if length]
    kept: set[str] = set()
    fits: dict[Line, int] = {}
    for _, _, line, length in sorted(protected, key=lambda row: row[:2]):
        fits.setdefault(line, 0)
        for place, block in enumerate(prompt_of(line, world.prompts)[:length]):
            if block not in kept and len(kept) >= budget.blocks:
                break
            kept.add(block)
            fits[line] = max(fits[line], place + 1)
    for _, _, line, length in protected:
        if fits[line] < length:
            budget._cut(line, fits[line], now)


def _played(policy: str, history: list[tuple[object, ...]], budget: float, naive: bool) -> list[object]:
    """What every owner's line keeps after each step, and the order of eviction."""
    world, seen = World(policy, BLOCKS, budget), []
    with pytest.MonkeyPatch.context() as patch:
        if naive:
            patch.setattr(Budget, "_keep_whole", lambda self, now: _strongest_first(world, self, now))
        for what, *rest in history:
            if what == "ask":
                number, shared, (turns, results, documents), finished = rest  # type: ignore[misc]
                words = _prompt(number, shared, turns + results + documents)
                system = len(words) - shared - turns - results - documents
                parts = (
                    ("system", system),
                    ("turn", shared + turns),
                    ("tool_result", results),
                    ("document", documents),
                )
                end = {"finished": True} if finished else {}
                world.ask(Owner(session=f"s{number}"), words, spans(*parts), **end)
            elif what == "evict":
                world.steering.evict(rest[0], world.now)  # type: ignore[arg-type]
            elif what == "leave":  # little more than what owners share
                world.steering.evict(world.steering.pool.used - rest[0], world.now)  # type: ignore[operator]
            elif what == "release":
                world.steering.release(Owner(session=f"s{rest[0]}"), world.now)
            else:
                world.at(world.now + rest[0])  # type: ignore[operator]
            pool, ledger = world.steering.pool, world.steering.ledger
            assert world.steering.counters["failures"] == 0
            assert pool.protected_blocks <= ledger.budget.blocks
            kept = {
                holder.owner.session: [(min(n, line.length), s) for n, s, _ in line.pieces]
                for holder in ledger.holders.values()
                for line in holder.lines()
            }
            seen.append((kept, pool.protected_blocks, pool.eviction_order()))
    return seen


@given(st.sampled_from([TWO, THREE, MIXED]), steps, st.sampled_from([0.1, 0.2, 0.35]))
@example(THREE, MET, 0.1)
@settings(max_examples=200, deadline=None)
def test_what_is_left_is_what_taking_the_strongest_first_leaves(
    policy: str, history: list[tuple[object, ...]], budget: float
) -> None:
    assert _played(policy, history, budget, naive=False) == _played(policy, history, budget, naive=True)
