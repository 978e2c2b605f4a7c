"""Small traces for tests: written as files, or made as calls."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pytest

from kvpolicy.request import Owner, Request
from kvpolicy.simulate.interleaving import Interleaving
from kvpolicy.simulate.library import data_folders
from kvpolicy.simulate.read import FileTrace
from kvpolicy.simulate.trace import Answer, Call, Facts

ROOT = Path(__file__).resolve().parents[2]


def data_file(relative: str) -> Path:
    """A file of the public data, or a skip that says what was not tested."""
    for folder in data_folders():
        if (folder / relative).is_file():
            return folder / relative
    pytest.skip(
        f"{relative} is not in {os.environ.get('KVPOLICY_DATA', '../shared/data')}: its figures were not tested"
    )


def write(path: Path, rows: list[dict[str, object]]) -> Path:
    """JSON lines, gzip where the name ends in .gz."""
    text = "".join(json.dumps(row) + "\n" for row in rows).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path


def mooncake_rows(lists: list[list[int]], block_size: int = 512) -> list[dict[str, object]]:
    """One row a second, from bare hash lists."""
    return [
        {"timestamp": 1000 * i, "input_length": block_size * len(ids), "output_length": 1, "hash_ids": ids}
        for i, ids in enumerate(lists)
    ]


def read(path: Path, how: Interleaving | None = None) -> tuple[list[Call], Facts]:
    """All calls of a file, and its facts."""
    facts = Facts()
    return list(FileTrace(path, path.name, how or Interleaving()).calls(facts)), facts


def call(ids: list[int], at: float = 0.0, session: str | None = None, stop: str | None = None, name: str = "r") -> Call:
    """A call of 16-token blocks."""
    request = Request(name, Owner(session=session), 16 * len(ids), 16)
    return Call(request, ids, at, Answer(stop, ("tool",) if stop == "tool_use" else ()))
