"""A few seconds of what `make fuzz` does for long, and everything that it has found so far.

A finding is a folder in `found/` with the call (`call.json`), its files, and in `why.txt` what went wrong then.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from kvpolicy.cli import main as dispatcher
from tests.fuzz import trying
from tests.fuzz.cases import MAKERS, Case, case, grown, kept

FOUND = sorted(folder for folder in (Path(__file__).parent / "found").iterdir() if folder.is_dir())
SMOKE = 12  # calls of each command
PATIENT_S = 20.0  # nothing here is a timed test: a busy machine is no finding


@pytest.fixture(scope="module")
def texts() -> list[list[str]]:
    return grown(1, 10)


@pytest.mark.parametrize("command", MAKERS)
def test_damaged_input_is_answered(command: str, texts: list[list[str]], tmp_path: Path) -> None:
    chance = Random(command)
    for _ in range(SMOKE):
        tried = case(chance, texts, (command,))
        assert tried.words[0] == command, "it is counted as the command that it calls"
        told = trying.wrong(tried, tmp_path, PATIENT_S)
        assert told is None, f"{tried.words}\n{told}"
        for file in tmp_path.iterdir():
            file.unlink()


@pytest.mark.parametrize("folder", FOUND, ids=lambda folder: folder.name)
def test_what_was_found_stays_mended(folder: Path, tmp_path: Path) -> None:
    told = trying.wrong(kept(folder), tmp_path, PATIENT_S)
    assert told is None, told


def _leaving(what: BaseException | int) -> Callable[[list[str]], int]:
    def main(words: list[str]) -> int:
        if isinstance(what, int):
            return what
        raise what

    return main


def _printing(text: str, status: int) -> Callable[[list[str]], int]:
    def main(words: list[str]) -> int:
        print(text)
        return status

    return main


def _turning(words: list[str]) -> int:
    while True:
        pass


@pytest.mark.parametrize(
    ("main", "kind"),
    [
        (_leaving(RuntimeError("x")), "crash: RuntimeError"),
        (_leaving(3), "status: 3"),
        (_leaving(2), "lines: 0"),
        (_leaving(0), "json: nothing"),
        (_printing('{"a": NaN}', 0), "json: NaN"),
        (_printing("{}", 2), "lines: 0"),
        (_printing("done", 1), "json: "),
        (_turning, "slow: "),
    ],
)
def test_the_fuzzer_sees_what_is_wrong(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, main: Callable[[list[str]], int], kind: str
) -> None:
    monkeypatch.setattr(dispatcher, "main", main)
    told = trying.wrong(Case(["check", "p.kvp", "--format", "json"]), tmp_path, 0.2)
    assert told is not None and told.startswith(kind), told


def test_a_fault_of_ours_is_seen_with_its_place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("kvpolicy.language.load.load", lambda files: 1 // 0)
    told = trying.wrong(Case(["check", "base"]), tmp_path)
    assert told is not None and told.startswith("internal: ") and "ZeroDivisionError" in told


def test_findings_say_what_they_were() -> None:
    for folder in FOUND:
        assert (folder / "why.txt").read_text(encoding="utf-8").strip(), folder.name
        assert isinstance(json.loads((folder / "call.json").read_text()), list), folder.name
