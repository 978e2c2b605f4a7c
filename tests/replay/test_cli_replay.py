"""`kvp replay` takes its policy first, as other commands do, or by its option; a policy alone is no timeline."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kvpolicy.cli import main as cli

STEPS = [
    {"at": 0, "do": "request", "id": "r1", "owner": {"session": "a"}, "hashes": ["x", "y"],
     "spans": [{"kind": "turn", "start": 0, "end": 32}]},
    {"at": 1, "do": "finish", "id": "r1"},
    {"at": 2, "do": "show", "blocks": ["x"]},
]  # fmt: skip


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    policy, timeline = tmp_path / "p.kvp", tmp_path / "t.jsonl"
    policy.write_text("turn { priority: 77 }\n")
    timeline.write_text("".join(json.dumps(step) + "\n" for step in STEPS))
    return str(policy), str(timeline)


def replayed(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert cli.main(["replay", *words]) == 0
    return capsys.readouterr().out


def test_the_policy_may_come_first(files: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    policy, timeline = files
    first = replayed([policy, timeline], capsys)
    assert first == replayed([timeline, "--policy", policy], capsys) and "rank 77" in first
    assert "rank 77" not in replayed([timeline], capsys)


def test_several_policies_are_one_set(
    files: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policy, timeline = files
    more = tmp_path / "more.kvp"
    more.write_text("turn { ttl: 5min }\n")
    assert replayed([policy, str(more), timeline], capsys) == replayed(
        [policy, timeline, "--policy", str(more)], capsys
    )


def test_a_policy_alone_is_no_timeline(files: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    policy, _ = files
    assert cli.main(["replay", policy]) == 2
    assert capsys.readouterr().err == (
        f"kvp: {policy}: this is a policy; a timeline is needed behind it: kvp replay POLICY TIMELINE\n"
    )


def test_an_owner_that_is_no_object_is_told_in_the_words_of_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    request = tmp_path / "r.json"
    request.write_text(json.dumps({"id": "r", "owner": "ann", "block_size": 16, "tokens": 32, "spans": []}))
    assert cli.main(["plan", "base", "--request", str(request)]) == 2
    assert capsys.readouterr().err == f"kvp: {request}: owner: a JSON object is needed, not a string\n"
