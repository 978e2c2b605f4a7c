"""Mutation: what tests let pass is listed with its place; what decides nothing otherwise, or is refused, is not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kvpolicy.cli.main import main
from kvpolicy.language.load import packaged_names, packaged_text
from kvpolicy.policy.checked import open_policy
from kvpolicy.policy.mutants import mutants

POLICY = """
let patience = 20s
slow: turn[agent = coder], document when idle() > patience {
  priority: 60
  ttl:      10min
}
on tool_call[tool = grep] until tool_result { held: turn { retention: hold patience } }
limit any { priority: at most 50 }
"""
TEST = """
test "a document that waits" {
  given document
  assume idle() = 25s
  expect document { priority: 50  ttl: 10min by slow }
}
test "a coder's turn" {
  given turn[agent = coder], turn[agent = writer]
  assume idle() = 25s
  at tool_call[tool = grep]
  expect turn { retention: hold 20s by held }
}
"""


def listed(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, object]]:
    file = tmp_path / "a.kvp"
    file.write_text(text)
    status = main(["test", str(file), "--mutate", "--format", "json"])
    return status, json.loads(capsys.readouterr().out)["mutation"]


def test_what_no_test_notices(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, found = listed(POLICY + TEST, tmp_path, capsys)
    assert status == 1
    survivors = found["survivors"]
    assert isinstance(survivors, list)
    assert [(row["line"], row["column"], row["change"]) for row in survivors] == [
        (3, 42, "'slow': without `when idle() > patience`"),
        (3, 7, "'slow': not for `turn`"),
        (3, 12, "'slow': without `agent = …`"),
        (7, 1, "'held': stands without `on tool_call`"),
        (7, 14, "'held': without `tool = …`"),
    ]
    assert found["refused"] == 0
    assert found["of"] == found["noticed"] + len(survivors)
    assert found["same"] == 1  # 61 for 60: the limit makes 50 of both


MORE = """
test "a coder's turn that waits, a writer's, and a document in use" {
  given turn[agent = coder]
  assume idle() = 25s
  expect turn { priority: 50  retention: default by slow }
}
test "a writer's turn" {
  given turn[agent = writer]
  assume idle() = 25s
  at tool_call[tool = ls]
  expect turn { priority: default  retention: default }
}
test "a document in use" {
  given document
  assume idle() = 5s
  expect document { priority: default }
}
"""


def test_with_more_tests_nothing_is_left(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, found = listed(
        POLICY + TEST + MORE.replace("retention: default by slow", "ttl: 10min by slow"), tmp_path, capsys
    )
    assert found["survivors"] == []
    assert status == 0


QUOTAS = "limit any { hold: at most 30% of gpu }\nlimit turn[agent = coder] per session { cpu: at most 2GiB }\n"


def test_a_quota_is_not_for_tests_to_notice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tests = TEST + MORE.replace("retention: default by slow", "ttl: 10min by slow")
    _, without = listed(POLICY + tests, tmp_path, capsys)
    status, found = listed(POLICY + QUOTAS + tests, tmp_path, capsys)
    assert (status, found["survivors"], found["quotas"], without["quotas"]) == (0, [], 5, 0)
    assert (found["of"], found["same"]) == (without["of"], without["same"])
    assert main(["test", str(tmp_path / "a.kvp"), "--mutate"]) == 0
    assert "not counted: 0 that check refuses, 1 that decide nothing otherwise, 5 of quotas, which no" in (
        capsys.readouterr().out
    )


def test_a_limit_that_is_a_quota_and_a_bound_is_still_to_be_noticed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    both = "turn { priority: 60 }\nlimit any { priority: at most 50  hold: at most 30% of gpu }\n"
    test = 'test "t" {\n  given turn, system\n  expect system { priority: default }\n}\n'
    status, found = listed(both + test, tmp_path, capsys)
    survivors = found["survivors"]
    assert status == 1 and isinstance(survivors, list)
    assert "the limit deleted" in [row["change"] for row in survivors] and found["quotas"] == 1


def test_mutants_cover_every_kind_of_change(tmp_path: Path) -> None:
    file = tmp_path / "a.kvp"
    file.write_text(
        POLICY
        + "layer late {\n"
        + "  r: any over slow { tier: gpu, cpu after 5s  place: same_worker  admit: no  for: run  share: run }\n"
        + "  on tool_call until tool_result at most 5min { turn { retention: hold until tool_result } }\n}\n"
    )
    changes = [mutant.change for mutant in mutants(open_policy([str(file)]).files)]
    assert len(set(changes)) == len(changes)
    for part in (
        *("'slow' deleted", "'slow': `ttl` deleted", "priority: 59 for 60", "ttl: 20min for 10min", "ttl: fixed"),
        *("let patience: 40s for 20s", "the limit deleted", "the limit: 49 for 50", "not over 'slow'"),
        *("without its step cpu", "anywhere for same_worker", "yes for no", "workflow for run", "tenant for run"),
        *("normal for the hold", "the rule: 10min for 5min"),
    ):
        assert any(part in change for change in changes), part


def test_tests_that_fail_are_not_tried(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, found = listed(POLICY + TEST.replace("ttl: 10min", "ttl: 9min"), tmp_path, capsys)
    assert (status, found) == (1, None)


@pytest.mark.parametrize("name", [name for name in packaged_names() if packaged_text(f"{name}.test") is not None])
def test_the_tests_of_the_pack_notice_every_change(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["test", name, "--mutate"]) == 0, capsys.readouterr().out
