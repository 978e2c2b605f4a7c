"""`kvp check --each`: policies of one folder, checked one by one, in every form of the answer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kvpolicy.cli import main as cli
from kvpolicy.language.load import packaged_names, packaged_text


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The packaged policies with their tests, as files."""
    monkeypatch.chdir(tmp_path)
    for name in (part for one in packaged_names() for part in (one, f"{one}.test")):
        text = packaged_text(name)
        if text is not None:
            (tmp_path / f"{name}.kvp").write_text(text)
    return tmp_path


def checked(*words: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    status = cli.main(["check", *words])
    return status, capsys.readouterr().out


def test_the_policies_of_the_pack_pass_one_by_one(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = sorted(path.name for path in folder.iterdir())
    assert any(name.endswith(".test.kvp") for name in names)
    assert checked(*names, capsys=capsys)[0] == 1, "as one set their names are defined twice"
    told = "".join(f"{name}: 0 errors, 0 warnings\n" for name in names)
    assert checked("--each", *names, capsys=capsys) == (0, told)


def test_the_faults_of_each_file_are_its_own(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "one.kvp").write_text("let a = 1s\nturn { priority: 50  ttl: a }\n")
    (folder / "two.kvp").write_text("let a = 2s\nturn { priorty: 4 }\n")
    status, out = checked("--each", "one.kvp", "two.kvp", capsys=capsys)
    assert status == 1 and "two.kvp:2:8: error KVP101" in out and "KVP107" not in out
    assert out.endswith("one.kvp: 0 errors, 0 warnings\ntwo.kvp: 1 error, 0 warnings\n")
    assert "  2 | turn { priorty: 4 }" in out
    document = json.loads(checked("--each", "one.kvp", "two.kvp", "--format", "json", capsys=capsys)[1])
    assert [(row["file"], len(row["diagnostics"])) for row in document["files"]] == [("one.kvp", 0), ("two.kvp", 1)]
    assert document["errors"] == 1
    sarif = json.loads(checked("--each", "one.kvp", "two.kvp", "--format", "sarif", capsys=capsys)[1])
    assert len(sarif["runs"][0]["results"]) == 1


def test_what_two_files_use_is_at_fault_once(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "used.kvp").write_text("turn { priorty: 4 }\n")
    for name in ("one", "two"):
        (folder / f"{name}.kvp").write_text('use "used.kvp"\n')
    status, out = checked("--each", "one.kvp", "two.kvp", capsys=capsys)
    assert status == 1 and out.count("used.kvp:1:8: error KVP101") == 1
    assert out.endswith("one.kvp: 1 error, 0 warnings\ntwo.kvp: 1 error, 0 warnings\n")


def test_each_with_an_engine(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    alone = [checked(f"{name}.kvp", "--engine", "vllm", capsys=capsys)[1] for name in ("agents", "base")]
    both = checked("--each", "agents.kvp", "base.kvp", "--engine", "vllm", capsys=capsys)[1]
    assert all(one.splitlines()[-1] in both for one in alone)


def test_a_file_that_is_not_there_is_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["check", "--each", "base.kvp", "gone.kvp"]) == 2
    told = capsys.readouterr()
    assert told.out == "" and told.err.startswith("kvp: gone.kvp: cannot be read")
