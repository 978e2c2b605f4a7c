"""`kvp fmt` at the command line: what it writes, what it says, how it ends."""

from __future__ import annotations

import io
import os
import stat
import sys
from pathlib import Path

import pytest

from kvpolicy.cli.main import main

WILD = "turn{priority:3}# why\r\n"
NEAT = "turn { priority: 3 }  # why\n"


def feed(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))


def test_files_are_laid_out_and_keep_their_rights(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wild, neat = tmp_path / "wild.kvp", tmp_path / "neat.kvp"
    wild.write_bytes(WILD.encode())
    wild.chmod(0o640)
    neat.write_text(NEAT)
    before = neat.stat().st_mtime_ns
    assert main(["fmt", str(wild), str(neat), str(wild)]) == 0
    assert capsys.readouterr().out == f"{wild}: laid out anew\n"
    assert wild.read_bytes().decode() == NEAT
    assert stat.S_IMODE(wild.stat().st_mode) == 0o640
    assert neat.stat().st_mtime_ns == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["neat.kvp", "wild.kvp"]
    assert main(["fmt", str(wild), str(neat)]) == 0
    assert capsys.readouterr().out == ""


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real.kvp").write_text(WILD)
    (tmp_path / "link.kvp").symlink_to(tmp_path / "real.kvp")
    assert main(["fmt", str(tmp_path / "link.kvp")]) == 0
    assert (tmp_path / "link.kvp").is_symlink()
    assert (tmp_path / "real.kvp").read_text() == NEAT


def test_check_and_diff_write_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "a.kvp"
    file.write_text("turn{priority:3}\n")
    assert main(["fmt", "--check", str(file)]) == 1
    assert capsys.readouterr().out == f"{file}: would be laid out anew\n"
    assert main(["fmt", "--diff", str(file)]) == 1
    out, err = capsys.readouterr()
    assert out.splitlines()[-2:] == ["-turn{priority:3}", "+turn { priority: 3 }"]
    assert err == f"{file}: would be laid out anew\n"
    assert file.read_text() == "turn{priority:3}\n"
    file.write_text("turn { priority: 3 }\n")
    assert main(["fmt", "--check", "--diff", str(file)]) == 0
    assert capsys.readouterr() == ("", "")


def test_the_standard_input_goes_to_the_standard_output(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    feed(monkeypatch, WILD.encode())
    assert main(["fmt", "-"]) == 0
    assert capsys.readouterr().out == NEAT
    feed(monkeypatch, WILD.encode())
    assert main(["fmt", "--check", "-"]) == 1
    feed(monkeypatch, NEAT.encode())
    assert main(["fmt", "--check", "-"]) == 0
    feed(monkeypatch, b"turn{priority 3}")
    assert main(["fmt", "-"]) == 1
    assert "<stdin>:1:15: error KVP100" in capsys.readouterr().err


def test_one_fault_and_nothing_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, bad = tmp_path / "good.kvp", tmp_path / "bad.kvp"
    good.write_text(WILD)
    bad.write_text("turn { priority 3 }\ntools { ttl }\n")
    assert main(["fmt", str(good), str(bad)]) == 1
    assert good.read_text() == WILD.replace("\r\n", "\n") or good.read_bytes() == WILD.encode()
    err = capsys.readouterr().err
    assert "bad.kvp:1:17: error KVP100" in err
    assert "bad.kvp:2:" in err


def test_what_cannot_be_written_leaves_all_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [tmp_path / name for name in ("a.kvp", "b.kvp", "c.kvp")]
    for file in files:
        file.write_text("turn{priority:3}\n")
    replace = os.replace

    def full(source: str, target: Path) -> None:
        if Path(target).name == "c.kvp":
            raise OSError(28, "No space left on device", str(target))
        replace(source, target)

    monkeypatch.setattr(os, "replace", full)
    assert main(["fmt", *map(str, files)]) == 2
    assert "no space left on device" in capsys.readouterr().err
    assert [file.read_text() for file in files] == ["turn{priority:3}\n"] * 3
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.kvp", "b.kvp", "c.kvp"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["coding_agent"], "this is a packaged policy"),
        (["no.kvp"], "no.kvp: no such file"),
        (["."], "this is no file"),
        (["latin.kvp"], "latin.kvp: not UTF-8 text: byte 7"),
    ],
)
def test_what_cannot_be_laid_out_is_said(
    words: list[str], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "latin.kvp").write_bytes(b"turn { \xe9 }")
    monkeypatch.chdir(tmp_path)
    assert main(["fmt", *words]) == 2
    assert told in capsys.readouterr().err


def test_line_ends_alone_are_said_to_be_what_changes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "a.kvp"
    file.write_bytes(b"turn { priority: 5 }\r\n")
    assert main(["fmt", "--diff", str(file)]) == 1
    assert "would be laid out anew (its line ends" in capsys.readouterr().err
