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


@pytest.mark.parametrize(
    ("among", "at_first", "wait", "later"), [(1, 6, 10, 3), (2, 3, 20, 1), (4, 1, 20, 1), (12, 1, 120, 0)]
)
def test_each_of_several_replicas_grants_its_share(among: int, at_first: int, wait: int, later: int) -> None:
    now = [0.0]
    gate, tenant = Admission(lambda: now[0]), Tenant("a", caps=Caps(requests_per_minute=6))
    gate.replicas = lambda: among
    granted = []
    for now[0] in (0.0, 30.0):
        granted.append(0)
        with pytest.raises(Refusal, match="6 requests in a minute") as refused:
            for _ in range(10):
                gate.enter(tenant)
                granted[-1] += 1
        if now[0] == 0.0:
            assert int(refused.value.headers["retry-after"]) == wait
    assert granted == [at_first, later]
    assert ("its share" in str(refused.value)) == (among > 1)


@pytest.mark.parametrize(("among", "granted"), [(1, 5), (2, 3), (5, 1), (9, 1)])
def test_places_at_once_are_shared_and_none_gets_nothing(among: int, granted: int) -> None:
    gate, tenant = Admission(lambda: 0.0), Tenant("a", caps=Caps(concurrent=5))
    gate.replicas = lambda: among
    for _ in range(granted):
        gate.enter(tenant)
    with pytest.raises(Refusal, match="5 requests at once"):
        gate.enter(tenant)


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
