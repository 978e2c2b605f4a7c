"""Which rule is narrower, which beats which, and which never meet."""

from __future__ import annotations

import pytest

from kvpolicy.faults import PolicyFault
from kvpolicy.policy.compile import compile
from kvpolicy.policy.compiled import Rule
from kvpolicy.policy.layers import order_layers
from kvpolicy.policy.order import disjoint, narrower
from kvpolicy.policy.policy import Policy
from tests.counting import calls_of
from tests.policy.strategies import file_set


def rules(text: str) -> Policy:
    return compile(file_set(text.split("\n")))


def written(label: str, text: str) -> str:
    """A rule from `SELECTOR [when …] [@ on …]`."""
    selector, _, interval = text.partition(" @ ")
    rule = f"{label}: {selector} {{ priority: 1 }}"
    return f"{interval} {{ {rule} }}" if interval else rule


def two(one: str, other: str) -> tuple[Rule, ...]:
    return rules(f"{written('a', one)}\n{written('b', other)}").rules


NARROWER = (
    ("turn", "any"),
    ("turn", "turn, document"),
    ("turn[agent = a]", "turn"),
    ("turn[agent = a]", "any[agent in {a, b}]"),
    ("turn[agent = a]", "turn[agent != b]"),
    ("turn[tokens >= 8k]", "turn[tokens > 4k]"),
    ("turn[depth > 3]", "turn[depth >= 3]"),
    ("turn[depth = 3, agent = a]", "turn[depth in {2, 3}]"),
    ("turn[status = done]", "turn[status != running]"),
    ("turn[score > 0.5]", "turn[score >= 0.5]"),
    ("turn when idle() > 1min", "turn"),
    ("turn when idle() > 1min and age() > 1h", "turn when age() > 1h"),
    ("turn when idle() > 1min", "turn when idle() > 1min or age() > 1h"),
    ("turn @ on tool_call", "turn"),
    ("turn @ on tool_call until tool_result", "turn @ on tool_call"),
    ("turn @ on tool_call[tool = grep] until tool_result", "turn @ on tool_call until tool_result"),
    ("turn @ on tool_call[tool = grep] until tool_result", "turn @ on tool_call[tool != ls] until tool_result"),
)


@pytest.mark.parametrize(("one", "other"), NARROWER)
def test_narrower(one, other):
    a, b = two(one, other)
    assert narrower(a, b)
    assert not narrower(b, a)


APART = (
    ("turn", "turn"),
    ("turn", "document"),
    ("turn[agent = a]", "turn[tokens > 1k]"),
    ("turn[depth > 3]", "turn[depth >= 4]"),
    ("turn[depth < 2]", "turn[depth <= 1]"),
    ("turn[status != running]", "turn[status in {done, pruned}]"),
    ("turn when idle() > 1min", "turn when idle() > 60s"),
    ("turn when idle() > 1min", "turn when 1min < idle()"),
    ("turn when idle() > 1min", "turn when idle() > 2min"),
    ("turn when idle() > 1min and age() > 1h", "turn when age() > 1h and idle() > 1min"),
    ("turn @ on tool_call", "turn @ on turn_end"),
    ("turn when idle() > 1min", "turn @ on turn_end"),
    ("turn @ on tool_call until tool_result at most 5min", "turn @ on tool_call until tool_result"),
)


@pytest.mark.parametrize(("one", "other"), APART)
def test_neither_is_narrower(one, other):
    a, b = two(one, other)
    assert not narrower(a, b)
    assert not narrower(b, a)


DISJOINT = (
    ("turn", "document"),
    ("turn[agent = a]", "any[agent = b]"),
    ("turn[agent in {a, b}]", "turn[agent != a, agent != b]"),
    ("turn[depth > 3]", "turn[depth < 4]"),
    ("turn[last_step = yes]", "turn[last_step = no]"),
    ("turn @ on tool_call until tool_result", "turn @ on turn_end until turn_start"),
    ("turn @ on tool_call", "turn @ on tool_result"),
    ("turn when idle() > 1min", "turn when idle() <= 60s"),
    ("turn when idle() > 1min", "turn when not (idle() > 1min)"),
    ("turn when pressure(gpu) > 50% and idle() > 1min", "turn when idle() <= 1min"),
    ("turn when pressure(gpu) > 50% and idle() > 1min", "turn when pressure(gpu) <= 50% or idle() <= 1min"),
)


@pytest.mark.parametrize(("one", "other"), DISJOINT)
def test_never_meet(one, other):
    a, b = two(one, other)
    assert disjoint(a, b)
    assert disjoint(b, a)


