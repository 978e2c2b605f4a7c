"""When a computed amount crosses a bound by time alone, and what it takes to find out what to watch."""

from __future__ import annotations

import pytest

from kvpolicy.policy.terms import Apply, Constant, Read
from kvpolicy.policy.timing import watcher
from tests.counting import calls_of
from tests.policy.reference import World
from tests.policy.test_resolve import policy, span


@pytest.mark.parametrize(
    ("amount", "crosses"),
    [
        ("max(idle(), 3 * idle() - 40s)", 40.0 / 3),
        ("min(idle(), 40s - idle())", None),
        ("clamp(idle() * 2, 40s, 1h)", 10.0),
    ],
)
def test_of_amounts_that_are_equal_now_the_one_counts_that_will_be_the_answer(amount, crosses):
    """Each is 20s now, at the place where another takes over."""
    rules = policy(f"turn when {amount} >= 1min {{ priority: 1 }}")
    steps = rules.steps(span(), World(functions={("idle", None): 20.0}))
    assert (steps[0] if steps else None) == (None if crosses is None else pytest.approx(100.0 + crosses))


def test_what_to_watch_of_a_term_is_found_without_going_through_it_at_every_level():
    def work(levels):
        term = Read("idle")
        for _ in range(levels):
            term = Apply("+", (term, Apply("*", (Read("age"), Constant(2.0)))))
        return calls_of(lambda: watcher(Apply("<", (term, Constant(9.0)))))

    assert work(80) < 3 * work(40)
