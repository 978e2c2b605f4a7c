"""How much a tenant may ask: a minute's requests that fill evenly, so many at once, and nothing left behind."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvpolicy.service import admission
from kvpolicy.service.admission import Admission
from kvpolicy.service.config import Caps
from kvpolicy.service.edge import Refusal
from kvpolicy.service.tenants import Tenant


def test_a_minute_fills_evenly_and_saves_up_no_more() -> None:
    now = [0.0]
    gate, tenant = Admission(lambda: now[0]), Tenant("a", caps=Caps(requests_per_minute=6))

    def let_in() -> int:
        count = 0
        while True:
            try:
                gate.enter(tenant)
            except Refusal as refusal:
                assert (refusal.status, int(refusal.headers["retry-after"])) == (429, 10)
                return count
            count += 1

    assert let_in() == 6
    now[0] = 10.0
    assert let_in() == 1
    now[0] = 40.0
    assert let_in() == 3
    now[0] = 10_000.0
    assert let_in() == 6


def test_so_many_at_once_and_another_when_one_has_ended() -> None:
    gate, tenant = Admission(lambda: 0.0), Tenant("a", caps=Caps(concurrent=2))
    gate.enter(tenant)
    gate.enter(tenant)
    with pytest.raises(Refusal, match="2 requests at once"):
        gate.enter(tenant)
    gate.enter(Tenant("b", caps=Caps(concurrent=1)))
    gate.leave(tenant)
    gate.enter(tenant)


def test_what_is_refused_for_one_cap_costs_nothing_of_the_other() -> None:
    gate, tenant = Admission(lambda: 0.0), Tenant("a", caps=Caps(concurrent=1, requests_per_minute=2))
    gate.enter(tenant)
    for _ in range(5):
        with pytest.raises(Refusal, match="at once"):
            gate.enter(tenant)
    gate.leave(tenant)
    gate.enter(tenant)
    gate.leave(tenant)
    with pytest.raises(Refusal, match="in a minute"):
        gate.enter(tenant)


@given(names=st.lists(st.integers(0, 30), max_size=60))
def test_tenants_by_token_are_bounded_and_none_that_runs_is_forgotten(names: list[int]) -> None:
    gate, most = Admission(lambda: 0.0), admission.MOST_TENANTS
    admission.MOST_TENANTS = 5
    try:
        running = Tenant("runs", caps=Caps(concurrent=1))
        gate.enter(running)
        for name in names:
            tenant = Tenant(f"t{name}")
            gate.enter(tenant)
            gate.leave(tenant)
        assert len(gate._accounts) <= 6
        with pytest.raises(Refusal):
            gate.enter(running)
    finally:
        admission.MOST_TENANTS = most
