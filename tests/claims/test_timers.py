"""The heap of timers against a dictionary of times."""

from __future__ import annotations

from math import inf

from hypothesis import given
from hypothesis import strategies as st

from kvpolicy.claims.timers import Timers

calls = st.lists(
    st.one_of(
        st.tuples(st.just("arm"), st.integers(0, 5), st.one_of(st.integers(0, 50), st.just(inf))),
        st.tuples(st.just("put_off"), st.integers(0, 5), st.integers(0, 50)),
        st.tuples(st.just("disarm"), st.integers(0, 5), st.just(0)),
        st.tuples(st.just("pop"), st.just(0), st.integers(0, 50)),
    )
)


@given(calls)
def test_what_comes_up_is_what_is_due_earliest_first(made: list[tuple[str, int, float]]) -> None:
    timers: Timers[int] = Timers()
    naive: dict[int, float] = {}
    for what, key, at in made:
        if what == "arm":
            timers.arm(key, at)
            naive.pop(key, None)
            if at < inf:
                naive[key] = at
        elif what == "put_off":
            timers.put_off(key, at)
            if key in naive:
                naive[key] = max(naive[key], at)
        elif what == "disarm":
            timers.disarm(key)
            naive.pop(key, None)
        else:
            popped = []
            while (due := timers.pop(at)) is not None:
                popped.append(due)
            assert [t for t, _ in popped] == sorted(t for t, _ in popped)
            assert sorted(popped) == sorted((t, k) for k, t in naive.items() if t <= at)
            naive = {k: t for k, t in naive.items() if t > at}
        assert timers.next() == min(naive.values(), default=inf)
        assert len(timers) == len(naive)


def test_the_heap_does_not_grow_with_arming_again() -> None:
    timers: Timers[int] = Timers()
    for turn in range(10_000):
        timers.arm(turn % 7, float(10_000 - turn))
    assert timers.queued < 100
    for turn in range(10_000):
        timers.arm(turn, float(turn))
        timers.disarm(turn)
    assert timers.queued < 200
