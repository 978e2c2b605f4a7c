"""KVP201: exactly the rules that some span meets unbeaten with two values, with that span as the witness."""

from __future__ import annotations

import itertools
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kvpolicy
from kvpolicy import words
from kvpolicy.faults import Diagnostic
from kvpolicy.language.load import load_text
from kvpolicy.policy.analysis import analyse
from kvpolicy.policy.compile import compile
from kvpolicy.policy.model import Subject
from kvpolicy.policy.policy import Policy
from kvpolicy.policy.snapshot import Snapshot
from kvpolicy.request import Owner


def policy_of(text: str) -> Policy:
    files = load_text(text, "a.kvp").files
    assert files is not None
    return compile(files)


def clashes(text: str, code: str = "KVP201") -> list[Diagnostic]:
    files = load_text(text, "a.kvp").files
    assert files is not None
    return [fault for fault in analyse(files) if fault.code == code]


@pytest.mark.parametrize(
    "text",
    [
        "turn { priority: 50 }\nturn { priority: 50 }",
        "turn { priority: 50 }\nturn { ttl: 5min }",
        "turn { priority: 50 }\ndocument { priority: 60 }",
        "turn { priority: 50 }\nany { priority: 60 }",
        "turn[agent = a] { priority: 50 }\nturn[agent = b] { priority: 60 }",
        "turn[agent = a] { priority: 50 }\nturn[agent != a] { priority: 60 }",
        "turn[depth < 3] { priority: 50 }\nturn[depth >= 3] { priority: 60 }",
        "turn[depth < 3] { priority: 50 }\nturn[depth < 5] { priority: 60 }",
        "turn[tool in {a, b}] { priority: 50 }\nturn[tool in {a, b, c}] { priority: 60 }",
        "turn when idle() < 5s { priority: 50 }\nturn { priority: 60 }",
        "turn when idle() < 5s { priority: 50 }\nturn when idle() >= 5s { priority: 60 }",
        "turn when idle() < 5s { priority: 50 }\nturn when not (idle() < 5s) { priority: 60 }",
        "turn when 5s > idle() { priority: 50 }\nturn when idle() >= 5s { priority: 60 }",
        "let w = 5s\nturn when idle() < w { priority: 50 }\nturn when idle() >= 5s { priority: 60 }",
        "on tool_call { turn { priority: 50 } }\nturn { priority: 60 }",
        "on tool_call { turn { priority: 50 } }\non turn_end { turn { priority: 60 } }",
        "on tool_call { turn[agent = a] { priority: 50 } }\non turn_end { turn[depth > 3] { priority: 60 } }",
        "a: turn[agent = a] { priority: 50 }\nturn[depth > 3] over a { priority: 60 }",
        "layer x { turn[agent = a] { priority: 50 } }\nlayer y { turn[depth > 3] { priority: 60 } }",
        "turn { retention: hold 5s }\nturn { retention: hold 5000ms }",
        "turn { priority: 60  ttl: p95(tool.duration) else 5s }\nturn { ttl: p95(tool.duration) else 5000ms }",
        # A third rule is written for just the spans on which the two would meet.
        "turn[agent = a] { priority: 50 }\nturn[depth > 3] { priority: 60 }\n"
        "turn[agent = a, depth > 3] { priority: 70 }",
        "turn { priority: 50 }\nturn { priority: 60 }\nlayer last { any { priority: 70 } }",
    ],
)
def test_rules_that_agree(text: str) -> None:
    assert clashes(text) == []


