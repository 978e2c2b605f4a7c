"""`kvp plan` from the outside: documents in, one document or a few lines out, faults in one line."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from kvpolicy.cli.main import main

POLICY = """policy small "for tests"
system { priority: 90 }
tools { priority: 80 }
on tool_call until tool_result {
  tool_result { retention: hold p95(tool.duration) else 20s priority: 70 }
}
"""
REQUEST: dict[str, Any] = {
    "id": "r1",
    "owner": {"tenant": "t", "session": "s", "agent": "coder"},
    "model": "m",
    "block_size": 16,
    "tokens": 112,
    "spans": [
        {"kind": "system", "start": 0, "end": 40},
        {"kind": "tools", "start": 40, "end": 50},
        {"kind": "turn", "start": 50, "end": 80},
        {"kind": "tool_result", "start": 80, "end": 112, "tool": "grep"},
    ],
}
STATE: dict[str, Any] = {
    "events": [{"at": 1.0, "event": "tool_call", "tool": "grep", "call": "c1", "session": "s"}],
    "functions": [{"call": "p95(tool.duration)", "value": "800ms", "span": None}],
}
ENGINE = {"name": "E", "version": "1", "min": 0, "max": 99, "direction": "larger", "ttl_unit": "ms"}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the documents in it, and the working directory."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "p.kvp").write_text(POLICY)
    for name, document in (("r", REQUEST), ("s", STATE), ("e", ENGINE)):
        (tmp_path / f"{name}.json").write_text(json.dumps(document))
    return tmp_path


def answer(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert main(["plan", "p.kvp", "--request", "r.json", "--format", "json", *words]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    document: dict[str, Any] = json.loads(out)
    return document


def test_what_a_drop_takes_along_is_said(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "p.kvp").write_text("turn { retention: drop }\n")
    assert main(["plan", "p.kvp", "--request", "r.json"]) == 0
    lines = capsys.readouterr().out.splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("tool_result [80, 112)"))
    assert lines[at + 1] == "  dropped with the turn before it, which will not be sent again"
    assert sum("dropped with" in line for line in lines) == 1


@pytest.mark.parametrize("which", ["request", "state"])
def test_a_document_from_the_standard_input(
    which: str, here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = {"request": "r.json", "state": "s.json"}
    wanted = answer(capsys, "--state", "s.json")
    given = (here / words[which]).read_bytes()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(given)))
    words[which] = "-"
    call = ["plan", "p.kvp", "--request", words["request"], "--state", words["state"], "--format", "json"]
    assert main(call) == 0
    assert json.loads(capsys.readouterr().out) == wanted
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"{,")))
    assert main(call) == 2
    assert "<standard input>:1:2: not JSON" in capsys.readouterr().err
    assert main(["plan", "p.kvp", "--request", "-", "--state", "-"]) == 2
    assert "the standard input holds one document" in capsys.readouterr().err


def test_everything_that_is_missing_is_said_at_once(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "r.json").write_text('{"spans": [{"kind": "system"}, {"start": 3}], "tokens": "x"}')
    assert main(["plan", "p.kvp", "--request", "r.json"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line == (
        "kvp: r.json: id, block_size, spans[0].start and spans[1].kind are missing; "
        "tokens: input should be a valid integer"
    )
    (here / "r.json").write_text(json.dumps({key: value for key, value in REQUEST.items() if key != "id"}))
    assert main(["plan", "p.kvp", "--request", "r.json"]) == 2
    assert capsys.readouterr().err == "kvp: r.json: id is missing\n"


def test_one_document_with_the_keys_of_the_interface(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = answer(capsys)
    assert {"directives", "blocks", "spans", "share", "valid_until", "notices"} <= document.keys()
    assert "engine" not in document
    assert [(d["span"], d["priority"], d["rules"]) for d in document["directives"]] == [
        (0, 90, {"priority": "p.kvp:2"}),
        (1, 80, {"priority": "p.kvp:3"}),
    ]
    assert [b["rank"] for b in document["blocks"]] == [90, 90, 80, 35, 35, 35, 35]


def test_a_state_opens_intervals_and_gives_functions(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = answer(capsys, "--state", "s.json")
    held = document["directives"][2]
    assert (held["retention"], held["protected_until"], held["priority"]) == ("hold 800ms", 1.8, 70)
    assert document["valid_until"] == 1.8
    assert {(b["rank"], b["protected"], b["held_for"]) for b in document["blocks"]} == {(70, True, 3)}
    later = answer(capsys, "--state", "s.json", "--now", "1.8")
    assert [(b["rank"], b["protected"]) for b in later["blocks"]][:3] == [(90, False), (90, False), (80, False)]


def test_an_engine_adds_its_form_and_what_is_lost(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    engine = answer(capsys, "--engine", "e.json", "--state", "s.json", "--now", "1.3")["engine"]
    assert (engine["name"], engine["version"], engine["verified"]) == ("E", "1", "emitted")
    assert engine["payload"]["directives"][0]["level"] == 99
    assert {"CLIPPED", "STEPS_MERGED"} == {loss["code"] for loss in engine["losses"]}


def test_the_text_says_the_same_in_lines(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "p.kvp", "--request", "r.json", "--engine", "e.json"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "system [0, 40): priority 90, retention normal, for agent (priority by p.kvp:2)",
        "tools [40, 50): priority 80, retention normal, for agent (priority by p.kvp:3)",
        "turn [50, 80): no rule",
        "tool_result [80, 112): no rule",
        "blocks 0-1: rank 90",
        "block 2: rank 80",
        "blocks 3-6: rank 35",
        "share tenant; stands until an event",
        "SPAN_SHORTER_THAN_BLOCK: tools [40, 50) holds no full block: 10 tokens, blocks of 16",
        'engine E 1, emitted: {"directives": [{"start": 0, "end": 32, "level": 90}, '
        '{"start": 32, "end": 48, "level": 80}]}',
    ]


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (["--request", "none.json"], 2, "none.json: no such file or directory"),
        (["--request", "p.kvp"], 2, "p.kvp:1:1: not JSON"),
        (["--request", "s.json"], 2, "s.json: id, block_size and tokens are missing"),
        (["--request", "r.json", "--state", "r.json"], 2, "r.json: id: there is no such key"),
        (["--request", "r.json", "--engine", "nowhere"], 2, "no adapter for engine 'nowhere' is installed"),
        (["--request", "r.json", "--engine", "r.json"], 2, "r.json: name is missing"),
        (["--request", "r.json", "--now", "nan"], 2, "--now must be a time in seconds"),
    ],
)
def test_what_cannot_be_used_is_one_line(
    here: Path, capsys: pytest.CaptureFixture[str], words: list[str], status: int, message: str
) -> None:
    assert main(["plan", "p.kvp", *words]) == status
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err
    assert err.count("\n") == 1


def test_events_that_cannot_be_name_the_file_and_the_row(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "s.json").write_text('{"events": [{"at": 1, "event": "tool_cal"}]}')
    assert main(["plan", "p.kvp", "--request", "r.json", "--state", "s.json"]) == 2
    assert "s.json: events[0]: 'tool_cal' is no event" in capsys.readouterr().err


def test_a_policy_with_faults_makes_no_plan(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "p.kvp").write_text("system { priority: 90 }\nsystem { priority: 20 }\n")
    assert main(["plan", "p.kvp", "--request", "r.json", "--format", "json"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert "KVP201" in err
