"""`kvp explain`: the value, the rule, those it beats and why, those that have no say and why, and limits."""

from __future__ import annotations

import json

import pytest

from kvpolicy.cli.main import main

POLICY = """\
let patience = 20s
layer low {
  first: any { priority: 20 }
  wide: turn { priority: 50 }
}
layer workload {
  on tool_call until tool_result {
    quick_tool: turn, tool_result when p95(tool.duration) else patience <= patience { priority: 80 }
    slow_tool: turn, tool_result when p95(tool.duration) else patience > patience { priority: 40 }
  }
  chosen: turn[agent = coder] over rival { ttl: 5min }
  rival: turn[tokens > 1k] { ttl: 1h }
}
limit any[plan = free] { priority: at most 60 }
"""
SPAN = "turn[agent=coder, tokens=12k]"


@pytest.fixture
def explain(tmp_path, capsys):
    file = tmp_path / "p.kvp"
    file.write_text(POLICY)

    def call(*options: str, status: int = 0):
        assert main(["explain", str(file), "--format", "json", *options]) == status
        out = capsys.readouterr()
        return json.loads(out.out) if status == 0 else out.err

    return call


def test_everything_about_one_property(explain):
    found = explain("--span", SPAN, "--at", "tool_call[tool=grep]", "--assume", "p95(tool.duration)=800ms")
    assert found["span"] == {"kind": "turn", "agent": "coder", "tokens": 12000}
    rank = found["properties"]["priority"]
    assert rank["file"].endswith("p.kvp")
    assert {k: rank[k] for k in ("value", "rule", "layer", "line", "limited_by")} == {
        "value": 80,
        "rule": "quick_tool",
        "layer": "workload",
        "line": 8,
        "limited_by": None,
    }
    assert rank["beaten"] == [{"rule": "first", "because": "layer"}, {"rule": "wide", "because": "layer"}]
    assert rank["not_candidates"] == [{"rule": "slow_tool", "because": "guard"}]
    assert found["properties"]["ttl"]["beaten"] == [{"rule": "rival", "because": "over"}]
    assert any("quick_tool" in s for s in found["sentences"])


def test_what_a_condition_came_to(explain):
    """The values of the functions that a `when` asked, and how each stands to what it is compared with."""
    found = explain("--span", SPAN, "--at", "tool_call[tool=grep]", "--assume", "p95(tool.duration)=800ms")
    assert found["conditions"] == [
        {"rule": "quick_tool", "holds": True, "values": ["p95(tool.duration) is 800ms, <= 20s"]},
        {"rule": "slow_tool", "holds": False, "values": ["p95(tool.duration) is 800ms, not > 20s"]},
    ]
    told = "slow_tool has no say: its condition does not hold, as p95(tool.duration) is 800ms, not > 20s."
    assert told in found["sentences"]
    assert "Its condition holds: p95(tool.duration) is 800ms, <= 20s." in found["sentences"]


def test_what_a_condition_came_to_is_told_once(tmp_path, capsys):
    """A rule that sets, or would set, several properties has one condition."""
    file = tmp_path / "p.kvp"
    file.write_text(
        "holds: turn when idle() < 1min { priority: 50  ttl: 5min }\n"
        "fails: turn when idle() > 1min { share: tenant  for: session }\n"
    )
    assert main(["explain", str(file), "--span", "turn", "--assume", "idle()=2s"]) == 0
    said = capsys.readouterr().out
    assert said.count("idle() is 2s, < 1min") == said.count("idle() is 2s, not > 1min") == 1
    assert said.count("rule holds in layer") == 2
    assert said.count("it has no say now. The condition of fails does not hold.\n") == 1


PHRASES = {
    "reuse_probability() else 1 < 0.2": "reuse_probability() is 0.46, not < 0.2",
    "0.2 >= reuse_probability() else 20%": "reuse_probability() is 0.46, not <= 0.2",
    "not (reuse_probability() else 0% > 20%)": "reuse_probability() is 0.46, not <= 0.2",
    "next_use() else 5min < 3min": "next_use() has no data, so it counts as 5min, not < 3min",
    "next_use() else eta(tool_result) else 5min < 3min": (
        "next_use() has no data, and eta(tool_result) has no data, so it counts as 5min, not < 3min"
    ),
    "next_use() else idle() < 1min": "next_use() has no data, and idle() is 2min, not < 1min",
    "steps_to_next_use() else 9 <= 3": "steps_to_next_use() is never, not <= 3",
    # of an `and` the part that fails; of an `or` all
    "age() < 10s and idle() < 1s": "idle() is 2min, not < 1s",
    "reuse_probability() else 1 < 0.2 or idle() < 1s": (
        "reuse_probability() is 0.46, not < 0.2; idle() is 2min, not < 1s"
    ),
    "idle() + 1min < 2 * age()": "idle() + 1min is 3min, not < 2 * age(), which is 4s",
    "(bytes() else 1MiB) > 3GiB": "bytes() is 2GiB, not > 3GiB",
}