@pytest.mark.parametrize(
    ("text", "witness"),
    [
        ("turn { priority: 50 }\nturn { priority: 60 }", {"kind": "turn"}),
        ("turn, tools { priority: 50 }\ntools, document { priority: 60 }", {"kind": "tools"}),
        (
            "turn[agent = a] { priority: 50 }\nturn[depth > 3] { priority: 60 }",
            {"kind": "turn", "agent": "a", "depth": 4},
        ),
        ("turn[depth < 5] { priority: 50 }\nturn[depth > 3] { priority: 60 }", {"kind": "turn", "depth": 4}),
        ("turn[tool in {a, b}] { priority: 50 }\nany[tool in {b, c}] { priority: 60 }", {"kind": "turn", "tool": "b"}),
        ("any[last_step = yes] { priority: 50 }\nturn[status != done] { priority: 60 }", None),
        ("turn { retention: hold 5s }\nturn { retention: hold until tool_result }", {"kind": "turn"}),
        ("turn { priority: 60  ttl: 5min }\nturn { priority: 60  ttl: 5min fixed }", {"kind": "turn"}),
        ("turn { tier: gpu }\nturn { tier: cpu }", {"kind": "turn"}),
        ("turn { priority: default }\nturn { priority: 35 }", {"kind": "turn"}),
        ("turn when idle() < 5s { priority: 50 }\nturn when idle() > 9s { priority: 60 }", {"kind": "turn"}),
        ("turn when idle() < 5s { priority: 50 }\nturn[agent = a] { priority: 60 }", {"kind": "turn", "agent": "a"}),
        (
            "on tool_call[tool = a] { turn { priority: 50 } }\non tool_call[tool = b] { turn { priority: 60 } }",
            {"kind": "turn"},
        ),
        ("on barrier { turn { priority: 50 } }\non turn_end { turn { priority: 60 } }", {"kind": "turn"}),
        (
            "turn { ttl: p95(tool.duration) else 5s priority: 60 }\nturn { ttl: p50(tool.duration) else 5s }",
            {"kind": "turn"},
        ),
        # The third rule leaves a gap.
        (
            "turn[agent = a] { priority: 50 }\nturn[depth > 3] { priority: 60 }\n"
            "turn[agent = a, depth > 5] { priority: 70 }",
            {"kind": "turn", "agent": "a", "depth": 4},
        ),
        (
            "turn[agent = a] { priority: 50 }\nturn[depth > 3] { priority: 60 }\n"
            "turn[agent = a, depth > 3] when idle() > 5s { priority: 70 }",
            {"kind": "turn", "agent": "a", "depth": 4},
        ),
    ],
)
def test_rules_that_disagree(text: str, witness: dict[str, object] | None) -> None:
    (fault,) = clashes(text)
    assert fault.severity == "error"
    assert len({str(note.place) for note in fault.notes}) == 2
    assert fault.fix
    if witness is not None:
        assert fault.witness == witness


def test_one_message_for_two_rules_and_many_properties() -> None:
    (fault,) = clashes("turn { priority: 50  ttl: 5min  tier: gpu }\nturn { priority: 60  ttl: 6min  tier: cpu }")
    assert all(name in fault.message for name in ("priority", "ttl", "tier"))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("system { priority: 90 }", "pause: any[agent = a] { priority: 60 }"),
        ("a: turn[agent = coder] { priority: 60 }", "b: turn[depth > 3] when idle() > 5s { priority: 30 }"),
        ("turn[agent = a] { priority: 50 }", "turn[depth > 3] { priority: 60 }"),
        ('"my-rule": turn[agent = a] { ttl: 1h  priority: 90 }', "turn[depth > 3] { priority: 60  ttl: 2h }"),
    ],
)
def test_both_outcomes_can_be_pasted(first: str, second: str) -> None:
    """Either half of the advice, put into the lines it names, ends the fault and lets the rule it says win."""
    (fault,) = clashes(f"{first}\n{second}")
    halves = (fault.fix or "").split("; ")[:2]
    for half in halves:
        lines = [first, second]
        for head, number in re.findall(r"`([^`]*) { … }` in line (\d)", half):
            old = lines[int(number) - 1]
            lines[int(number) - 1] = f"{head} {old[old.index('{') :]}"
        text = "\n".join(lines)
        assert not clashes(text), text
        assert not [d for d in kvpolicy.check(text) if d.severity == "error"]
        wins = half.split("`")[1].replace(" ttl:", "  ttl:").split("  ")[0]
        policy = kvpolicy.load(text)
        one, other = policy.rules
        winner = one if policy.order.beats(one, other) else other
        assert wins in lines[policy.rules.index(winner)]


