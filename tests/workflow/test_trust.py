"""Classes that foretell badly are not believed: the score by which that is told, and what becomes of the density."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvpolicy.policy.model import Subject
from kvpolicy.request import Owner, Request
from kvpolicy.workflow.hazard import EDGES, STEPS, Hazard, foretold, recency_density
from kvpolicy.workflow.pause import Pause
from kvpolicy.workflow.pauses import Pauses
from kvpolicy.workflow.state import RunState
from kvpolicy.workflow.trust import BEGINS, FADES, Trust


def hazard_of(*pauses: float) -> Hazard:
    hazard = Hazard(None)
    for age in pauses:
        hazard.ended(age)
        hazard.waited(0.0, age)
        hazard.told()
    return hazard


@settings(max_examples=50)
@given(st.lists(st.floats(0.0, 1e4), max_size=20), st.floats(0.0, 1e5))
def test_a_return_is_foretold_by_its_rate_and_by_none_having_come_before(pauses: list[float], age: float) -> None:
    rates = hazard_of(*pauses).rates()
    waited, rate = 0.0, rates[-1]
    for k in range(STEPS):
        end = math.inf if k == STEPS - 1 else EDGES[k + 1]
        if EDGES[k] <= age < end:
            rate = rates[k]
        waited += rates[k] * max(0.0, min(end, age) - EDGES[k])
    assert foretold(rates, age) == pytest.approx(math.log(rate) - waited, rel=1e-9, abs=1e-9)


def test_recency_alone_is_what_a_class_says_of_which_nothing_is_known() -> None:
    for age in (0.0, 3.0, 100.0, 5e4):
        assert recency_density(age) == Hazard(None).density(age)


def test_who_foretells_better_gains_and_who_foretells_worse_is_believed_no_more() -> None:
    hazard, right, wrong = hazard_of(*[8.0] * 200), Trust(), Trust()
    assert right.share > 0.999
    for _ in range(60):
        right.returned(hazard, 8.0)
        wrong.returned(hazard, 80.0)
    assert right.lead > BEGINS and wrong.share < 0.01
    for _ in range(120):  # the traffic is again as it was learned
        wrong.returned(hazard, 8.0)
    assert wrong.share > 0.99


def test_one_return_that_nobody_expected_changes_little() -> None:
    hazard, trust = hazard_of(*[8.0] * 200), Trust()
    trust.returned(hazard, 1e5)
    assert trust.share > 0.99


@pytest.mark.parametrize("length", [0.5, 1.5, 5.0, 20.0, 300.0])
def test_a_pause_has_no_say_in_how_likely_its_own_end_was(length: float) -> None:
    """The first one of all was foretold by recency alone, however often its classes heard that it was open still."""
    state, owner = RunState(), Owner("t", "s")
    state.arrive(Request("r0", owner, 100, 16), 0.0)
    state.answer(Request("r0", owner, 100, 16), 0.0, tool_calls=("grep",))
    for tick in range(int(length) + 1):
        state.advance(float(tick))
    state.arrive(Request("r1", owner, 100, 16), length)
    classes = state.learned.pauses.classes("t")
    assert classes.trust.lead == pytest.approx(FADES * BEGINS, abs=1e-9)
    assert sum(classes.everything.at_risk) == pytest.approx(length)


class TenTimes(Pauses):
    """Remembers pauses at ten times their length."""

    def _remember(self, pause: Pause, age: float) -> float:
        return super()._remember(pause, 10.0 * age)


def returns(pauses: Pauses | None, times: int = 60) -> tuple[float, float]:
    """Two tools, of 4 and of 30 s, again and again; then the densities of both callers 2 s after they called."""
    state, number = RunState(), 0
    if pauses is not None:
        state.learned.pauses = pauses
    owners = {tool: Owner("t", tool) for tool in ("quick", "slow")}

    def ask(owner: Owner, at: float) -> None:
        nonlocal number
        number += 1
        request = Request(f"r{number}", owner, 100, 16)
        state.arrive(request, at)
        state.answer(request, at, tool_calls=(owner.session or "",))

    at = 0.0
    for _ in range(times):
        ask(owners["slow"], at)
        for step in range(8):
            ask(owners["quick"], at + 4.0 * step)
        at += 30.0
    state.advance(at)
    for owner in owners.values():
        ask(owner, at)
    state.advance(at + 2.0)
    quick, slow = (state.read("hit_density", None, Subject("turn", {}, owner)) for owner in owners.values())
    assert isinstance(quick, float) and isinstance(slow, float)
    return quick, slow


def test_times_that_are_remembered_wrongly_leave_the_order_of_recency() -> None:
    quick, slow = returns(None)
    assert quick > 3 * slow  # as they are
    wrong = returns(TenTimes())
    assert wrong == pytest.approx([recency_density(2.0)] * 2, rel=0.05)