@pytest.mark.parametrize("condition", PHRASES)
def test_the_words_for_it(condition, tmp_path, capsys):
    file = tmp_path / "p.kvp"
    file.write_text(f"one: turn when {condition} {{ priority: 50 }}\n")
    known = ("reuse_probability()=0.46", "steps_to_next_use()=never", "idle()=2min", "age()=2s", "bytes()=2GiB")
    assumed = [word for each in known for word in ("--assume", each)]
    assert main(["explain", str(file), "--span", "turn", *assumed]) == 0
    said = capsys.readouterr().out
    assert f"The condition of one does not hold, as {PHRASES[condition]}.\n" in said


def test_closed_intervals_and_narrower_rules(explain):
    rank = explain("--span", SPAN)["properties"]["priority"]
    assert (rank["value"], rank["rule"]) == (50, "wide")
    assert rank["beaten"] == [{"rule": "first", "because": "narrower"}]
    assert {r["because"] for r in rank["not_candidates"]} == {"interval"}


def test_a_property_nobody_sets_is_absent(explain):
    assert list(explain("--span", "document")["properties"]) == ["priority"]


def test_limits_are_named(explain):
    rank = explain("--span", "turn[plan=free]", "--at", "tool_call", "--assume", "p95(tool.duration)=1s")["properties"]
    assert rank["priority"]["value"] == 60
    assert rank["priority"]["limited_by"].endswith("p.kvp:14")


def test_what_happened_keeps_its_order(explain):
    said = ("--span", SPAN, "--assume", "p95(tool.duration)=1s", "--at", "tool_call", "--at", "tool_result")
    assert explain(*said)["properties"]["priority"]["value"] == 80
    assert explain(*said, "--then", "31s")["properties"]["priority"]["value"] == 50
    assert explain(*said, "--then", "31s", "--at", "tool_call")["properties"]["priority"]["value"] == 80


def test_what_was_not_assumed_is_said(explain):
    found = explain("--span", SPAN, "--at", "tool_call")
    assert found["properties"]["priority"]["rule"] == "quick_tool"  # without data the fallback counts
    assert found["not_assumed"] == ["p95(tool.duration)"]
    assert "p95(tool.duration)" in found["sentences"][-1]


FAULTS = (
    (("--span", "trun"), "did you mean 'turn'"),
    (("--span", "turn[agnt=coder]"), "did you mean 'agent'"),
    (("--span", "turn[agent=coder"), "--span"),
    (("--span", "turn } turn { priority: 3"), "--span"),
    (("--span", "turn[tokens > 3]"), "one value"),
    (("--span", "turn, document"), "write one span"),
    (("--span", "turn", "--at", "toolcall"), "did you mean 'tool_call'"),
    (("--span", "turn", "--assume", "meen(tool.duration)=3s"), "did you mean 'mean'"),
    (("--span", "turn", "--assume", "p95(tool.duration)"), "--assume"),
)


@pytest.mark.parametrize(("options", "message"), FAULTS)
def test_options_that_cannot_be_read(explain, options, message):
    shown = explain(*options, status=2)
    assert message in shown
    assert "Traceback" not in shown


def test_text_is_the_sentences(tmp_path, capsys):
    file = tmp_path / "p.kvp"
    file.write_text("a: turn { priority: default }\n")
    assert main(["explain", str(file), "--span", "turn"]) == 0
    assert "as if no rule had set it" in capsys.readouterr().out
    assert main(["explain", str(file), "--span", "document"]) == 0
    assert "No rule decides anything" in capsys.readouterr().out


