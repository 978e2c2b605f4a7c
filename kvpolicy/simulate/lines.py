"""Lines of a trace file, plain or gzip, one at a time, with their numbers; and the file's digest.

Every way in which a file can be no trace at all ends here as an InputFault with file, line and the mend.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import orjson

from kvpolicy.faults import InputFault
from kvpolicy.simulate.trace import Progress

LONGEST_LINE = 256 << 20  # bytes; a file without a newline for longer than this is no JSON lines file
_GZIP = b"\x1f\x8b"


def sha256_of(path: Path) -> str:
    """Hex digest of the file's bytes as they lie on disk. Raises InputFault where it cannot be read."""
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    except OSError as fault:
        raise InputFault(f"{path}: cannot be read: {fault.strerror}") from fault
    return digest.hexdigest()


def rows(path: Path, progress: Progress | None = None) -> Iterator[tuple[int, dict[str, object]]]:
    """(line number from 1, JSON object) for every line that is not blank; `progress` hears the fraction read."""
    number = 0
    for number, line in _lines(path, progress):
        if line.isspace():
            continue
        yield number, parse(path, number, line)
    if number == 0:
        raise InputFault(f"{path}: the file is empty; a trace has one JSON object a line")


def parse(path: Path, number: int, line: bytes) -> dict[str, object]:
    """One line as a JSON object."""
    try:
        row = orjson.loads(line)
    except orjson.JSONDecodeError as fault:
        if b"\0" in line or not _is_text(line):
            raise InputFault(
                f"{path}:{number}: binary data; a trace has one JSON object a line (.jsonl or .jsonl.gz)"
            ) from None
        raise InputFault(f"{path}:{number}: not JSON ({fault.msg}); a trace has one JSON object a line") from None
    if not isinstance(row, dict):
        raise InputFault(
            f"{path}:{number}: a {type(row).__name__} instead of a JSON object; a trace has one object a line"
        )
    return row


def open_bytes(path: Path) -> tuple[BinaryIO, BinaryIO]:
    """(the stream of lines, the raw file below it), decompressed where the first bytes are gzip's."""
    try:
        raw = path.open("rb")
    except OSError as fault:
        raise InputFault(f"{path}: cannot be read: {fault.strerror}") from fault
    try:
        head = raw.read(2)
        raw.seek(0)
    except OSError as fault:
        raw.close()
        raise InputFault(f"{path}: cannot be read: {fault.strerror}") from fault
    if head != _GZIP:
        return raw, raw
    return io.BufferedReader(gzip.GzipFile(fileobj=raw), 1 << 18), raw


def _lines(path: Path, progress: Progress | None) -> Iterator[tuple[int, bytes]]:
    stream, raw = open_bytes(path)
    number = 0
    with raw:
        size = max(path.stat().st_size, 1)
        while True:
            try:
                line = stream.readline(LONGEST_LINE)
            except (EOFError, zlib.error, gzip.BadGzipFile) as fault:
                why = "ends before its end mark" if isinstance(fault, EOFError) else f"is damaged ({fault})"
                raise InputFault(f"{path}:{number + 1}: the gzip stream {why}; fetch the file again") from None
            if not line:
                return
            number += 1
            if len(line) >= LONGEST_LINE:
                raise InputFault(
                    f"{path}:{number}: a line of {LONGEST_LINE >> 20} MiB or more; a trace has one request a line"
                )
            if progress is not None and number % 64 == 0:
                progress(min(raw.tell() / size, 1.0))
            yield number, line


def _is_text(line: bytes) -> bool:
    try:
        line[:4096].decode("utf-8", "strict")
    except UnicodeDecodeError as fault:
        return fault.start > 4090  # a character cut in two by the slice
    return True
