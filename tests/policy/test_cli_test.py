"""`kvp test`: what passes, what fails and says why, and what counts as no test at all."""

from __future__ import annotations

import json

import pytest

from kvpolicy.cli.main import main

POLICY = """\
policy continuum "Keep a turn while its tool runs."
let patience = 20s
layer workload {
  on tool_call until tool_result {
    quick_tool: turn when p95(tool.duration) else patience <= patience {
      retention: hold p95(tool.duration) else patience
      priority: 80
    }
    slow_tool: turn when p95(tool.duration) else patience > patience { priority: 40  tier: cpu, disk after 10min }
  }
  on turn_end until turn_start { waiting: turn { priority: 30 } }
}
"""


@pytest.fixture
def run(tmp_path, capsys):
    def call(tests: str, *options: str, policy: str = POLICY):
        file = tmp_path / "c.kvp"
        file.write_text(policy + tests)
        status = main(["test", str(file), "--format", "json", *options])
        out = capsys.readouterr()
        return status, json.loads(out.out) if out.out else out.err

    return call


def case(*steps: str, name: str = "t") -> str:
    return f'test "{name}" {{ {" ".join(steps)} }}\n'


GIVEN = "given turn[agent = coder, tokens = 12k]"
QUICK = "assume p95(tool.duration) = 800ms"


def test_a_quick_tool_holds_the_turn(run):
    expect = "expect turn { retention: hold 800ms  priority: 80 by quick_tool  tier: default }"
    status, found = run(case(GIVEN, QUICK, "at tool_call[tool = grep]", expect))
    assert (status, found["passed"], found["failed"]) == (0, 1, 0)
    assert found["tests"][0]["rows"] == []
    assert found["coverage"]["decided"] == 2
    assert "slow_tool.tier" in found["coverage"]["never"]
    assert found["coverage"]["of"] == 5


def test_only_rows_that_differ_are_shown(run):
    expect = "expect turn { retention: hold 800ms  priority: 40 }"
    status, found = run(case(GIVEN, QUICK, "at tool_call", expect))
    assert status == 1
    assert [(r["span"], r["property"], r["expected"], r["got"], r["rule"]) for r in found["tests"][0]["rows"]] == [
        ("turn", "priority", 40, 80, "quick_tool")
    ]


def test_the_wrong_rule_fails_even_with_the_right_value(run):
    status, found = run(case(GIVEN, QUICK, "at tool_call", "expect turn { priority: 80 by slow_tool }"))
    assert status == 1
    assert found["tests"][0]["rows"][0]["expected_rule"] == "slow_tool"


def test_a_function_not_assumed_is_an_error_that_names_it(run):
    status, found = run(case(GIVEN, "at tool_call", "expect turn { priority: 80 }"))
    assert status == 1
    assert "p95(tool.duration)" in found["tests"][0]["rows"][0]["error"]


def test_a_function_that_is_not_reached_need_not_be_assumed(run):
    status, _ = run(case(GIVEN, "at turn_end", "expect turn { priority: 30  ttl: default }"))
    assert status == 0


def test_nothing_as_an_answer_is_no_missing_assumption(run):
    assume = "assume p95(tool.duration) = nothing"
    status, found = run(case(GIVEN, assume, "at tool_call", "expect turn { retention: hold 20s }"))
    assert status == 0, found


def test_an_assumption_can_be_for_some_spans(run):
    steps = (
        "given turn[agent = a], turn[agent = b]",
        "assume p95(tool.duration) = 1min",
        "assume p95(tool.duration) = 1s for turn[agent = b]",
        "at tool_call",
        "expect turn[agent = a] { priority: 40 by slow_tool }",
        "expect turn[agent = b] { priority: 80 by workload.quick_tool }",
    )
    status, found = run(case(*steps))
    assert status == 0, found


def test_then_moves_the_clock(run):
    steps = (GIVEN, QUICK, "at tool_call", "at tool_result", "expect turn { priority: 80 }", "then 31s")
    status, found = run(case(*steps, "expect turn { priority: default }"))
    assert status == 0, found


