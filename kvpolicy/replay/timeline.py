"""A timeline file: one JSON object a line, read one at a time, with its line number for faults."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import orjson

from kvpolicy.faults import InputFault

LONGEST_LINE = 64 << 20  # bytes; a step is kilobytes


def steps(path: str) -> Iterator[tuple[int, object]]:
    """(line number from 1, JSON value) of every line that is not blank; "-" is the standard input. Raises InputFault
    with file and line; OSError passes."""
    if path == "-":
        yield from _lines(sys.stdin.buffer, "<stdin>")
        return
    with Path(path).open("rb") as stream:
        yield from _lines(stream, path)


def _lines(stream: BinaryIO, name: str) -> Iterator[tuple[int, object]]:
    number = read = 0
    while line := stream.readline(LONGEST_LINE):
        number += 1
        if len(line) >= LONGEST_LINE:
            raise InputFault(
                f"{name}:{number}: a line of {LONGEST_LINE >> 20} MiB or more; a timeline has one step a line"
            )
        if line.isspace():
            continue
        try:
            value = orjson.loads(line)
        except orjson.JSONDecodeError as fault:
            raise InputFault(
                f"{name}:{number}: not JSON ({fault.msg}); a timeline has one JSON object a line"
            ) from None
        read += 1
        yield number, value
    if not read:
        raise InputFault(f"{name}: no step in it; a timeline has one JSON object a line")
