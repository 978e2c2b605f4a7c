"""The product's resolver against the naive one, over random policies, spans and states."""

from __future__ import annotations

import random

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from kvpolicy.directive import Retention, Ttl, Verdict
from kvpolicy.policy.compile import compile
from kvpolicy.policy.model import Opening, Subject
from kvpolicy.policy.policy import Policy
from kvpolicy.request import Owner
from tests.policy.reference import Reference, World
from tests.policy.strategies import file_set, policies, subjects, used_and_own, worlds


def plain(value: object) -> object:
    """A verdict's value as the reference writes it."""
    if isinstance(value, Retention):
        return (value.mode, value.seconds, value.until, value.at_most if value.until else None)
    if isinstance(value, Ttl):
        return ("ttl", value.seconds, value.fixed)
    if isinstance(value, tuple):
        return tuple((r.tier, r.after_s) for r in value)
    return value


def named(verdicts: dict[str, Verdict]) -> dict[str, Verdict]:
    """Verdicts without the lines of limits, which move with the text."""
    return {
        name: v._replace(limited_by=v.limited_by and "limit", rule="limit" if v.rule == v.limited_by else v.rule)
        for name, v in verdicts.items()
    }


def sound(policy: Policy) -> None:
    """Leave policies out whose rules beat each other in a circle: the checks refuse them."""
    for name in {n for r in policy.rules for n in r.values}:
        assume(not policy.order.cycle(r for r in policy.rules if name in r.values))


def compare(policy: Policy, reference: Reference, subject: Subject, world: World) -> None:
    expected = reference.resolve(subject.kind, dict(subject.attributes), world)
    got = {name: plain(v.value) for name, v in policy.resolve(subject, world).items()}
    disputed = {name for name, values in expected.items() if len(values) > 1}
    assert {n: v for n, v in got.items() if n not in disputed} == {
        n: v[0] for n, v in expected.items() if n not in disputed
    }
    for name in disputed & got.keys():
        assert got[name] in expected[name]


@settings(max_examples=100)
@given(policies(), st.lists(subjects(), min_size=1, max_size=4), st.lists(worlds(), min_size=1, max_size=3))
def test_same_as_the_reference(lines, spans, states):
    files = file_set(lines)
    policy, reference = compile(files), Reference(files)
    sound(policy)
    for state in states:
        for span in spans:
            compare(policy, reference, span, state)


def test_a_dispute_in_what_lingers_is_one():
    """Two rules without an order, whose event is over: the checks refuse them, and neither resolver hides it."""
    on = "on tool_call until tool_result"
    files = file_set([f"{on} {{ r0: document {{ priority: 70 }} }}", f"{on} {{ r1: document {{ priority: 80 }} }}"])
    world = World(100.0, {("tool_call", "tool_result"): Opening(10.0, 610.0, 110.0)})
    assert Reference(files).resolve("document", {}, world) == {"priority": [70, 80]}
    compare(compile(files), Reference(files), Subject("document", {}, Owner()), world)


@settings(max_examples=40)
@given(used_and_own(), st.lists(subjects(), min_size=1, max_size=3), worlds())
def test_same_as_the_reference_with_a_used_policy(both, spans, state):
    files = file_set(both[1], both[0])
    policy, reference = compile(files), Reference(files)
    sound(policy)
    for span in spans:
        compare(policy, reference, span, state)


@settings(max_examples=40)
@given(policies(), st.lists(subjects(), min_size=1, max_size=3), worlds(), st.randoms(use_true_random=False))
def test_law_9_same_state_same_plan(lines, spans, state, order):
    """Neither the order of statements nor that of attributes or earlier questions plays a part."""
    fixed = [line for line in lines if line.startswith("layer ")]
    moved = [line for line in lines if not line.startswith("layer ")]
    order.shuffle(moved)
    # Blocks keep their place among themselves: unlisted layers stand in order of appearance.
    one, other = compile(file_set(lines)), compile(file_set([*moved, *fixed]))
    sound(one)
    for span in order.sample(spans, len(spans)):
        names = list(span.attributes)
        random.Random(7).shuffle(names)
        turned = Subject(span.kind, {n: span.attributes[n] for n in names}, span.owner)
        first = one.resolve(span, state)
        assert first == one.resolve(turned, state)
        assert named(first) == named(other.resolve(turned, state))
        assert all(one.decide(name, span, state) == verdict for name, verdict in first.items())


@settings(max_examples=40)
@given(policies(), subjects(), worlds())
def test_a_different_state_within_one_menu_is_not_remembered(lines, span, state):
    """What is kept between calls never changes an answer: a policy that has met many states answers as a fresh one."""
    files = file_set(lines)
    worn, fresh = compile(files), compile(files)
    for openings in ({}, state.openings, dict(list(state.openings.items())[:1])):
        worn.resolve(span, World(100.0, openings, state.functions))
    assert worn.resolve(span, state) == fresh.resolve(span, state)
