"""Who decides among many rules that may all stand: as pair by pair, without comparing every pair."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvpolicy.policy import contest, rivals
from kvpolicy.policy.compile import compile
from kvpolicy.policy.model import Subject
from kvpolicy.policy.order import guards_exclude
from kvpolicy.request import Owner
from kvpolicy.workflow.state import RunState
from tests.counting import calls_of
from tests.policy.reference import Reference
from tests.policy.strategies import file_set, policies, subjects, worlds
from tests.policy.test_reference import compare, sound


@settings(max_examples=60, deadline=None)
@given(policies(), st.lists(subjects(), min_size=1, max_size=3), worlds())
def test_all_at_once_the_same_win(lines, spans, world):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rivals, "_FEW", -1)
        files = file_set(lines)
        policy, reference = compile(files), Reference(files)
        sound(policy)
        for subject in spans:
            compare(policy, reference, subject, world)


@settings(max_examples=60, deadline=None)
@given(policies(), subjects())
def test_each_is_beaten_by_those_that_beat_it_as_a_pair(lines, subject):
    """Of rules that may stand: whom a guard beats that excludes itself is nobody's question."""
    policy = compile(file_set(lines))
    rules = [rule for rule in policy.rules if rule.matches_span(subject.kind, subject.attributes)]
    rules = [rule for rule in rules if not guards_exclude(rule.condition, rule.condition)]
    pairs = rivals.beaters(rules, policy.order)[1]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rivals, "_FEW", -1)
        numbers, losing = rivals.beaters(rules, policy.order)
    places = [1 << at for at in range(len(rules))]
    for by, by_pairs in zip(losing, pairs, strict=True):
        assert [bool(by & number) for number in numbers] == [bool(by_pairs & place) for place in places]


RULES = {
    "guards of their own": "r{i}: turn when idle() > {i}s {{ priority: 7 }}",
    "each over the one before": "r{i}: turn{over} when idle() > {i}s {{ priority: {p} }}",
    "bounds within bounds": "r{i}: turn[depth > {i}] {{ priority: {p} }}",
    "two conditions each": "r{i}: turn when idle() > {i}s and turns_ago() > 1 {{ priority: 7 }}",
}
FIRST, AGAIN = (
    2500,
    60,
)  # calls of functions a rule: of the first answer, in which the rules are put in order, and later


@pytest.mark.parametrize("kind", RULES)
def test_a_rule_more_costs_the_same_however_many_there_are(kind: str) -> None:
    """The library's functions among them. Compared pair by pair 800 rules are ten thousand and more a rule."""
    for count in (100, 800):
        lines = [RULES[kind].format(i=i, p=i % 101, over=f" over r{i - 1}" if i else "") for i in range(count)]
        policy = compile(file_set(lines))
        subject = Subject("turn", {"depth": 10_000}, Owner("t", "s"))
        state = RunState(policy.intervals)
        for most in (FIRST, AGAIN):
            assert calls_of(lambda: policy.resolve(subject, state)) <= most * count  # noqa: B023


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(0, 255), min_size=1, max_size=8))
def test_candidates_come_in_the_rounds_in_which_nobody_left_beats_them(beaten):
    """Whoever beats whom, circles among them."""
    rows = [(at, 1 << at, by & ~(1 << at)) for at, by in enumerate(beaten)]
    left, rounds = list(rows), []
    while left:
        here = sum(bit for _, bit, _ in left)
        free = [row for row in left if not row[2] & here] or left[:1]
        rounds += free
        left = [row for row in left if row not in free]
    assert contest._in_turn(rows) == rounds


def test_a_long_chain_of_candidates_is_not_looked_through_in_every_round():
    """Each beats all before it, so there are as many rounds as candidates."""

    class Row(tuple):
        looks = 0

        def __getitem__(self, place):
            Row.looks += 1
            return super().__getitem__(place)

    rows = [Row((at, 1 << at, sum(1 << by for by in range(at + 1, 500)))) for at in range(500)]
    assert [row[0] for row in contest._in_turn(rows)] == list(reversed(range(500)))
    assert Row.looks < 10 * len(rows)
