"""Law 7. Lapsing never raises, deletes nothing, needs no memory pressure to be visible. And the clocks themselves."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from kvpolicy.request import Owner
from tests.laws.world import POLICIES, World, histories, play, spans

A, B = Owner(session="a"), Owner(session="b")
TTL = "policy p\nturn { priority: 70 ttl: 10s }\n"


@given(st.sampled_from(POLICIES), histories)
@settings(max_examples=80)
def test_while_only_time_passes_no_strength_rises_and_nothing_leaves(
    text: str, history: list[tuple[object, ...]]
) -> None:
    world = World(text)
    play(world, history)
    for name in list(world.steering.running):
        world.finish(name, finished=True)
    prompts = [[h.rsplit("/", 1)[-1] for h in p] for p in world.prompts.values()]
    before = [world.strengths(words) for words in prompts]
    for step in (0.1, 0.9, 1, 1, 2, 5, 10, 20, 30, 60, 3600, 86400):
        world.at(world.now + step)
        after = [world.strengths(words) for words in prompts]
        for old, new in zip(before, after, strict=True):
            assert all(n == o or (n is not None and o is not None and n < o) for o, n in zip(old, new, strict=True))
        before = after


def test_ttl_runs_from_the_last_release() -> None:
    world = World(TTL)
    world.ask(A, "ab", spans(("turn", 2)))
    assert world.at(9.99).ranks("ab") == [70, 70]
    assert world.at(10).ranks("ab") == [35, 35]  # expired at t >= end


def test_ttl_does_not_run_while_its_own_request_holds_the_block() -> None:
    world = World(TTL)
    name, _ = world.request(A, "ab", spans(("turn", 2)))
    assert world.at(100).ranks("ab") == [70, 70]
    world.finish(name, finished=True)
    assert world.at(109.9).ranks("ab") == [70, 70]
    assert world.at(110).ranks("ab") == [35, 35]


def test_ttl_does_not_run_while_anothers_request_holds_the_block() -> None:
    world = World(TTL)
    world.ask(A, "ab", spans(("turn", 2)))
    world.at(5)
    name, _ = world.request(B, "abc", spans(("document", 3)))
    assert world.at(50).ranks("ab") == [70, 70]
    world.finish(name, finished=True)
    assert world.at(59.9).ranks("ab") == [70, 70]
    assert world.at(60).ranks("ab") == [35, 35]


def test_what_has_lapsed_is_not_revived_by_anothers_use() -> None:
    world = World(TTL)
    world.ask(A, "ab", spans(("turn", 2)))
    world.at(20).ask(B, "ab", spans(("document", 2)))
    assert world.ranks("ab") == [35, 35]
    world.at(21).event("branch_done", session="a")  # settles its claims anew
    assert world.ranks("ab") == [35, 35]


def test_a_probe_renews_nothing() -> None:
    world = World(TTL)
    world.ask(A, "ab", spans(("turn", 2)))
    world.at(9).steering.pool.match(["a", "a/b"])
    world.steering.show(["a", "a/b"], 1)
    assert world.at(10).ranks("ab") == [35, 35]


def test_fixed_runs_from_the_first_claim_and_is_never_armed_again() -> None:
    world = World("policy p\nturn { priority: 70 ttl: 10s fixed }\n")
    world.ask(A, "ab", spans(("turn", 2)))
    world.at(6).ask(A, "ab", spans(("turn", 2)))
    assert world.at(9.9).ranks("ab") == [70, 70]
    assert world.at(10).ranks("ab") == [35, 35]
    world.at(11).ask(A, "ab", spans(("turn", 2)))
    assert world.ranks("ab") == [35, 35]


def test_a_lifetime_does_not_end_a_hold() -> None:
    world = World("policy p\nturn { priority: 70 ttl: 5s retention: hold 8s }\n")
    world.ask(A, "ab", spans(("turn", 2)), finished=True)
    assert world.at(7.9).protected("ab") == 2
    assert world.at(8).strengths("ab") == [35, 35]


def test_a_hold_starts_at_the_release_and_planning_again_never_moves_it() -> None:
    world = World("policy p\nturn { priority: 70 retention: hold 8s }\n")
    name, _ = world.request(A, "ab", spans(("turn", 2)))
    world.at(5).finish(name, finished=True)
    world.at(9).ask(A, "abc", spans(("turn", 2), ("document", 1)), finished=True)
    assert world.at(12.9).protected("ab") == 2
    assert world.at(13).strengths("ab") == [70, 70]


def test_a_lifetime_counts_above_the_default_only() -> None:
    world = World("policy p\nturn { priority: 20 ttl: 5s }\n")
    world.ask(A, "ab", spans(("turn", 2)))
    assert world.at(3600).ranks("ab") == [20, 20]


def test_without_a_claim_a_block_keeps_its_low_rank_until_it_is_used() -> None:
    world = World("policy p\nturn[session = a] { priority: 20 }\n")
    world.ask(A, "ab", spans(("turn", 2)))
    world.at(1).event("session_end", session="a")
    assert world.ranks("ab") == [20, 20]
    world.ask(B, "a", spans(("turn", 1)))
    assert world.ranks("ab") == [35, 20]


def test_a_claim_ends_24_hours_after_its_last_use() -> None:
    world = World("policy p\nsystem { priority: 90 }\n")
    world.ask(A, "ab", spans(("system", 1), ("turn", 1)))
    assert world.at(86_399).ranks("ab") == [90, 35]
    assert world.at(86_400).ranks("ab") == [35, 35]
    assert world.steering.stats()["claims"] == 0
    assert not world.steering.ledger.holders
