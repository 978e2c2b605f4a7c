"""No command writes its output over a file that it reads, whatever that file is called, nor two outputs into one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kvpolicy.cli import main as cli

LOG = json.dumps({"timestamp": 1, "messages": [{"role": "user", "content": "a word or two " * 20}]}) + "\n"
TRACE = json.dumps({"timestamp": 0, "input_length": 1024, "output_length": 5, "hash_ids": [1, 2]}) + "\n"
ROW = json.dumps({"key": "k"}) + "\n"


def _same(file: Path, other: Path) -> Path:
    return file


def _symbolic(file: Path, other: Path) -> Path:
    other.symlink_to(file)
    return other


def _hard(file: Path, other: Path) -> Path:
    os.link(file, other)
    return other


def _spelled(file: Path, other: Path) -> Path:
    return file.parent / "below" / ".." / file.name


CALLS = {
    "record --out": (LOG, "record {input} --out {output}"),
    "record, the second of two": (LOG, "record {more} {input} --out {output}"),
    "simulate --html": (TRACE, "simulate {input} --capacity 1 --jobs 1 --html {output}"),
    "simulate --html on a policy": ("", "simulate {more} --policy {input} --capacity 1 --jobs 1 --html {output}"),
    "bench --html": (ROW, "bench report --rows {input} --html {output}"),
    "bench --md": (ROW, "bench report --rows {input} --md {output}"),
    "bench --json": (ROW, "bench report --rows {input} --json {output}"),
    "bench --rows": ("turn { priority: 9 }\n", "bench run roomy --policy {input} --rows {output}"),
}


@pytest.mark.parametrize("named", [_same, _symbolic, _hard, _spelled])
@pytest.mark.parametrize("call", CALLS)
def test_an_output_is_never_an_input(
    call: str, named: Callable[[Path, Path], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text, words = CALLS[call]
    (tmp_path / "below").mkdir()
    file, more = tmp_path / "input", tmp_path / "more"
    file.write_text(text)
    more.write_text(TRACE if words.startswith("simulate") else LOG)
    output = named(file, tmp_path / "other")
    filled = words.format(input=file, more=more, output=output)
    assert cli.main(filled.split()) == 2
    told = capsys.readouterr().err
    option = filled.split()[-2]
    assert told.startswith(f"kvp: {option} {output}") and "is read by this call; write to another file" in told
    assert file.read_text() == text


def test_the_standard_input_is_a_file_too(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(LOG)
    with log.open() as stream:
        done = subprocess.run(
            [sys.executable, "-m", "kvpolicy", "record", "-", "--out", str(log)],
            stdin=stream, capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip
    assert done.returncode == 2 and "is read by this call" in done.stderr
    assert log.read_text() == LOG


def test_two_outputs_are_two_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows, page = tmp_path / "rows", tmp_path / "page"
    rows.write_text(ROW)
    assert cli.main(["bench", "report", "--rows", str(rows), "--html", str(page), "--md", str(page)]) == 2
    assert f"--md {page}: --html is written there" in capsys.readouterr().err and not page.exists()


def test_an_older_file_that_is_not_read_is_begun_anew(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log, out = tmp_path / "log", tmp_path / "out"
    log.write_text(LOG)
    out.write_text("of before")
    assert cli.main(["record", str(log), "--out", str(out)]) == 0
    assert out.read_text().startswith("{") and log.read_text() == LOG
    assert cli.main(["record", str(log), "--out", os.devnull]) == 0
