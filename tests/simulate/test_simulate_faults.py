"""Bad traces: one line with file, line number and the mend, exit status 2, never a traceback."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from kvpolicy.cli.main import main
from kvpolicy.faults import InputFault
from tests.simulate.traces_for_tests import mooncake_rows, read, write

GOOD = {"timestamp": 0, "input_length": 1024, "output_length": 5, "hash_ids": [1, 2]}
SESSION = {"id": "s", "block_size": 64, "tool_tokens": 0, "system_tokens": 0}
OWN = {"kvpolicy_trace": 1, "block_size": 16, "time_unit": "s"}
CHAT = {
    "chat_id": 1,
    "parent_chat_id": -1,
    "timestamp": 0.5,
    "input_length": 32,
    "output_length": 1,
    "hash_ids": [1, 2],
}


def session(**ids: object) -> dict[str, object]:
    return {**SESSION, "requests": [{"t": 0, "in": 64, "out": 1, **ids}]}


def own_call(kind: object, end: int) -> dict[str, object]:
    return {"at": 0, "tokens": 16, "hashes": [1], "spans": [{"kind": kind, "start": 0, "end": end}]}


BAD_ROWS: dict[str, tuple[list[object], int, str]] = {
    "seconds for milliseconds": ([GOOD, {**GOOD, "timestamp": 3.359}], 2, "whole milliseconds"),
    "microseconds since 1970": ([{**GOOD, "timestamp": 1_700_000_000_000_000}], 1, "years in ms"),
    "negative length": ([GOOD, {**GOOD, "input_length": -1}], 2, "cannot be negative"),
    "negative output": ([{**GOOD, "output_length": -3}], 1, "cannot be negative"),
    "a length beyond any prompt": ([GOOD, {**GOOD, "input_length": 1 << 62}], 2, "no count of tokens"),
    "a session without requests": ([session(hash_ranges=[[1, 1]]), SESSION], 2, "requests is no list"),
    "negative time": ([{**GOOD, "timestamp": -3}], 1, "zero or more"),
    "two parents": ([GOOD, {**GOOD, "hash_ids": [7, 2]}], 2, "prefix-chained"),
    "a first block further down": ([GOOD, {**GOOD, "hash_ids": [2, 1]}], 2, "prefix-chained"),
    "an id twice": ([{**GOOD, "hash_ids": [5, 5]}], 1, "twice"),
    "too few ids": ([{**GOOD, "hash_ids": []}], 1, "block_size"),
    "too many ids": ([{**GOOD, "hash_ids": [1, 2, 3]}], 1, "block_size"),
    "ids that are no ids": ([{**GOOD, "hash_ids": [1, None]}], 1, "list of block ids"),
    "another block size": ([GOOD, {**GOOD, "block_size": 1024, "hash_ids": [9]}], 2, "a trace has one"),
    "block size 0": ([{**GOOD, "block_size": 0}], 1, "block_size is 0"),
    "length missing": ([GOOD, {"timestamp": 5, "hash_ids": [1]}], 2, "input_length is missing"),
    "length as text": ([{**GOOD, "input_length": "many"}], 1, "count of tokens"),
    "no form": ([{"prompt": "hello"}], 1, "no form of trace"),
    "a list": ([GOOD, [1, 2]], 2, "instead of a JSON object"),
    "unknown unit": ([{**GOOD, "time_unit": "min"}], 1, "one of s, ms, us"),
    "no ranges": ([session()], 1, "neither hash_ids nor hash_ranges"),
    "a range backwards": ([session(hash_ranges=[[2, 1]])], 1, "hash_ranges"),
    "own without unit": ([{"kvpolicy_trace": 1, "block_size": 16}], 1, "time_unit is missing"),
    "own of tomorrow": ([{**OWN, "kvpolicy_trace": 9}], 1, "this version reads 1"),
    "own span outside": ([OWN, own_call("turn", 99)], 2, "leaves the 16 tokens"),
    "own unknown kind": ([OWN, own_call("prose", 1)], 2, "kind"),
    "own unknown event": ([OWN, {"at": 0, "event": "tea_break"}], 2, "is no event"),
    "own event that is no text": ([OWN, {"at": 0, "event": ["turn_end"]}], 2, "is no event"),
    "own kind that is no text": ([OWN, own_call(["turn"], 1)], 2, "kind"),
    "chat without id": ([CHAT, {**CHAT, "chat_id": None}], 2, "chat_id is missing"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_ROWS)
def test_a_bad_row_is_told_with_its_line(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows, line, words = BAD_ROWS[name]
    path = write(tmp_path / "bad.jsonl", rows)  # type: ignore[arg-type]
    assert main(["simulate", str(path), "--capacity", "10", "--jobs", "1"]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert len(told.err.splitlines()) == 1
    assert f"bad.jsonl:{line}:" in told.err
    assert words in told.err


FILES: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "the file is empty"),
    "blank": (b"\n\n  \n", "blank lines"),
    "binary": (bytes(range(256)) * 40, ":1: binary data"),
    "zeros": (b"\0" * 4096, ":1: binary data"),
    "text": (b"no trace at all\n", ":1: not JSON"),
    "cut JSON": (json.dumps(GOOD).encode() + b'\n{"timestamp": 1, "inp', ":2: not JSON"),
    "cut gzip": (gzip.compress(json.dumps(GOOD).encode() * 4000)[:-20], "gzip stream ends before its end mark"),
    "damaged gzip": (gzip.compress(json.dumps(GOOD).encode())[:12] + b"\xff" * 30, "gzip stream"),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_no_trace(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content, words = FILES[name]
    path = tmp_path / "file.jsonl"
    path.write_bytes(content)
    assert main(["simulate", str(path), "--capacity", "10"]) == 2
    told = capsys.readouterr().err
    assert len(told.splitlines()) == 1
    assert words in told


def test_a_cut_gzip_of_sessions(tmp_path: Path) -> None:
    session = {**SESSION, "requests": [{"t": 0, "in": 64, "out": 1, "hash_ranges": [[1, 1]]}]}
    lines = "".join(json.dumps({**session, "id": f"s{i}"}) + "\n" for i in range(2000)).encode()
    path = tmp_path / "cut.jsonl.gz"
    path.write_bytes(gzip.compress(lines)[:-30])
    with pytest.raises(InputFault, match=r"cut\.jsonl\.gz:\d+: the gzip stream ends"):
        read(path)


def test_a_clock_that_no_service_runs_at(tmp_path: Path) -> None:
    """Whole seconds under a form of milliseconds: no single row tells, the load does."""
    rows = mooncake_rows([[10**6 + i, *range(1000 * i + 1, 1000 * i + 24)] for i in range(300)])
    for i, row in enumerate(rows):
        row["timestamp"] = i // 2
    with pytest.raises(InputFault, match=r":200: 200 calls in .* wrong unit"):
        read(write(tmp_path / "fast.jsonl", rows))
    rows[0]["time_unit"] = "s"
    assert read(write(tmp_path / "stated.jsonl", rows))[1].last_at == 149.0


def test_pauses_that_contradict_the_clock(tmp_path: Path) -> None:
    rows = mooncake_rows([list(range(i + 1)) for i in range(30)])
    for i, row in enumerate(rows):
        row |= {"timestamp": 12 * i, "session_id": "s", "think_time": 10.0}
    with pytest.raises(InputFault, match=r"paused 10 s by its think_time"):
        read(write(tmp_path / "pauses.jsonl", rows))


@pytest.mark.parametrize(
    "given", ["0", "-3", "abc", "", "1,,2", "0.4", "5s", "3GiB", "5%%", "0%", "nan", "1e9999", "99999999999999999999"]
)
def test_capacities_that_are_none(given: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "t.jsonl", [GOOD])
    assert main(["simulate", str(path), f"--capacity={given}"]) == 2
    told = capsys.readouterr().err
    assert len(told.splitlines()) == 1
    assert "--capacity" in told


def test_a_size_in_bytes_is_answered_by_what_can_be_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "t.jsonl", [GOOD])
    assert main(["simulate", str(path), "--capacity", "3GiB"]) == 2
    told = capsys.readouterr().err
    assert "a trace does not say how many bytes a block takes" in told
    assert "such as 5%" in told


def test_memory_follows_the_trace_not_the_capacity(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "t.jsonl", [GOOD])
    assert main(["simulate", str(path), "--capacity", "9000000000000000", "--jobs", "1"]) == 0
    assert "NO_PRESSURE" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["nowhere.jsonl", "--capacity", "5"], "nowhere.jsonl"),
        (["nowhere", "--capacity", "5"], "known are claude-code"),
        (["T", "--capacity", "5", "--policy", "nobody"], "no policy of that name"),
        (["T", "--capacity", "5", "--policy", "nobody.kvp"], "no such file"),
        (["T", "--capacity", "5", "--engine-model", "h100"], "there are h100-8b"),
        (["T", "--capacity", "5", "--engine-model", "h100-8b:chunk=0"], "chunk is a whole number of at least 1"),
        (["T", "--capacity", "5", "--engine-model", "h100-8b", "--policy", "fifo"], "does not go with --engine-model"),
        (["T", "--capacity", "5", "--engine-model", "h100-8b", "--cpu-blocks", "-1"], "--cpu-blocks"),
        (["T", "--capacity", "5", "--engine-model", "h100-8b", "--html", "x.html"], "--html"),
        (["T", "--capacity", "5", "--cpu-blocks", "9"], "tiers of an --engine-model"),
        (["T", "--capacity", "5", "--queue", "session"], "--queue is the order of an --engine-model"),
        (["T", "--capacity", "5", "--price-ratio", "0"], "--price-ratio"),
        (["T", "--capacity", "5", "--window", "4"], "--window 4: a duration needs a unit; write 4s"),
        (["T", "--capacity", "5", "--gap-cap="], "--gap-cap (nothing): "),
        (["T", "--capacity", "5", "--coarsen", "0"], "--coarsen"),
        (["T", "--capacity", "5", "--part", "5"], "--part"),
        (["T", "--capacity", "5", "--part", ""], "--part"),
        (["T", "--capacity", "5", "--sample", "0"], "--sample"),
        (["/", "--capacity", "5"], "/"),
    ],
)
def test_calls_that_cannot_be_used(
    given: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "T", [GOOD])
    assert main(["simulate", *given]) == 2
    told = capsys.readouterr().err
    assert len(told.splitlines()) == 1
    assert words in told
