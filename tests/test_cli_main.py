"""The dispatcher: exit statuses, one-line faults, no traceback, whatever a command does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from kvpolicy.cli import main as dispatcher
from kvpolicy.cli.listing import as_document, as_text, summary
from kvpolicy.faults import Diagnostic, InputFault, Note, Place, PolicyFault

FAULT = Diagnostic(
    code="KVP201",
    name="two-rules-disagree",
    severity="error",
    place=Place("a.kvp", 2, 3, 2, 7),
    message="rules fast and slow disagree about priority",
    notes=(Note(Place("a.kvp", 1, 1, 1, 5), "the other rule"),),
    witness={"kind": "turn", "agent": "coder"},
    fix="write `fast over slow`",
)


def run_with(monkeypatch: pytest.MonkeyPatch, behaviour: object) -> int:
    """Run `kvp check` with a module whose `run` is `behaviour`."""
    fake = SimpleNamespace(HELP="", add_arguments=lambda parser: None, run=behaviour)
    monkeypatch.setattr(dispatcher, "offered", lambda: {"check": "…"})
    monkeypatch.setattr(dispatcher, "import_module", lambda name: fake)
    return dispatcher.main(["check"])


def raising(fault: BaseException) -> object:
    def run(args: object) -> int:
        raise fault

    return run


def undecodable() -> UnicodeDecodeError:
    return UnicodeDecodeError("utf-8", b"ok\xff", 2, 3, "invalid start byte")


@pytest.mark.parametrize("status", [0, 1, 2])
def test_the_command_says_the_status(monkeypatch: pytest.MonkeyPatch, status: int) -> None:
    assert run_with(monkeypatch, lambda args: status) == status


@pytest.mark.parametrize(
    ("fault", "line"),
    [
        (InputFault("t.jsonl:3: timestamp in the wrong unit"), "kvp: t.jsonl:3: timestamp in the wrong unit"),
        (FileNotFoundError(2, "No such file or directory", "x.kvp"), "kvp: x.kvp: no such file or directory"),
        (IsADirectoryError(21, "Is a directory", "d"), "kvp: d: is a directory"),
        (OSError("a bare one"), "kvp: a bare one"),
        (undecodable(), "kvp: not UTF-8 text: byte 0xff at offset 2"),
        (KeyboardInterrupt(), "kvp: stopped"),
        (
            RuntimeError("two\nlines \x1b[31m"),
            "kvp: internal fault, please report it: RuntimeError: two lines  [31m (KVPOLICY_DEBUG=1 shows the "
            "traceback)",
        ),
    ],
)
def test_a_fault_is_one_line_and_status_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], fault: BaseException, line: str
) -> None:
    assert run_with(monkeypatch, raising(fault)) == 2
    out, err = capsys.readouterr()
    assert (out, err) == ("", line + "\n")


def test_a_policy_fault_is_listed_and_status_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_with(monkeypatch, raising(PolicyFault((FAULT,)))) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("a.kvp:2:3: error KVP201 two-rules-disagree: rules fast and slow")


def test_the_traceback_is_there_for_who_asks(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KVPOLICY_DEBUG", "1")
    assert run_with(monkeypatch, raising(RuntimeError("x"))) == 2
    assert "Traceback" in capsys.readouterr().err


def test_an_unknown_command_names_the_nearest(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(dispatcher, "offered", lambda: {"check": "…"})
    assert dispatcher.main(["chek"]) == 2
    assert capsys.readouterr().err == "kvp: there is no command 'chek'; did you mean 'check'? kvp --help lists them\n"


def test_no_command_is_a_bad_call(capsys: pytest.CaptureFixture[str]) -> None:
    assert dispatcher.main([]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "usage: kvp COMMAND" in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--nope"], "unrecognized arguments: --nope; kvp --help says more"),
        (["check"], "check: the following arguments are required: FILE; kvp check --help says more"),
        (["check", "base", "--format", "xml"], "check: argument --format: invalid choice: 'xml'"),
    ],
)
def test_a_call_that_cannot_be_read_is_told_in_one_line(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert dispatcher.main(words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"kvp: {said}")
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize(
    ("closed", "words", "status"),
    [(1, "check base", 0), (1, "check nowhere.kvp", 2), (2, "check nowhere.kvp", 2), (0, "replay -", 2)],
)
def test_standard_streams_that_the_caller_has_closed(closed: int, words: str, status: int) -> None:
    command = f"{sys.executable} -m kvpolicy {words} {closed}>&-"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert done.returncode == status, done.stderr
    assert "internal fault" not in done.stderr
    assert closed != 2 or done.stdout == ""


def test_every_command_offered_keeps_the_protocol() -> None:
    import argparse
    from importlib import import_module

    for name in dispatcher.offered():
        module = import_module(f"kvpolicy.cli.{name}")
        assert isinstance(module.HELP, str)
        module.add_arguments(argparse.ArgumentParser())
        assert callable(module.run)


def test_every_command_module_is_in_the_table() -> None:
    folder = Path(dispatcher.__file__).parent
    commands = {p.stem for p in folder.glob("*.py") if "def add_arguments(parser" in p.read_text(encoding="utf-8")}
    assert commands - {"main"} == set(dispatcher.offered())


# Run in a process of its own: a command that says a lot, into whatever stdout is.
TALKER = """
import sys
from types import SimpleNamespace
from kvpolicy.cli import main as dispatcher
talker = SimpleNamespace(HELP="", add_arguments=lambda parser: None, run=lambda args: print("x" * 100_000) or 0)
dispatcher.offered = lambda: {"check": "…"}
dispatcher.import_module = lambda name: talker
sys.exit(dispatcher.main(["check"]))
"""


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_goes_away(unbuffered: str) -> None:
    done = into_a_closed_pipe(["-c", TALKER], unbuffered)
    assert (done.returncode, done.stderr) == (2, "")
    helped = into_a_closed_pipe(["-m", "kvpolicy", "--help"], unbuffered)
    assert helped.returncode in {0, 2}  # argparse itself passes over it where output is not buffered
    assert helped.stderr == ""


def into_a_closed_pipe(words: list[str], unbuffered: str) -> subprocess.CompletedProcess[str]:
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as closed:
        return subprocess.run(
            [sys.executable, *words],
            stdout=closed,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            env=os.environ | {"PYTHONUNBUFFERED": unbuffered},
        )


def test_listing_points_at_the_place() -> None:
    text = as_text([FAULT], {"a.kvp": "slow: turn { priority: 1 }\n  fast: turn { priority: 2 }\n"})
    assert text.splitlines() == [
        "a.kvp:2:3: error KVP201 two-rules-disagree: rules fast and slow disagree about priority",
        "  2 |   fast: turn { priority: 2 }",
        "    |   ^^^^",
        "  a.kvp:1:1: note: the other rule",
        "  1 | slow: turn { priority: 1 }",
        "    | ^^^^",
        "  for example: turn[agent = coder]",
        "  instead: write `fast over slow`",
        "more about it: docs/codes/KVP201.md",
    ]


def test_listing_keeps_a_terminal_safe_and_a_line_short() -> None:
    long = Diagnostic("KVP100", "syntax", "error", Place("a\x1b.kvp", 1, 5001, 1, 5002), "bad \x07 bell")
    text = as_text([long], {"a\x1b.kvp": "é" * 5000 + "§" + "é" * 5000})
    assert "\x1b" not in text
    assert "\x07" not in text
    source, caret = text.splitlines()[1:3]
    assert len(source) < 130
    assert source[caret.index("^")] == "§"


def test_the_document_has_a_row_for_every_file_asked_for() -> None:
    assert as_document(["b.kvp", "a.kvp"], [FAULT]) == {
        "files": [
            {"file": "b.kvp", "diagnostics": []},
            {"file": "a.kvp", "diagnostics": [{**FAULT.as_json(), "page": "docs/codes/KVP201.md"}]},
        ],
        "errors": 1,
        "warnings": 0,
    }
    assert summary([FAULT]) == "1 error, 0 warnings"
