"""Which guards hold whenever another does: found for all at once as comparing each pair says, without comparing any."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvpolicy.policy.analysis.following import following
from kvpolicy.policy.analysis.view import view_of
from kvpolicy.policy.compile import compile
from kvpolicy.policy.order import guard_implies
from kvpolicy.policy.terms import Apply, Constant, Read, Term, normal
from tests.counting import calls_of
from tests.policy.strategies import file_set

ATOMS = st.integers(0, 5).map(lambda n: Apply("<", (Read("idle"), Constant(float(n)))))
TERMS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.builds(lambda term: Apply("not", (term,)), inner),
        st.builds(
            lambda how, some: Apply(how, tuple(some)),
            st.sampled_from(["and", "or"]),
            st.lists(inner, min_size=2, max_size=3),
        ),
    ),
    max_leaves=9,
)


@settings(max_examples=300, deadline=None)
@given(st.lists(TERMS.map(normal), min_size=1, max_size=12, unique=True))
def test_all_at_once_as_pair_by_pair(terms: list[Term]) -> None:
    pairs = [[at for at, other in enumerate(terms) if guard_implies(one, other)] for one in terms]
    assert following(terms) == pairs


def test_what_is_made_true_together_is_looked_at_when_the_last_part_comes() -> None:
    """Both parts of the outer `and` follow from one condition, the second by way of an `and` that follows only then."""
    a, b, c = (Apply("<", (Read("idle"), Constant(float(n)))) for n in range(3))
    late = Apply("or", (Apply("and", (a, Apply("or", (a, b)))), c))
    whole = normal(Apply("and", (Apply("or", (a, c, b)), late)))
    assert guard_implies(a, whole)
    assert following([a, whole]) == [[0, 1], [1]]


def work_of_relating(lines: list[str]) -> int:
    """Calls of functions it takes to put the rules of a policy in relation, and to ask for each which are narrower."""
    rules = compile(file_set(lines))

    def relate() -> None:
        index = view_of(rules).index
        for at in range(len(rules.rules)):
            index.narrower(at)

    return calls_of(relate)


GUARDS = (
    "idle() > {i}s or turns_ago() > {i}",
    "idle() > 1s or turns_ago() > {i} or age() > 3s",
    "(idle() > 1s or turns_ago() > {i}) and (age() > 3s or fan_out() > {i})",
    "idle() > 1s and age() > 3s and (turns_ago() > {i} or fan_out() > {i})",
)


@pytest.mark.parametrize("guard", GUARDS)
def test_many_guards_with_or_are_not_compared_pair_by_pair(guard: str) -> None:
    """Twice the rules take about twice the work to be put in relation."""

    def work(count: int) -> int:
        return work_of_relating([f"r{i}: turn when {guard.format(i=i)} {{ priority: 7 }}" for i in range(count)])

    assert work(400) < 3 * work(200)
