"""Timelines for tests: a list of steps goes through `kvp replay --format json` as a file, the answers come back."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from kvpolicy.cli.main import main

Row = dict[str, Any]


def play(folder: Path, steps: Iterable[Row], policy: str | None = None, *options: str) -> list[Row]:
    """The answers to the steps, one each. policy: the text of one."""
    timeline = folder / "timeline.jsonl"
    timeline.write_text("".join(json.dumps(step) + "\n" for step in steps))
    words = ["replay", str(timeline), "--format", "json", *options]
    if policy is not None:
        file = folder / "p.kvp"
        file.write_text(policy)
        words += ["--policy", str(file)]
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main(words)
    assert status == 0, err.getvalue()
    return [json.loads(line) for line in out.getvalue().splitlines()]


def refusal(folder: Path, lines: Iterable[str | Row], *options: str) -> str:
    """What `kvp replay` says of a timeline that it cannot use; the exit status is 2."""
    timeline = folder / "timeline.jsonl"
    timeline.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main(["replay", str(timeline), "--format", "json", *options])
    assert status == 2, (status, out.getvalue())
    told = err.getvalue()
    assert told.count("\n") == 1 and "Traceback" not in told, told
    return told.replace(str(folder) + "/", "").strip()


def request(at: float, id: str, session: str | None = None, **more: Any) -> Row:
    """A request step; `blocks=(name, n)` names n blocks `name0 …`."""
    step: Row = {"at": at, "do": "request", "id": id}
    if session is not None:
        step["owner"] = {"session": session}
    if "blocks" in more:
        name, count = more.pop("blocks")
        more["hashes"] = named(name, count)
    return step | more


def finish(at: float, id: str, **more: Any) -> Row:
    """A finish step."""
    return {"at": at, "do": "finish", "id": id, **more}


def show(at: float, blocks: Iterable[str | int]) -> Row:
    """A show step."""
    return {"at": at, "do": "show", "blocks": list(blocks)}


def named(name: str, count: int, start: int = 0) -> list[str]:
    """Names of blocks."""
    return [f"{name}{i}" for i in range(start, start + count)]


def ranks(answer: Row) -> list[int | None]:
    """The ranks that a show answered."""
    return [row["rank"] for row in answer["blocks"]]


def span(kind: str, start: int, end: int | None, **own: Any) -> Row:
    """A span, in tokens."""
    return {"kind": kind, "start": start, "end": end, **own}
