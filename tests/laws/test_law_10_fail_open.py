"""Law 10. Whatever breaks on our side, the request is served as if we were not there, and a counter says so."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvpolicy.claims.ledger import Ledger
from kvpolicy.request import Owner, Request, Span
from kvpolicy.workflow.state import RunState
from tests.laws.world import POLICIES, SILENT, SIZE, World, chain, histories, play, spans

PLACES = (
    ("kvpolicy.steering.replanning.plan", None),
    (Ledger, "arrive"),
    (Ledger, "place"),
    (RunState, "arrive"),
    (RunState, "answer"),
    (RunState, "observe"),
    (RunState, "advance"),
    (Ledger, "finish"),
    (Ledger, "heed"),
)


def _break(*_: object, **__: object) -> None:
    raise RuntimeError("broken on purpose")


@pytest.mark.parametrize("place", PLACES, ids=lambda p: str(p[1] or p[0]))
def test_a_request_is_served_whatever_breaks(place: tuple[object, str | None], monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(POLICIES[3], blocks=8)
    world.ask(Owner(session="before"), "ab", spans(("system", 2)))
    if place[1] is None:
        monkeypatch.setattr(str(place[0]), _break)
    else:
        monkeypatch.setattr(place[0], place[1], _break)
    world.at(1)
    for session in "xyz":
        outcome = world.ask(Owner(session=session), f"a{session}cd", spans(("system", 2), ("turn", 2)), finished=True)
        assert len(outcome.stored) + outcome.cached == 4
    world.event("session_end", session="x")
    assert world.steering.counters["failures"] > 0
    assert not world.steering.running


@pytest.mark.parametrize("at_once", [False, True])
def test_a_request_whose_claims_break_leaves_nothing_that_waits_for_its_end(
    at_once: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World("policy p\nturn { priority: 60 }\n", blocks=8)
    steering = world.steering
    for broken in (True, False):
        with monkeypatch.context() as patch:
            if broken:
                patch.setattr("kvpolicy.claims.line.Line.settle", _break)
            owner, where = Owner(session="s"), spans(("turn", 2))
            if at_once:
                request = Request(f"r{broken}", owner, 2 * SIZE, SIZE, where)
                steering.pass_by(request, chain("a", "b"), world.now, finished=True)
            else:
                world.ask(owner, "ab", where, finished=True)
        holders = list(steering.ledger.holders.values())
        assert steering.counters["failures"] == 1 and bool(holders) is not broken
        assert not any(each.running for holder in holders for each in holder.chains.values())
    assert world.ranks("ab") == [60, 60]


@given(histories, st.integers(4, 20))
@settings(max_examples=30)
def test_a_policy_that_always_breaks_is_no_policy(history: list[tuple[object, ...]], blocks: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kvpolicy.steering.replanning.plan", _break)
        broken, alone = World(SILENT, blocks), World(None, blocks)
        for world in (broken, alone):
            play(world, history)
        assert broken.steering.pool.eviction_order() == alone.steering.pool.eviction_order()


def test_spans_that_make_no_sense_cost_the_hints_and_nothing_else() -> None:
    world = World(POLICIES[0])
    outcome = world.ask(Owner(session="s"), "ab", (Span("system", 0, 8), Span("turn", 4, 8)))
    assert outcome.failed
    assert len(outcome.stored) == 2
    assert outcome.hints[0].status == "ignored"
    assert world.steering.counters["failures"] == 1
