"""Times of logs, in whatever unit they are written; what stands without one is counted, not made up in silence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kvpolicy.cli import main as cli
from kvpolicy.record.calls import Piece, Recorded
from kvpolicy.record.times import put_in_time, seconds

ASKED = [{"role": "user", "content": "a word or two " * 20}]


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        (1764497000, 1764497000.0),
        ("1764497000", 1764497000.0),
        (" 1764497000.5 ", 1764497000.5),
        ("1764497000000", 1764497000.0),
        (1764497000_000_000, 1764497000.0),
        ("1764497000000000000", 1764497000.0),
        ("2025-11-30T10:03:20Z", 1764497000.0),
        ("2025-11-30T10:03:20.000+00:00", 1764497000.0),
        ("1500ms", 1.5),
        ("12", 12.0),
        (0, 0.0),
        *((value, None) for value in ("x", "", None, True, "nan", "1 2", "1_000", [1], {"s": 1}, "10:03")),
    ],
)
def test_a_time_as_logs_write_it(value: Any, wanted: float | None) -> None:
    assert seconds(value) == wanted


def recorded(rows: list[Any], tmp_path: Path, capsys: pytest.CaptureFixture[str], *options: str) -> tuple[Any, str]:
    log, out = tmp_path / "log", tmp_path / "out"
    log.write_text("\n".join(json.dumps(row) for row in rows))
    assert cli.main(["record", str(log), "--out", str(out), *options]) == 0
    return [json.loads(line)["at"] for line in out.read_text().splitlines()[1:]], capsys.readouterr().err


def test_numbers_in_quotes_are_times(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"timestamp": at, "messages": ASKED} for at in ("1764497000", "1764497030", 1764497090)]
    assert recorded(rows, tmp_path, capsys) == ([0.0, 30.0, 90.0], "3 calls\n")


@pytest.mark.parametrize("none", [{"timestamp": "x"}, {"timestamp": None}, {}, {"timestamp": {"a": 1}}])
def test_calls_without_a_time_are_counted(
    none: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    row = {"messages": ASKED}
    timed = {"timestamp": 1764497000, **row}
    said = " calls without a time that can be read were put 1 s behind the one before them\n"
    assert recorded([{**row, **none}] * 3, tmp_path, capsys) == ([0.0, 1.0, 2.0], f"3 calls; 3{said}")
    mixed = [{**row, **none}, timed, {**row, **none}, {**timed, "timestamp": 1764497050}]
    assert recorded(mixed, tmp_path, capsys) == ([0.0, 1.0, 2.0, 51.0], f"4 calls; 2{said}")
    assert recorded([{**row, **none}], tmp_path, capsys) == ([0.0], "1 call\n")


def test_other_forms_count_them_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = {"role": "assistant", "content": "yes"}
    rows = [
        {"sessionId": "s", "uuid": f"u{k}", "message": {**said, "id": f"m{k}"}, "timestamp": f"2026-01-01T00:00:1{k}Z"}
        for k in range(3)
    ]
    assert recorded(rows, tmp_path, capsys)[0] == [0.0, 1.0, 2.0]
    del rows[1]["timestamp"]
    assert recorded(rows, tmp_path, capsys)[1].startswith("3 calls; 1 call without a time")
    row = {"outcome": "done", "dialect": "chat", "digest": "d", "seconds": 1.0, "prompt_tokens": 90, "prefix": ["aa"]}
    ats, told = recorded([{**row, "at": 7.0}, row, {**row, "at": 5.0}], tmp_path, capsys)
    assert (ats, told[:30]) == ([0.0, 2.0, 3.0], "3 calls; 1 call without a time")


def test_how_long_it_took_may_be_in_quotes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"timestamp": 1, "messages": ASKED, "duration_ms": "1500"}]
    recorded(rows, tmp_path, capsys)
    assert json.loads((tmp_path / "out").read_text().splitlines()[1])["took"] == 1.5


def test_times_below_zero_keep_their_order() -> None:
    calls = [Recorded(at, [Piece("turn", "x")]) for at in (None, -5.0, 0.0, None)]
    assert put_in_time(calls) == 2 and [call.at for call in calls] == [-6.0, -5.0, 0.0, 1.0]
    assert put_in_time([]) == 0