MEETING = (
    ("turn", "any"),
    ("turn[agent = a]", "turn[tokens > 1k]"),
    ("turn[depth > 3]", "turn[depth < 5]"),
    ("turn[score > 3]", "turn[score < 3.5]"),
    ("turn @ on tool_call[tool = grep] until tool_result", "turn @ on tool_call[tool = run_tests] until tool_result"),
    ("turn @ on compact", "turn @ on tool_call"),
    ("turn when idle() > 1min", "turn when idle() <= 2min"),
)


@pytest.mark.parametrize(("one", "other"), MEETING)
def test_can_meet(one, other):
    a, b = two(one, other)
    assert not disjoint(a, b)


def reason(policy: Policy, winner: str, loser: str) -> str | None:
    by_name = {r.name: r for r in policy.rules}
    return policy.order.beats(by_name[winner], by_name[loser])


def test_over_goes_before_narrower_and_is_transitive():
    policy = rules(
        "a: any over b { priority: 1 }\nb: any[agent = a] over c { priority: 2 }\nc: turn[agent = a] { priority: 3 }"
    )
    assert reason(policy, "a", "b") == reason(policy, "a", "c") == reason(policy, "b", "c") == "over"
    assert reason(policy, "c", "a") is None


def test_a_later_layer_goes_before_narrower():
    policy = rules("layer x { a: turn[agent = a] { priority: 1 } }\nlayer y { b: any { priority: 2 } }")
    assert reason(policy, "b", "a") == "layer"
    assert reason(policy, "a", "b") is None
    turned = rules("layers y, x\nlayer x { a: turn[agent = a] { priority: 1 } }\nlayer y { b: any { priority: 2 } }")
    assert reason(turned, "a", "b") == "layer"


def test_over_only_towards_the_same_or_an_earlier_layer():
    with pytest.raises(PolicyFault, match="comes later"):
        rules("layer x { a: turn over b { priority: 1 } }\nlayer y { b: any { priority: 2 } }")


def test_unlisted_own_layers_come_last():
    policy = rules(
        "layers y\nlayer x { a: turn { priority: 1 } }\nlayer y { b: turn { priority: 2 } }\nc: turn { priority: 3 }"
    )
    assert reason(policy, "a", "b") == reason(policy, "c", "b") == reason(policy, "a", "c") == "layer"


def test_a_used_policy_comes_before_and_can_be_listed_after():
    base = ["layer low { a: turn { priority: 1 } }", "layer high { b: turn { priority: 2 } }"]
    policy = compile(file_set(["c: turn { priority: 3 }"], base))
    assert reason(policy, "c", "base.b") == reason(policy, "base.b", "base.a") == "layer"
    turned = compile(file_set(["layers p, base", "c: turn { priority: 3 }"], base))
    assert reason(turned, "base.a", "c") == "layer"
    assert {r.name: r.layer_name for r in policy.rules} == {"base.a": "base.low", "base.b": "base.high", "c": "p"}


def test_layers_in_a_circle_are_refused():
    with pytest.raises(PolicyFault, match="before itself"):
        rules("layers x, y\nlayers y, x\nlayer x { turn { priority: 1 } }\nlayer y { turn { priority: 2 } }")


def test_a_cycle_of_precedence_is_found():
    policy = rules("a: any over b { priority: 1 }\nb: turn[agent = a] { priority: 2 }\nc: turn { priority: 3 }")
    found = policy.order.cycle(policy.rules)
    names = [r.name for r in found]
    assert sorted(names) == ["a", "b", "c"]
    assert all(reason(policy, x, y) for x, y in zip(names, [*names[1:], names[0]], strict=True))
    assert not rules("a: any { priority: 1 }\nb: turn { priority: 2 }").order.cycle(policy.rules[:0])


def test_two_rules_in_one_line_are_two_rules() -> None:
    """Rules without a label are called after their line; what one is written over says nothing of its neighbour."""
    policy = rules("a: turn { priority: 40 }\nturn over a { priority: 50 } tools { priority: 60 }\n")
    assert [(set(rule.over), rule.matches[0].kind) for rule in policy.rules] == [
        (set(), "turn"),
        ({"a"}, "turn"),
        (set(), "tools"),
    ]


def test_many_layers_are_ordered_without_going_over_all_ways_between_them():
    """Who comes after whom is a pair each; every way from one to another would be as many threes."""

    def work(count: int) -> int:
        files = file_set([f"layer l{i} {{ turn {{ priority: 1 }} }}" for i in range(count)])
        return calls_of(lambda: order_layers(files))

    assert work(120) < 6 * work(60)