def test_a_rule_without_a_label_is_told_by_its_place() -> None:
    (fault,) = clashes("turn[agent = a] { priority: 50 }\nturn[depth > 3] { priority: 60 }")
    assert fault.message.startswith("the rule at a.kvp:1 and the rule at a.kvp:2 disagree")


# --- against every span of a small world --------------------------------------------------------------------

AGENTS: tuple[str | None, ...] = (None, "a", "b", "c", "d")
DEPTHS: tuple[int | None, ...] = (None, 0, 1, 2, 3, 4)
KINDS = ("turn", "tools", "document")

_agent = st.sampled_from(["agent = a", "agent = b", "agent != a", "agent in {a, b}", "agent in {b, c}"])
_depth = st.sampled_from(["depth > 1", "depth < 3", "depth = 2", "depth != 2", "depth >= 3", "depth <= 1"])
_conditions = st.one_of(st.just([]), st.lists(st.one_of(_agent, _depth), min_size=1, max_size=2, unique=True))
_match = st.builds(lambda k, c: f"{k}[{', '.join(c)}]" if c else k, st.sampled_from([*KINDS, "any"]), _conditions)
_rule = st.builds(
    lambda m, p, t: f"{', '.join(m)} {{ priority: {p} {t} }}",
    st.lists(_match, min_size=1, max_size=2, unique=True),
    st.sampled_from([10, 50, 60]),
    st.sampled_from(["", "place: anywhere", "place: same_worker"]),
)
_texts = st.lists(_rule, min_size=2, max_size=12).map("\n".join)


def spans() -> list[tuple[str, dict[str, object]]]:
    """Every span that the conditions above can tell apart, each as kind and attributes."""
    return [
        (kind, {name: value for name, value in (("agent", agent), ("depth", depth)) if value is not None})
        for kind, agent, depth in itertools.product(words.SPAN_KINDS, AGENTS, DEPTHS)
    ]


@settings(max_examples=120)
@given(_texts)
def test_exactly_the_pairs_that_some_span_meets_unbeaten(text: str) -> None:
    policy = policy_of(text)
    expected: set[frozenset[str]] = set()
    for kind, attributes in spans():
        for name in ("priority", "place"):
            reached = [r for r in policy.rules if name in r.values and r.matches_span(kind, attributes)]
            values = {r.name: policy_value(policy, r.name, name) for r in reached}
            left = policy.order.unbeaten(reached)
            expected |= {frozenset((a.name, b.name)) for a in left for b in left if values[a.name] != values[b.name]}
    found = clashes(text)
    assert {frozenset(str(n.place).rsplit(":", 1)[0] for n in fault.notes) for fault in found} == expected
    for fault in found:
        assert fault.witness is not None
        attributes = dict(fault.witness)
        kind = str(attributes.pop("kind"))
        names = {str(note.place).rsplit(":", 1)[0] for note in fault.notes}
        reached = [r for r in policy.rules if r.matches_span(kind, attributes)]
        assert names <= {
            r.name for r in policy.order.unbeaten(r for r in reached if "priority" in r.values)
        } or names <= {r.name for r in policy.order.unbeaten(r for r in reached if "place" in r.values)}


def policy_value(policy: Policy, rule: str, name: str) -> object:
    found = next(r for r in policy.rules if r.name == rule)
    return found.values[name].run(Subject("turn", {}, Owner()), Snapshot())


def test_a_rule_that_never_decides_disagrees_with_nobody() -> None:
    """Whatever the later layer's rule reaches, the earlier ones do not decide; where it does not, they still meet."""
    hidden = "layer one { turn[depth > 1] { priority: 1 } turn[agent = a] { priority: 2 } }\n"
    order = "layers one, two\n"
    assert clashes(hidden)
    assert not clashes(order + hidden + "layer two { turn { priority: 3 } }\n")
    assert not clashes(order + hidden + "layer two { turn[depth > 1] { priority: 3 } }\n")
    assert clashes(order + hidden + "layer two { turn[depth > 3] { priority: 3 } }\n")
    assert clashes(order + hidden + "layer two { turn when idle() > 1s { priority: 3 } }\n")
