"""Run one call of `kvp` in this process and say what is wrong with how it ended.

Right is: exit status 0, 1 or 2; no fault of ours; with status 2 one line on stderr; with `--format json` JSON on stdout
and nothing else; at most two seconds of processor time. Memory is bounded by whoever starts this process.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from unittest import mock

from kvpolicy.cli import main as dispatcher
from tests.fuzz import sessions
from tests.fuzz.cases import Case

LONGEST_S = 2.0  # processor time of one call
SESSION = 4  # so many times as long for an editor's session, which asks many things


class TooSlow(BaseException):
    """No Exception, so that no command can take it for a fault of its own."""


def wrong(case: Case, folder: Path, longest_s: float = LONGEST_S) -> str | None:
    """What is wrong, in one or more lines, the first of which names the kind and the place; None where nothing is."""
    case.lay(folder)
    out, err = _stream(), _stream()
    told: list[str] = []
    status: object = None
    try:
        with (
            _inside(folder),
            mock.patch.object(dispatcher, "_trace_if_asked", lambda: told.append(traceback.format_exc())),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            _limited(longest_s * (SESSION if case.words == ["lsp"] else 1)),
        ):
            try:
                if case.words == ["lsp"]:
                    return sessions.run(folder)
                status = dispatcher.main(case.words)
            except SystemExit as left:  # argparse: a call that cannot be read
                status = left.code
    except TooSlow as slow:
        where = [f for f in traceback.extract_tb(slow.__traceback__) if "kvpolicy" in f.filename][-12:]
        return f"slow: {_name(where[-1]) if where else '?'}\n" + "".join(traceback.format_list(where))
    except BaseException as fault:  # KeyboardInterrupt aside, nothing may come out
        if isinstance(fault, KeyboardInterrupt):
            raise
        last = traceback.extract_tb(fault.__traceback__)[-1]
        return f"crash: {type(fault).__name__} at {_name(last)}\n{traceback.format_exc()}"
    written, said = _text(out), _text(err)
    if "internal fault" in said or "Traceback" in said:
        trace = told[-1] if told else ""
        lines = [line.strip() for line in trace.splitlines() if "kvpolicy" in line and line.strip().startswith("File")]
        place = lines[-1].split("kvpolicy/", 1)[-1] if lines else "?"
        return f"internal: {place} {said.strip()[:60]}\n{said}\n{trace}"
    if status not in (0, 1, 2):
        return f"status: {status!r}\n{said}"
    if status == 2 and not said.startswith("usage:") and len(said.splitlines()) != 1:
        return f"lines: {len(said.splitlines())} lines on stderr\n{said}"
    return _unreadable(case, status, written)


def _unreadable(case: Case, status: object, written: str) -> str | None:
    """What a reader of `--format json` could not read."""
    if "json" not in case.words:
        return None
    if status == 2 and written and case.words[0] != "replay":
        return f"json: something on stdout with status 2\n{written[:500]}"
    if status == 0 and not written.strip():
        return "json: nothing on stdout with status 0"
    try:
        for text in written.splitlines() if case.words[0] == "replay" else [written] if written else []:
            json.loads(text, parse_constant=_no_json)
    except ValueError as fault:
        return f"json: {fault}\n{written[:500]}"
    return None


def _no_json(word: str) -> None:
    raise ValueError(f"{word} is no JSON")


def _stream() -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline="\n", write_through=True)


def _text(stream: io.TextIOWrapper) -> str:
    stream.flush()
    assert isinstance(stream.buffer, io.BytesIO)
    return stream.buffer.getvalue().decode("utf-8")


def _name(frame: traceback.FrameSummary) -> str:
    return f"{Path(frame.filename).name}:{frame.name}"


@contextlib.contextmanager
def _inside(folder: Path) -> Iterator[None]:
    before = os.getcwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


@contextlib.contextmanager
def _limited(seconds: float) -> Iterator[None]:
    """Raise TooSlow after so much processor time of this process."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise TooSlow

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def warm() -> None:
    """Import what the commands need, so that no call is charged for it."""
    import kvpolicy.cli.simulate
    import kvpolicy.request_json  # noqa: F401

    with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):
        dispatcher.main(["check", "base"])
    assert "kvpolicy.policy.analysis" in sys.modules
