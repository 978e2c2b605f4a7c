"""`kvp diff` at the command line: regions in words, status as of `diff`, the counts of a trace."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kvpolicy.cli.main import main

BEFORE = """
let patience = 20s
turn, document { priority: 40 }
coder: turn[agent = coder, tokens >= 8k] { priority: 60  ttl: 10min }
on tool_call until tool_result { waiting: tool_result when pressure(gpu) < 80% { retention: hold patience } }
limit any { hold: at most 30% of gpu }
"""


@pytest.fixture
def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    monkeypatch.chdir(tmp_path)
    for name in ("a.kvp", "b.kvp"):
        (tmp_path / name).write_text(BEFORE)
    return tmp_path / "a.kvp", tmp_path / "b.kvp"


def changed(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


def test_two_policies_that_say_the_same(pair: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    rules = BEFORE.strip().split("\n")
    pair[1].write_text(
        "\n".join(["policy other", "let long = 10min", *reversed(rules[1:]), rules[0]]).replace(
            "ttl: 10min", "ttl: long"
        )
    )
    assert main(["diff", "a.kvp", "b.kvp"]) == 0
    assert capsys.readouterr().out == "the same for every span, whatever the state\n"
    assert main(["diff", "a.kvp", "b.kvp", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"same": True, "regions": [], "others": [], "unsettled": []}


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("60  ttl", "70  ttl", "turn with agent = coder and tokens >= 8k:\n  priority: 60 (coder) → 70 (coder)\n"),
        (
            "tokens >= 8k",
            "tokens >= 4k",
            "turn with agent = coder and 4k <= tokens < 8k:\n  priority: 40 (a.kvp:3) → 60 (coder)\n"
            "  ttl: not set → 10min (coder)\n",
        ),
        (
            "agent = coder",
            "agent != coder",
            "turn with agent = coder and tokens >= 8k:\n  priority: 60 (coder) → 40 (b.kvp:3)\n"
            "  ttl: 10min (coder) → not set\nturn with agent != coder and tokens >= 8k:\n"
            "  priority: 40 (a.kvp:3) → 60 (coder)\n  ttl: not set → 10min (coder)\n",
        ),
        (
            "let patience = 20s",
            "let patience = 30s",
            "tool_result, during `on tool_call until tool_result`, when pressure(gpu) < 80%:\n"
            "  retention: hold 20s (waiting) → hold 30s (waiting)\n",
        ),
        (
            "< 80%",
            "< 90%",
            "tool_result, during `on tool_call until tool_result`, when 80% <= pressure(gpu) < 90%:\n"
            "  retention: not set → hold 20s (waiting)\n",
        ),
        (
            "on tool_call until",
            "on tool_call[tool = grep] until",
            "tool_result, during `on tool_call until tool_result`, "
            "outside `on tool_call[tool = grep] until tool_result`, "
            "when pressure(gpu) < 80%:\n  retention: hold 20s (waiting) → not set\n",
        ),
        (
            "30% of gpu",
            "20% of gpu",
            "only the first has the limit `limit any { hold: at most 30% of gpu }`\n"
            "only the second has the limit `limit any { hold: at most 20% of gpu }`\n",
        ),
        (
            "limit any {",
            "limit any { priority: at most 50 ",
            "turn with agent = coder and tokens >= 8k:\n  priority: 60 (coder) → 50 (coder, limit at b.kvp:6)\n",
        ),
        (
            "tool_result {",
            "tool_result at most 5min {",
            "tool_result, during `on tool_call until tool_result`, when pressure(gpu) < 80%:\n"
            "  retention: hold 20s (waiting) → hold 20s (waiting), "
            "counted from another event or ended by another bound\n",
        ),
    ],
)
def test_one_change_in_words(
    pair: tuple[Path, Path], old: str, new: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    changed(pair[1], old, new)
    assert main(["diff", "a.kvp", "b.kvp"]) == 1
    assert capsys.readouterr().out == told


def test_a_region_as_json(pair: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    changed(pair[1], "tokens >= 8k", "tokens >= 4k")
    assert main(["diff", "a.kvp", "b.kvp", "--format", "json"]) == 1
    first, second = json.loads(capsys.readouterr().out)["regions"]
    assert first == {
        "property": "priority",
        "kinds": ["turn"],
        "attributes": ["agent = coder", "4k <= tokens < 8k"],
        "during": [],
        "outside": [],
        "when": [],
        "before": {"value": "40", "rule": "a.kvp:3", "file": "a.kvp", "line": 3, "limited_by": []},
        "after": {"value": "60", "rule": "coder", "file": "b.kvp", "line": 4, "limited_by": []},
        "witness": {"kind": "turn", "agent": "coder", "tokens": 4000},
    }
    assert second["property"] == "ttl"


def test_a_policy_with_errors_is_no_difference(pair: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    changed(pair[1], "priority: 40", "priorty: 40")
    assert main(["diff", "a.kvp", "b.kvp"]) == 2
    assert capsys.readouterr() == (
        "",
        "kvp: b.kvp:3:18: there is no property 'priorty'; kvp check b.kvp says more\n",
    )
    assert main(["diff", "a.kvp", "no.kvp"]) == 2
    assert "no such file" in capsys.readouterr().err


def test_a_change_of_one_rule_among_very_many(pair: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        f"r{i}: turn[agent = a{i}, depth > {i % 7}] when idle() > {i}s {{ priority: {i % 90} }}" for i in range(400)
    ]
    pair[0].write_text("\n".join(rows))
    rows[200] = rows[200].replace("priority: 20", "priority: 21")
    pair[1].write_text("\n".join(rows))
    assert main(["diff", "a.kvp", "b.kvp"]) == 1
    assert capsys.readouterr().out == (
        "turn with agent = a200 and depth >= 5, when idle() > 200s:\n  priority: 20 (r200) → 21 (r200)\n"
    )


TRACE = "\n".join(
    json.dumps({"output_length": 5, "block_size": 16, "session_id": "s", "system_tokens": 16, **row})
    for row in (
        {"timestamp": 0, "input_length": 40, "hash_ids": [1, 2, 3], "stop": "tool_use"},
        {"timestamp": 9000, "input_length": 64, "hash_ids": [1, 2, 4, 5], "input_types": ["tool_result"]},
    )
)


def test_the_tokens_and_blocks_of_a_trace(pair: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    (pair[0].parent / "t.jsonl").write_text(TRACE)
    changed(pair[1], "turn, document { priority: 40 }", "turn, document { priority: 41 }")
    assert main(["diff", "a.kvp", "b.kvp", "--trace", "t.jsonl", "--format", "json"]) == 1
    counted = json.loads(capsys.readouterr().out)["trace"]
    assert counted["requests"] == {"of": 2, "affected": 2}
    assert counted["tokens"]["of"] == 104
    assert counted["tokens"]["affected"] == sum(counted["tokens_by_kind"].values()) > 0
    assert set(counted["tokens_by_kind"]) == {"turn"}
    assert 0 < counted["blocks"]["affected"] <= counted["blocks"]["of"]
    assert main(["diff", "a.kvp", "a.kvp", "--trace", "t.jsonl"]) == 0
    assert "0 of 2 (0.0%) requests, 0 of 104 (0.0%) tokens, 0 of" in capsys.readouterr().out
