"""Requests of one owner that run at once share a line; each withdraws, settles and releases its own claims only."""

from __future__ import annotations

from kvpolicy.request import Owner
from tests.laws.world import World, spans

S = Owner(session="s")
POLICY = "policy p\nsystem { priority: 90 }\nturn { priority: 60 }\ntool_result { priority: 70 }\n"
ONE = spans(("system", 1), ("turn", 1))
TWO = spans(("system", 1), ("turn", 1), ("tool_result", 2))


def test_cancelling_the_second_withdraws_its_share_only() -> None:
    world = World(POLICY)
    first, _ = world.request(S, "ab", ONE)
    second, _ = world.at(1).request(S, "abcd", TWO)
    world.at(2).finish(first, finished=True)
    world.at(3).steering.cancel(second, 3.0)
    assert world.at(32.9).ranks("abcd") == [90, 70, 70, 70]
    assert world.at(33).ranks("abcd") == [90, 60, 35, 35]
    assert world.steering.counters["failures"] == 0


def test_cancelling_the_second_while_the_first_runs() -> None:
    world = World(POLICY)
    first, _ = world.request(S, "ab", ONE)
    second, _ = world.at(1).request(S, "abcd", TWO)
    world.at(3).steering.cancel(second, 3.0)
    assert world.at(33).ranks("abcd") == [90, 60, 35, 35]
    world.at(40).finish(first, finished=True)
    assert world.at(100).ranks("abcd") == [90, 60, 35, 35]


def test_what_a_cancelled_request_had_replaced_counts_again() -> None:
    world = World("policy p\nturn { priority: 60 }\n")
    world.ask(S, "ab", spans(("turn", 2)), finished=True)
    name, _ = world.at(1).request(S, "abcd", spans(("turn", 4)))
    world.at(2).steering.cancel(name, 2.0)
    assert world.at(31.9).ranks("abcd") == [60] * 4
    assert world.at(32).ranks("abcd") == [60, 60, 35, 35]


def test_a_hold_starts_when_the_last_request_with_the_span_lets_go() -> None:
    world = World("policy p\nturn { retention: hold 10s priority: 50 }\n")
    first, _ = world.request(S, "ab", spans(("turn", 2)))
    second, _ = world.at(1).request(S, "abcd", spans(("turn", 2), ("document", 2)))
    world.at(5).finish(first, finished=True)
    assert world.at(20).protected("abcd") == 2
    world.at(30).steering.cancel(second, 30.0)
    assert world.at(39.9).protected("abcd") == 2
    assert world.at(40).protected("abcd") == 0


def test_a_line_that_lost_its_claims_leaves_the_prompt_it_stood_on() -> None:
    world = World("policy p\nturn { priority: 80 }\n")
    world.request(S, "abcd", spans(("turn", 4)))
    world.steering.release(S, 0.0)
    world.ask(S, "abxy", spans(("turn", 4)), finished=True)
    assert (world.ranks("abxy"), world.ranks("abcd")) == ([80] * 4, [80, 80, 35, 35])
    world.check()


def test_a_request_whose_line_went_on_with_another_marks_nothing_when_it_grows() -> None:
    world = World(POLICY)
    first, _ = world.request(S, "ab", ONE)
    world.ask(S, "abcd", TWO, finished=True)
    world.prompts[first].append("a/b/out")
    world.steering.progress(first, world.now, hashes=["a/b/out"])
    assert world.ranks(["a", "b", "out"]) == [90, 70, 35]
    world.check()
    world.steering.preempt(first, world.now)
    world.steering.resume(first, world.now)
    world.check()
    world.finish(first, finished=True)
    world.check()


def test_marks_that_eviction_brought_to_one_place_all_go() -> None:
    world = World("policy p\ntool_result { priority: 70 retention: hold 5s }\nturn { priority: 20 retention: pin }\n")
    world.ask(S, "abcd", spans(("system", 2), ("turn", 1), ("tool_result", 1)), finished=True)
    world.at(5).ask(Owner(session="other"), "ab", spans(("system", 2)), finished=True)
    world.steering.evict(1, world.now)
    assert world.strengths("abcd") == [220, 220, 220, None]
    assert world.at(86401).ranks("abc") == [35, 35, 35]
    world.check()
