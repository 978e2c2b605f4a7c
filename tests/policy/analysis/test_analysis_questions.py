"""The other questions about rules: what is told, and which sensible policies are left in peace."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kvpolicy.faults import Diagnostic
from kvpolicy.language.check import examine
from kvpolicy.language.load import load, load_text, packaged_names
from kvpolicy.policy.analysis import analyse


def told(text: str) -> list[Diagnostic]:
    loaded = load_text(text, "a.kvp")
    assert loaded.files is not None
    assert [fault for fault in examine(loaded) if fault.severity == "error"] == []
    return list(analyse(loaded.files))


def names(text: str) -> list[str]:
    return [fault.name for fault in told(text)]


SENSIBLE = (
    "system, tools { priority: 90 }\ndocument { priority: 60  ttl: 10min }\n"
    "on turn_end until turn_start { scratchpad { retention: drop } }\n",
    "turn { priority: 50  ttl: 5min }\nturn[agent = judge] { priority: 80 }\nlimit any { priority: at most 85 }\n",
    "turn { ttl: 5min }\nturn[agent = judge] { priority: 80 }\n",
    "any { priority: 40 }\nsystem { priority: 90 }\n",
    "any { tier: gpu, cpu after 30s }\n",
    "any { share: session }\n",
    "limit any { priority: at most 40  hold: at most 40% of gpu }\n",
    "on workflow_end { turn, document, tool_result, scratchpad, branch, output { retention: drop } }\n",
    "on session_end { any { retention: drop } }\n",
    "on tool_call until tool_result at most 2h { turn { retention: hold 90min } }\n",
    "on turn_end until turn_start { turn { retention: hold until turn_start } }\n",
    "on branch_pruned { branch { retention: drop } }\n",
    "on step_end until step_start { turn { priority: 50 - steps_to_next_use() else 10 } }\n",
    "system[agent = helper] { priority: 20 }\nturn { priority: 60 }\n",
    "layer low { system { priority: 20 } }\n"
    "layer high { system when idle() < 5s { priority: 95 }  turn { priority: 60 } }\n",
    "workflow w {\n  agent a, b\n  barrier j\n  a -> b * n -> j\n  loop j -> a at most 3\n}\nturn { priority: 50 }\n",
    "workflow w {\n  agent a, b, c\n  a -> b -> a\n  b -> c\n}\nturn[agent in {a, c}] { priority: 50 }\n",
)


# Rules that reach every span, but not always: no LRU in other words.
SOMETIMES = (
    "on tool_call until tool_result { any { priority: 50 } }\n",
    "any when idle() < 1min { priority: 50 }\n",
    "any[agent = judge] { priority: 50 }\n",
    "any { priority: 50  ttl: 5min fixed }\n",
)

# What an owner that is gone can no longer meet, and what may still come.
GONE = (
    "tool_call",
    "tool_result",
    "turn_end",
    "step_end",
    "branch_done",
    "branch_scored",
    "barrier",
    "compact",
    "pause",
)
LATER = ("turn_start", "step_start", "branch_start", "resume")
AFTER_THE_END = dict.fromkeys(GONE, True) | dict.fromkeys(LATER, False)


@pytest.mark.parametrize(("event", "told_of"), AFTER_THE_END.items())
def test_what_cannot_follow_the_end_of_a_session(event: str, told_of: bool) -> None:
    expected = ["matches-nothing"] if told_of else []
    assert names(f"on session_end until {event} {{ turn {{ priority: 20 }} }}") == expected


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        ("on turn_end {{ {rest} }}", ["drop-takes-more"]),  # at another time
        ("on session_end {{ {rest} }}", []),
        ("{rest}", []),
        ("turn, tool_result, output, scratchpad when idle() > 1min {{ retention: drop }}", ["drop-takes-more"]),
    ],
)
def test_a_drop_of_the_head_asks_for_the_rest_at_the_same_time(other: str, expected: list[str]) -> None:
    rest = "turn, tool_result, output, scratchpad { retention: drop }"
    assert names("on session_end { system { retention: drop } }\n" + other.format(rest=rest)) == expected


@pytest.mark.parametrize("text", SENSIBLE + SOMETIMES)
def test_sensible_policies_are_left_in_peace(text: str) -> None:
    assert [(fault.name, fault.message) for fault in told(text)] == []


def test_there_are_packaged_policies() -> None:
    assert {"base", "coding_agent"} <= set(packaged_names())


@pytest.mark.parametrize("name", packaged_names())
def test_packaged_policies_have_no_fault(name: str) -> None:
    loaded = load([name])
    assert loaded.diagnostics == ()
    assert loaded.files is not None
    assert [(str(f.place), f.name, f.message) for f in (*examine(loaded), *analyse(loaded.files))] == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # never decides
        ("layer a { x: turn { priority: 50 } }\nlayer b { turn, tools { priority: 60 } }", ["never-decides"]),
        ("layer a { x: turn { priority: 50  place: same_worker } }\nlayer b { turn { priority: 60 } }", []),
        ("layer a { x: turn { priority: 50 } }\nlayer b { turn when idle() > 5s { priority: 60 } }", []),
        ("x: turn[agent = a] { priority: 50 }\nturn over x { priority: 60 }", ["never-decides"]),
        # matches nothing
        ("turn[depth = 1, depth = 2] { priority: 50 }", ["matches-nothing"]),
        ("turn[tool in {}] { priority: 50 }", ["matches-nothing"]),
        ("turn[last_step = yes, last_step = no] { priority: 50 }", ["matches-nothing"]),
        ("turn { priority: 50 }\nlimit any[depth < 2, depth > 5] { priority: at most 40 }", ["matches-nothing"]),
        ("on tool_call[tool = a, tool = b] { turn { priority: 50 } }", ["matches-nothing"]),
        ("on turn_end until tool_result { turn { priority: 50 } }", ["matches-nothing"]),
        ("on tool_call until turn_end { turn { priority: 50 } }", ["matches-nothing"]),
        ("workflow w { agent a, b  a -> b }\nturn[agent = c] { priority: 50 }", ["matches-nothing"]),
        ("workflow w { agent a, b  a -> b }\nturn[workflow = other, agent = c] { priority: 50 }", []),
        # holds
        ("on turn_end until turn_start { turn { retention: hold until tool_result } }", ["hold-until-never"]),
        ("on session_end { turn { retention: hold until tool_call } }", ["hold-until-never"]),
        ("on tool_call until tool_result { turn { retention: hold 2h } }", ["hold-beyond-bound"]),
        ("on tool_call at most 5min { turn { retention: hold 6min } }", ["hold-beyond-bound"]),
        ("turn { retention: hold 6h }", []),
        # limits
        ("turn { priority: 50 }\nlimit turn { priority: at most 30  priority: at least 31 }", ["limits-crossed"]),
        ("turn { priority: 50 }\nlimit turn { priority: at most 30 }\nlimit tools { priority: at least 31 }", []),
        ("turn { priority: 50 ttl: 5min }\nlimit any { ttl: at most 5s  ttl: at least 6s }", ["limits-crossed"]),
        # lifetimes
        ("turn { priority: 35  ttl: 5min }", ["lifetime-of-nothing"]),
        ("turn { ttl: 5min }\ntools { priority: 80 }", ["lifetime-of-nothing"]),
        ("turn { ttl: 5min }\nlimit any { priority: at least 40 }", []),
        # LRU
        ("any { priority: 35 }", ["this-is-lru"]),
        ("any { retention: normal }", ["this-is-lru"]),
        (
            "system, tools, document, turn { priority: 60 }\ntool_result, scratchpad, branch, output { priority: 60 }",
            ["this-is-lru"],
        ),
        ("any { priority: 60  ttl: 5min fixed }", []),
        ("any { retention: hold 5s }", []),
        ("any { priority: 60 - turns_ago() }", []),
        ("turn { priority: 60 }", []),
        ("any { priority: 60 }\nlimit turn { priority: at most 50 }", []),
        # stranded, dropped
        ("tools { priority: 20 }\nturn, output { priority: 60 }", ["stranded-tokens"]),
        ("tools { retention: drop }", ["drop-takes-more"]),
        (
            "on session_end { system { retention: drop }  turn, tool_result, output, scratchpad { retention: drop } }",
            [],
        ),
        # workflows
        (
            "workflow v { workflow w as first  agent a  first -> a }\nworkflow w { agent b, c  b -> c }\n"
            'turn[agent in {a, b, c}, node in {"first/b", first, a}] { priority: 50 }',
            [],
        ),
        (
            "workflow v { workflow w as first }\nworkflow w { agent b }\nturn[node = w] { priority: 50 }",
            ["matches-nothing"],
        ),
        ("workflow w { agent a, b of a  a -> a at most 2 }\nturn { priority: 50 }", []),
        ("workflow w { agent a, b of a  a -> a }\nturn { priority: 50 }", ["loop-without-exit"]),
        (
            "workflow v { workflow w  agent a  w -> a -> w }\nworkflow w { agent b }\nturn { priority: 50 }",
            ["loop-without-exit"],
        ),
        ("workflow w { agent a, b  a -> b -> a }\nturn { priority: 50 }", ["loop-without-exit"]),
        ("workflow w { agent a  loop a -> a }\nturn { priority: 50 }", ["loop-without-exit"]),
        ("workflow w { agent a, b, c  c -> a -> b  loop b -> a }\nturn { priority: 50 }", ["loop-without-exit"]),
        # precedence
        (
            "a: turn over b { priority: 50 }\nb: turn over c { priority: 60 }\nc: turn over a { priority: 70 }",
            ["precedence-cycle"],
        ),
        (
            "a: turn over c { priority: 50 }\n"
            "b: turn[depth > 3] over a { priority: 60 }\nc: turn[depth > 2] { priority: 70 }",
            ["never-decides"],
        ),
        (
            "a: turn over b { priority: 50 }\nb: turn[depth > 3] { priority: 60 }\nc: turn[depth > 2] { priority: 70 }",
            ["precedence-cycle"],
        ),
    ],
)
def test_what_is_told(text: str, expected: list[str]) -> None:
    assert names(text + "\n") == expected


def test_a_loop_is_told_with_the_names_of_its_nodes() -> None:
    (fault,) = told(
        "workflow w { agent first, second, other\n other -> first -> second -> first }\nturn { priority: 50 }\n"
    )
    assert re.findall(r"first|second|other", fault.message)[:3] == ["first", "second", "first"]
    assert "other" not in fault.message


def test_a_circle_is_told_with_its_rules_in_order() -> None:
    (fault,) = told(
        "a: turn over b { priority: 50 }\nb: turn over c { priority: 60 }\nc: turn over a { priority: 70 }\n"
    )
    assert "'a' over 'b' over 'c' over 'a'" in fault.message


def test_groups_without_an_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("one.kvp").write_text("turn { priority: 50 }\ntools { priority: 80 }\n")
    Path("two.kvp").write_text("turn { priority: 60 }\ntools { priority: 90 }\n")
    for lines, expected in (("", ["group-order-unknown"]), ("layers two, one\n", []), ("layers one, two\n", [])):
        Path("a.kvp").write_text(f'use "one.kvp"\nuse "two.kvp"\n{lines}document {{ priority: 60 }}\n')
        loaded = load(["a.kvp"])
        assert loaded.files is not None
        found = analyse(loaded.files)
        assert [fault.name for fault in found] == expected
        assert all((fault.place.file, fault.place.line) == ("a.kvp", 2) for fault in found)


def test_overruling_a_used_policy_is_no_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("one.kvp").write_text("mild: turn { priority: 50 }\n")
    for text in ("turn { priority: 60 }\n", "turn over one.mild { priority: 60 }\n"):
        Path("a.kvp").write_text('use "one.kvp"\n' + text)
        loaded = load(["a.kvp"])
        assert loaded.files is not None
        assert analyse(loaded.files) == ()


def test_the_nearest_node_is_looked_for_as_long_as_that_is_few_comparisons():
    """Of hundreds of misspelled nodes beside hundreds that there are, the first are told what was meant."""
    nodes = ", ".join(f"agent_number_{i}" for i in range(300))
    wrong = "\n".join(f"turn[agent = agent_numer_{i}] {{ priority: 50 }}" for i in range(150))
    loaded = load_text(f"workflow w {{ agent {nodes} }}\n{wrong}\n")
    assert loaded.files is not None
    told = [fault.fix or "" for fault in analyse(loaded.files) if fault.code == "KVP203"]
    assert told[0] == "did you mean `agent_number_0`?"
    assert len(told) == 150
    assert told[-1].startswith("its nodes are agent_number_0, agent_number_1, ")
    assert told[-1].endswith(" and 288 more")