def test_rules_without_a_say_are_named_in_one_sentence(tmp_path, capsys):
    file = tmp_path / "p.kvp"
    rows = "{ one: turn { ttl: 5min } two: turn[agent = a] { ttl: 1h } three: turn { priority: 80 } }"
    file.write_text(f"on tool_call until tool_result {rows}\n")
    assert main(["explain", str(file), "--span", "turn[agent=a]"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert "ttl is not set: only one and two would set it, and they have no say now." in shown
    assert "priority is not set: only three would set it, and it has no say now." in shown
    assert main(["explain", str(file), "--span", "turn[agent=a]", "--at", "tool_call"]) == 0
    assert "It has held since tool_call." in capsys.readouterr().out.splitlines()


HOLDS = """\
on tool_call until tool_result { pause: turn { retention: hold 30s  priority: 60 } }
on turn_end until turn_start at most 10s { human: turn { retention: hold until turn_start } }
"""
CALL = ("--at", "tool_call")
IN_GRACE = "protections stay for 25s more, or until the next request has used the blocks."


@pytest.mark.parametrize(
    ("happened", "said"),
    [
        (
            (*CALL, "--then", "40s"),
            "The hold ended 10s ago: the blocks are no longer protected, and priority rules again.",
        ),
        (("--at", "turn_end", "--then", "12s"), "The hold ended 2s ago: "),
        (
            (*CALL, "--then", "9s", "--at", "tool_result", "--then", "5s"),
            f"closed by tool_result 5s ago; its {IN_GRACE}",
        ),
        (
            (*CALL, "--at", "turn_end"),
            "turn_end has no effect on the phase here: a tool call is open, and its result has",
        ),
        (("--at", "session_end", "--at", "turn_end"), "turn_end has no effect on the phase here: its run has ended"),
        ((*CALL, "--at", "tool_result[tool=x]"), None),
        (
            ("--at", "tool_call[tool=y]", "--at", "tool_result[tool=x]"),
            "tool_result has no effect on the phase here: no such",
        ),
        (("--at", "turn_end[session=s2]"), "turn_end has no effect on the phase here: it states an owner"),
        ((*CALL, "--then", "30s"), "The hold ended just now: "),
        ((*CALL, "--then", "29s"), None),
        ((*CALL, "--at", "tool_result", "--at", "turn_end"), None),
    ],
)
def test_what_is_over_or_lingers_or_has_no_effect_is_said(happened, said, tmp_path, capsys):
    """Rules decide what a hold is; that its clock has run out, or that an event changed nothing, is told beside it."""
    file = tmp_path / "p.kvp"
    file.write_text(HOLDS)
    assert main(["explain", str(file), "--span", "turn", "--format", "json", *happened]) == 0
    sentences = json.loads(capsys.readouterr().out)["sentences"]
    told = [s for s in sentences if "ended" in s or "closed by" in s or "no effect" in s]
    if said is None:
        assert not [s for s in told if "closed by" not in s]
    else:
        assert any(said in s for s in told), sentences


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (
            ("--assume", "p90(tool.duration)=80%"),
            "'p90(tool.duration)' is a duration, and '80%' is a percentage; write",
        ),
        (("--assume", "p95(tool)=3s"), "'tool' is not what it measures; did you mean `tool.duration`?"),
        (("--assume", "next_use()=3"), "'next_use()' is a duration, and 3 has no unit; write 3s, 3min or 3h"),
        (("--then", "3"), "the time that passes is a duration, and 3 has no unit; write 3s, 3min or 3h"),
        (("--at", "tool_call[tool=3s]"), "'tool' is a name, and 3s is a number"),
        (("--span", "turn[agent=answer"), "this '[' is never closed; write `]` where it ends"),
        (("--assume", "p95(tool.duration=3s"), "this '(' is never closed; write `)` where it ends"),
        (("--span", "turn[tokens=3s]"), "'tokens' is compared with a token count"),
    ],
)
def test_options_are_checked_as_a_test_is(explain, options, told):
    span = () if options[0] == "--span" else ("--span", "turn")
    error = explain(*span, *options, status=2)
    assert f"{options[0]} '{options[1]}': {told}" in error


def test_a_let_of_the_policy_may_stand_in_an_option(explain):
    found = explain("--span", SPAN, "--at", "tool_call[tool=grep]", "--assume", "p95(tool.duration)=patience")
    assert found["conditions"][0]["values"] == ["p95(tool.duration) is 20s, <= 20s"]
    assert "ptience" in explain("--span", SPAN, "--assume", "p95(tool.duration)=ptience", status=2)
