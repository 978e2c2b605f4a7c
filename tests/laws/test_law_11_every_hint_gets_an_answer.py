"""Law 11. Every hint gets an answer: {status, requested, granted, reason}. Never silence."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from kvpolicy.directive import PIN, Retention
from kvpolicy.request import Owner
from kvpolicy.steering.calls import Wish
from kvpolicy.workflow.events import Event
from tests.laws.world import POLICIES, World, chain, spans

STATUSES = {"accepted", "clipped", "deferred", "ignored", "rejected", "unknown"}
A = Owner(session="a")


@given(st.sampled_from(POLICIES), st.lists(st.sampled_from(["system", "turn", "document", "tool_result"]), max_size=6))
@settings(max_examples=50)
def test_every_directive_of_a_request_is_answered(text: str, kinds: list[str]) -> None:
    world = World(text)
    words = [f"w{i}" for i in range(len(kinds) + 1)]
    outcome = world.ask(A, words, spans(*((kind, 1) for kind in kinds)))
    assert outcome.plan is not None
    assert [a.span for a in outcome.hints] == [d.span for d in outcome.plan.directives]
    for answer in outcome.hints:
        assert answer.status in STATUSES
        assert set(answer.as_json()) >= {"status", "requested", "granted", "reason"}
        assert answer.status == "accepted" or answer.reason


def test_calls_and_events_are_answered() -> None:
    world = World("policy p\nturn { priority: 60 }\n", blocks=10)
    steering = world.steering
    world.ask(A, "abcd", spans(("turn", 4)))
    hashes = chain(*"abcdef")
    assert [a.status for a in steering.claim(A, hashes[:4], 0.0, Wish(priority=90))] == ["accepted"]
    assert [a.status for a in steering.claim(A, hashes, 0.0, Wish(priority=90))] == ["deferred"]
    assert [a.status for a in steering.claim(A, ["nowhere"], 0.0)] == ["unknown"]
    assert [a.status for a in steering.claim(A, [], 0.0)] == ["rejected"]
    answer = steering.claim(A, hashes[:4], 0.0, Wish(retention=Retention(PIN)))[0]
    assert (answer.status, answer.requested, answer.granted) == ("accepted", 4, 4)
    assert steering.event(Event(0.0, "turn_end", {"session": "a"}), 0.0)[0].status == "accepted"
    assert steering.event(Event(0.0, "turn_end", {"session": "nobody"}), 0.0)[0].status == "ignored"
    assert steering.release(A, 0.0)[0].status == "accepted"
    again = steering.release(A, 0.0)[0]
    assert (again.status, again.granted) == ("accepted", 0)
