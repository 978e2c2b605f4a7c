"""`kvp check` as a user meets it: a process, its exit status, what stands on which stream."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from kvpolicy import check

GOOD = "system, tools { priority: 90 }\nturn { priority: 50  ttl: 5min }\nscratchpad { retention: drop }\n"
TWO_FAULTS = "system { priority: 90 }\nturn { priorty: 50 }\ntool_result { ttl: 300 }\n"


def kvp(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "kvpolicy", *words], cwd=folder, capture_output=True, text=True, check=False
    )
    assert "Traceback" not in done.stderr, done.stderr
    assert "internal fault" not in done.stderr, done.stderr
    return done


def test_a_good_policy(tmp_path: Path) -> None:
    (tmp_path / "a.kvp").write_text(GOOD)
    done = kvp(tmp_path, "check", "a.kvp")
    assert (done.returncode, done.stdout, done.stderr) == (0, "a.kvp: 0 errors, 0 warnings\n", "")


def test_packaged_policies_pass(tmp_path: Path) -> None:
    done = kvp(tmp_path, "check", "base", "coding_agent")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("0 errors, 0 warnings\n")


def test_every_fault_of_a_file_is_told_in_one_run(tmp_path: Path) -> None:
    (tmp_path / "a.kvp").write_text(TWO_FAULTS)
    done = kvp(tmp_path, "check", "a.kvp")
    assert done.returncode == 1
    heads = [line for line in done.stdout.splitlines() if line.startswith("a.kvp:") and " KVP" in line]
    assert [head.split(": ")[0] for head in heads] == ["a.kvp:2:8", "a.kvp:3:20"]
    assert "`priority`" in done.stdout, "the nearest spelling"
    assert "  2 | turn { priorty: 50 }\n    |        ^^^^^^^\n" in done.stdout
    assert done.stdout.endswith("a.kvp: 2 errors, 0 warnings\n")


def test_the_document(tmp_path: Path) -> None:
    (tmp_path / "good.kvp").write_text(GOOD)
    (tmp_path / "bad.kvp").write_text("document { prioritee: 50 }\n")
    done = kvp(tmp_path, "check", "good.kvp", "bad.kvp", "--format", "json")
    assert (done.returncode, done.stderr) == (1, "")
    document = json.loads(done.stdout)
    assert (document["errors"], document["warnings"]) == (1, 0)
    good, bad = document["files"]
    assert good == {"file": "good.kvp", "diagnostics": []}
    (fault,) = bad["diagnostics"]
    assert fault.items() >= {"name": "unknown-name", "severity": "error", "line": 1, "column": 12}.items()
    assert fault["code"].startswith("KVP1")
    assert {"code", "name", "severity", "line", "column", "message", "notes"} <= set(fault)


def test_the_path_is_named_as_it_was_given(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "a.kvp").write_text("turn { priorty: 50 }\n")
    for name in ("deep/a.kvp", "./deep/a.kvp", str(tmp_path / "deep" / "a.kvp")):
        document = json.loads(kvp(tmp_path, "check", name, "--format", "json").stdout)
        assert [row["file"] for row in document["files"]] == [name]


@pytest.mark.parametrize(
    ("name", "content", "statuses"),
    [
        ("empty.kvp", b"", {1, 2}),
        ("blank.kvp", b" \n# nothing\n", {1, 2}),
        ("binary.kvp", bytes(range(256)) * 4, {1, 2}),
        ("nul.kvp", b"turn { priority: 50 }\0\n", {1, 2}),
        ("utf16.kvp", "turn { priority: 50 }\n".encode("utf-16"), {1, 2}),
        ("large.kvp", b"# a line of a comment\n" * 200_000, {1, 2}),
        ("deep.kvp", b"let a = " + b"(" * 50_000 + b"1s" + b")" * 50_000 + b"\nturn { ttl: a }\n", {1, 2}),
        ("missing.kvp", None, {2}),
        ("no_such_policy", None, {2}),
        ("folder.kvp", "folder", {2}),
    ],
)
@pytest.mark.parametrize("form", ["text", "json"])
def test_what_is_no_policy_gives_one_clear_line(
    tmp_path: Path, name: str, content: bytes | str | None, statuses: set[int], form: str
) -> None:
    if isinstance(content, bytes):
        (tmp_path / name).write_bytes(content)
    elif content == "folder":
        (tmp_path / name).mkdir()
    done = kvp(tmp_path, "check", name, "--format", form)
    assert done.returncode in statuses, done.stdout + done.stderr
    if done.returncode == 2:
        assert done.stdout == ""
        assert len(done.stderr.splitlines()) == 1
        assert name in done.stderr
    elif form == "json":
        (row,) = json.loads(done.stdout)["files"]
        assert (row["file"], len(row["diagnostics"])) == (name, 1)
    else:
        heads = [line for line in done.stdout.splitlines() if line.startswith(f"{name}:") and " KVP" in line]
        assert len(heads) == 1, done.stdout
    assert len(done.stdout + done.stderr) < 2_000


def test_a_used_file_that_is_missing_is_told_at_its_use(tmp_path: Path) -> None:
    (tmp_path / "a.kvp").write_text('use "gone.kvp"\nturn { priority: 50 }\n')
    done = kvp(tmp_path, "check", "a.kvp")
    assert done.returncode in {1, 2}
    assert "gone.kvp" in done.stdout + done.stderr


def test_a_name_with_odd_letters(tmp_path: Path) -> None:
    name = "püblic \x1b[31m.kvp"
    (tmp_path / name).write_text("turn { priorty: 50 }\n")
    done = kvp(tmp_path, "check", name)
    assert done.returncode == 1
    assert "\x1b" not in done.stdout


def test_bad_calls(tmp_path: Path) -> None:
    for words in (["check"], ["check", "a.kvp", "--format", "xml"], ["check", "a.kvp", "--bogus"]):
        done = kvp(tmp_path, *words)
        assert (done.returncode, done.stdout) == (2, "")


def _wide(ways: int, firsts: int) -> str:
    """A workflow whose many first nodes many lead to, by way of the node that it stands for."""
    first, many = [f"a{i}" for i in range(firsts)], [f"b{i}" for i in range(ways)]
    inner = f"  agent last, {', '.join(first)}\n" + "".join(f"  {node} -> last\n" for node in first)
    outer = f"  agent {', '.join(many)}\n  workflow inner as x\n" + "".join(f"  {node} -> x\n" for node in many)
    return f"turn {{ priority: 40 }}\nworkflow inner {{\n{inner}}}\nworkflow outer {{\n{outer}}}\n"


@pytest.mark.parametrize(("firsts", "fine"), [(166, True), (167, False)])  # 300 * 166 + 166 edges, 300 * 167 + 167
def test_a_workflow_of_too_many_edges_is_told_where_it_is_written(tmp_path: Path, firsts: int, fine: bool) -> None:
    text = _wide(300, firsts)
    (tmp_path / "a.kvp").write_text(text)
    done, drawn = kvp(tmp_path, "check", "a.kvp"), kvp(tmp_path, "graph", "a.kvp", "--format", "json")
    assert (done.returncode == 0, drawn.returncode == 0) == (fine, fine)
    if not fine:
        line = text.split("\n").index("  workflow inner as x") + 1
        assert f"a.kvp:{line}:12: error KVP109 unusable-file: 'outer' is too large: laid out flat" in done.stdout
        assert "has 50,267 edges, and 50,000 at most are taken" in done.stdout
        assert "let one node of the inner workflow begin it" in done.stdout
        assert [fault.code for fault in check(text)] == ["KVP109"]
