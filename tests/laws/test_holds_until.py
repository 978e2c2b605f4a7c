"""`hold until E` ends when E comes to its owner, whatever interval it stands in; else after an hour or `at most`."""

from __future__ import annotations

from kvpolicy.directive import HOLD, Retention
from kvpolicy.request import Owner
from kvpolicy.steering.calls import Wish
from tests.laws.world import SILENT, World, chain, spans

S = Owner(session="s")
OTHER = Owner(session="other")
FREE = "policy p\nturn { retention: hold until step_start priority: 50 }\n"
OPEN = "policy p\non tool_call until turn_end { turn { retention: hold until step_end at most 20min priority: 50 } }\n"


def _asked(text: str, **end: object) -> World:
    world = World(text)
    for owner, words in ((S, "ab"), (OTHER, "xy")):
        world.ask(owner, words, spans(("turn", 2)), **end)
    return world


def test_the_event_ends_a_hold_that_no_interval_bounds() -> None:
    world = _asked(FREE, finished=True)
    world.at(5).event("step_end", session="s")
    assert world.protected("ab") == 2
    world.at(10).event("step_start", session="s")
    assert (world.protected("ab"), world.ranks("ab"), world.protected("xy")) == (0, [50, 50], 2)
    assert world.at(3599).protected("xy") == 2
    assert world.at(3600).protected("xy") == 0
    assert world.steering.counters["failures"] == 0


def test_planning_again_does_not_revive_it() -> None:
    world = _asked(FREE + "on tool_call until tool_result { turn { priority: 70 } }\n", finished=True)
    world.at(10).event("step_start", session="s")
    world.at(20).event("tool_call", session="s", tool="grep")
    assert (world.protected("ab"), world.ranks("ab")) == (0, [70, 70])
    world.ask(S, "ab", spans(("turn", 2)), finished=True)
    assert world.protected("ab") == 0  # the same span keeps the clock of its hold
    world.ask(S, "abc", spans(("turn", 3)), finished=True)
    assert world.protected("abc") == 3


def test_the_event_ends_it_although_its_interval_stays_open_and_a_new_opening_holds_again() -> None:
    world = _asked(OPEN, tool_calls=["grep"])
    assert world.protected("ab") == 2
    world.at(5).event("step_end", session="s")
    assert (world.protected("ab"), world.protected("xy")) == (0, 2)
    world.at(7).event("step_start", session="s")
    assert world.protected("ab") == 0
    world.ask(S, "ab", spans(("turn", 2)), tool_calls=["grep"])
    assert world.protected("ab") == 2
    assert world.at(1200).protected("xy") == 0


def test_events_read_from_requests_and_answers_count() -> None:
    world = World("policy p\nturn { retention: hold until tool_result }\nsystem { retention: hold until turn_start }\n")
    world.ask(S, "ab", spans(("system", 1), ("turn", 1)), tool_calls=["grep"])
    assert world.protected("ab") == 2
    name, _ = world.at(3).request(S, "abcd", spans(("system", 1), ("turn", 1), ("tool_result", 1), ("turn", 1)))
    assert world.protected("abcd") == 4  # the new turn's hold has not begun; it stands while the request runs
    world.finish(name, finished=True)
    world.at(4).ask(S, "abcd", spans(("system", 1), ("turn", 1), ("tool_result", 1), ("turn", 1)))
    assert all(claim.protected_until <= world.now for _, claim in world.claims_on("abcd", 0)[:1])


def test_an_event_before_the_hold_has_begun_does_not_end_it() -> None:
    world = World(FREE)
    name, _ = world.request(S, "ab", spans(("turn", 2)))
    world.at(1).event("step_start", session="s")
    world.at(2).finish(name, finished=True)
    assert world.protected("ab") == 2
    assert world.at(3602).protected("ab") == 0


def test_a_claim_by_call_until_an_event() -> None:
    world = World(SILENT)
    world.ask(OTHER, "ab")
    wish = Wish(priority=60, retention=Retention(HOLD, until="step_end", at_most=100.0))
    world.steering.claim(S, chain(*"ab"), world.now, wish)
    assert world.protected("ab") == 2
    world.at(10).event("step_end", session="s")
    assert (world.protected("ab"), world.ranks("ab")) == (0, [60, 60])


RESULT = "policy p\nturn { retention: hold until tool_result priority: 50 }\n"


def test_after_a_result_that_somebody_tells_of_the_blocks_wait_for_the_request_that_brings_it() -> None:
    world = _asked(RESULT, tool_calls=["grep"])
    world.at(5).event("tool_result", session="s", tool="grep")
    assert world.at(34.9).protected("ab") == 2
    assert world.at(35).protected("ab") == 0
    world = _asked(RESULT, tool_calls=["grep"])
    world.at(5).event("tool_result", session="s", tool="grep")
    name, _ = world.at(6).request(S, "abc", spans(("turn", 2), ("tool_result", 1)))
    assert (world.protected("abc"), world.protected("xy")) == (0, 2)
    world.finish(name, finished=True)
    world.check()


def test_with_two_calls_open_the_last_result_counts() -> None:
    world = _asked(RESULT, tool_calls=[("grep", "c1"), ("make", "c2")])
    world.at(5).event("tool_result", session="s", call="c1")
    assert world.at(100).protected("ab") == 2
    world.at(110).event("tool_result", session="s", call="c2")
    assert (world.at(139).protected("ab"), world.at(140).protected("ab")) == (2, 0)
