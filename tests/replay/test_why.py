"""Why a block has its rank, after a timeline: the claims that cover it, whose they are, until when, by which rule."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kvpolicy.cli.main import main

POLICY = """\
system { priority: 90  ttl: 10min }
on tool_call until tool_result {
  quick: turn { retention: hold 30s  priority: 80 }
}
on session_end { left: turn { retention: drop } }
"""
TIMELINE = [
    {
        "at": 0,
        "do": "request",
        "id": "r1",
        "owner": {"session": "s", "agent": "coder"},
        "hashes": ["a", "b", "c"],
        "spans": [{"kind": "system", "start": 0, "end": 16}, {"kind": "turn", "start": 16, "end": 48}],
    },
    {"at": 1, "do": "finish", "id": "r1"},
    {"at": 2, "do": "event", "event": {"event": "tool_call", "tool": "grep", "session": "s"}},
    {
        "at": 3,
        "do": "request",
        "id": "r2",
        "owner": {"session": "t"},
        "hashes": ["a", "x"],
        "spans": [{"kind": "system", "start": 0, "end": 16}],
    },
    {"at": 4, "do": "finish", "id": "r2"},
    {"at": 40, "do": "advance"},
    {"at": 41, "do": "event", "event": {"event": "session_end", "session": "s"}},
]
SYSTEM = (
    " wants its system and everything before it (1 block) kept at priority 90, which lapses at {} s, {} from now. "
    "The claim stands as long as its agent lives; priority and ttl come from the rule at p.kvp:1."
)


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "p.kvp").write_text(POLICY)
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, TIMELINE)))


def told(capsys: pytest.CaptureFixture[str], block: str, step: int) -> list[str]:
    assert main(["explain", "p.kvp", "--replay", "t.jsonl", "--block", block, "--step", str(step)]) == 0
    return capsys.readouterr().out.splitlines()


def test_a_block_that_two_owners_claim(capsys: pytest.CaptureFixture[str]) -> None:
    first, second, *claims = told(capsys, "a", 5)
    assert first == "Block a, in GPU memory, is protected, at rank 80."
    assert second == "4 claims cover it, of 2 owners; the first decides."
    assert claims[0] == (
        "Agent coder of session s wants its turn and everything before it (3 blocks) kept at priority 80, "
        "protected until 32 s, 28s from now. The claim stands as long as its session lives; "
        "priority and retention come from quick (p.kvp:3)."
    )
    assert sorted(claims[1:]) == sorted(
        [
            "Session t" + SYSTEM.format(604, "10min"),
            "Agent coder of session s" + SYSTEM.format(604, "10min"),
            "Session t wants its turn and everything before it (2 blocks) kept at priority 35, "
            "which is the default, for no rule set one. The claim stands as long as its session lives.",
        ]
    )


def test_it_changes_with_the_clock_and_with_events(capsys: pytest.CaptureFixture[str]) -> None:
    assert told(capsys, "c", 1)[:2] == [
        "Block c, in GPU memory, ranks 35.",
        "A request uses it now, so it cannot leave, whatever its rank.",
    ]
    assert told(capsys, "c", 5)[0] == "Block c, in GPU memory, is protected, at rank 80."
    assert told(capsys, "c", 6)[0] == "Block c, in GPU memory, ranks 80."
    assert told(capsys, "c", 7)[0] == "Block c, in GPU memory, is given up and leaves before all others."


def test_a_block_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert told(capsys, "zz", 5) == ["Block zz is named by no request so far."]


def test_the_document(capsys: pytest.CaptureFixture[str]) -> None:
    words = [
        "explain",
        "p.kvp",
        "--replay",
        "t.jsonl",
        "--block",
        "c",
        "--block",
        "x",
        "--step",
        "5",
        "--format",
        "json",
    ]
    assert main(words) == 0
    one, two = json.loads(capsys.readouterr().out)["blocks"]
    assert (one["block"], one["rank"], one["protected"], one["at"]) == ("c", 80, True, 4)
    assert one["claims"][0]["owner"] == {"tenant": "default", "session": "s", "agent": "coder"}
    assert one["claims"][0]["rules"] == {"priority": "quick", "retention": "quick"}
    assert one["claims"][0]["protected_until"] == 32
    assert two["claims"][0]["rules"] == {}
    assert len(two["sentences"]) == 2


REQUEST = {
    "id": "r",
    "owner": {"tenant": "t", "session": "s", "agent": "coder"},
    "block_size": 16,
    "tokens": 80,
    "spans": [{"kind": "system", "start": 0, "end": 40}, {"kind": "output", "start": 80, "end": None}],
}


def test_all_spans_of_a_request(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "r.json").write_text(json.dumps(REQUEST))
    event = {"at": 5.0, "event": "tool_call", "tool": "grep", "session": "s"}
    (tmp_path / "s.json").write_text(json.dumps({"events": [event]}))
    assert main(["explain", "p.kvp", "--request", "r.json", "--state", "s.json"]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[:2] == [
        "system [0, 40):",
        "  priority is 90: rule p.kvp:1 in layer p decides it.",
    ]
    assert "turn [40, 80):\n  priority is 80: rule quick in layer p decides it.\n" in out
    assert "output [80, …):\n  No rule decides anything for this output: it stands at the default rank.\n" in out
    assert main(["explain", "p.kvp", "--request", "r.json", "--format", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)["spans"]
    assert [(row["start"], row["end"], row["span"]["kind"]) for row in rows] == [
        (0, 40, "system"),
        (40, 80, "turn"),
        (80, None, "output"),
    ]
    assert rows[0]["span"] == {"kind": "system", "tenant": "t", "session": "s", "agent": "coder", "tokens": 40}
    assert rows[0]["properties"]["ttl"]["value"] == "10min"
    assert "priority" not in rows[1]["properties"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("", "explain: give --span, --request or --replay"),
        ("--span turn --replay t.jsonl", "explain: --span and --replay do not go together; give one"),
        ("--span turn --block a", "explain: --block goes with --replay alone"),
        ("--request r.json --at tool_call", "explain: --at or --then goes with --span alone"),
        ("--replay t.jsonl", "explain: --replay needs --block NAME"),
        ("--replay t.jsonl --block a --step 99", "--step 99: t.jsonl has 7 steps"),
        ("--span turn --state s.json", "explain: --state goes with --request alone"),
    ],
)
def test_options_that_do_not_go_together(words: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "p.kvp", *words.split()]) == 2
    assert capsys.readouterr().err.startswith(f"kvp: {said}")