def test_events_reach_the_owners_that_agree(run):
    steps = ("given turn[agent = a], turn[agent = b]", "at turn_end[agent = a]")
    expect = ("expect turn[agent = a] { priority: 30 }", "expect turn[agent = b] { priority: default }")
    assert run(case(*steps, *expect))[0] == 0


def test_a_span_that_is_not_given_is_no_span(run):
    status, found = run(case(GIVEN, "at turn_end", "expect turn[agent = writer] { priority: 30 }"))
    assert status == 1
    assert "no given span" in found["tests"][0]["rows"][0]["error"]


def test_a_run_without_tests_fails(run):
    status, found = run("")
    assert status == 1
    assert found["tests"] == []
    assert run(case(GIVEN))[0] == 1


def test_a_policy_with_faults_is_not_tested(run):
    status, found = run("turn { priority: 101 }\n" + case(GIVEN, "expect turn { priority: default }"))
    assert status == 1
    assert found["diagnostics"][0]["code"] == "KVP105"


def test_tests_beside_the_policy_are_run(tmp_path, capsys):
    (tmp_path / "p.kvp").write_text("a: turn { priority: 80 }\n")
    (tmp_path / "p.test.kvp").write_text(case("given turn", "expect turn { priority: 80 by a }"))
    for target in ("p.kvp", "p.test.kvp"):
        assert main(["test", str(tmp_path / target), "--format", "json"]) == 0
        assert json.loads(capsys.readouterr().out)["passed"] == 1


def test_tests_of_a_file_that_uses_the_policy(tmp_path, capsys):
    (tmp_path / "p.kvp").write_text("a: turn { priority: 80 }\n")
    (tmp_path / "q.test.kvp").write_text('use "p.kvp"\n' + case("given turn", "expect turn { priority: 80 by p.a }"))
    assert main(["test", str(tmp_path / "q.test.kvp")]) == 0
    assert "1 passed" in capsys.readouterr().out


def test_text_output_names_what_differs(tmp_path, capsys):
    file = tmp_path / "p.kvp"
    file.write_text("a: turn { priority: 80 }\nb: document { priority: 3 }\n" + case("expect turn { priority: 70 }"))
    assert main(["test", str(file), "--coverage"]) == 1
    out = capsys.readouterr().out
    assert "turn priority: expected 70, got 80 by a" in out
    assert "never: b.priority" in out


def test_coverage_counts_the_rules_of_the_named_files_and_those_they_use_apart(tmp_path, capsys):
    (tmp_path / "p.kvp").write_text("a: turn { priority: 80 }\nb: document { priority: 3 }\n")
    own = 'use "p.kvp"\nz: output { ttl: default  priority: 50 }\nc: turn[agent = x] { priority: 40 }\n'
    (tmp_path / "q.kvp").write_text(own + case("given turn, output", "expect turn { priority: 80 by p.a }"))
    assert main(["test", str(tmp_path / "q.kvp"), "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)["coverage"]
    assert found == {
        "decided": 0,
        "of": 3,
        "never": ["z.ttl", "z.priority", "c.priority"],  # in the order of the file
        "used": {"decided": 1, "of": 2},
    }
    assert main(["test", str(tmp_path / "q.kvp"), "--coverage"]) == 0
    out = capsys.readouterr().out
    assert "never: c.priority" in out
    assert "p.b" not in out
    assert "of the policies it uses: 1 of 2" in out


HELD = "on tool_call until tool_result { pause: turn { retention: hold 30s  priority: 60 } }\n"


@pytest.mark.parametrize(
    ("steps", "note"),
    [
        ("at tool_call then 40s expect turn { retention: default }", "The hold ended 10s ago: "),
        (
            "at tool_call at tool_result expect turn { priority: default }",
            "Its interval was closed by tool_result just ",
        ),
        (
            "at tool_call at turn_end expect turn { priority: default }",
            "turn_end has no effect on the phase here: a tool",
        ),
    ],
)
def test_a_row_that_differs_says_what_is_over_or_lingers(run, steps, note, tmp_path, capsys):
    status, found = run(case("given turn", steps), policy=HELD)
    assert status == 1
    (row,) = found["tests"][0]["rows"]
    assert row["notes"][0].startswith(note)
    assert main(["test", str(tmp_path / "c.kvp")]) == 1
    assert f"\n    {note}" in capsys.readouterr().out
