"""Fetch public traces from their source and prove by SHA-256 that they are what was measured.

Every digest here was computed from the very rows that the golden counts were made of: the text of a Mooncake file up to
a time, the calls of the Claude Code sessions. A source that has changed is refused, not used.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import tarfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import orjson

from kvpolicy.faults import InputFault

TIMEOUT_S = 10.0


def fetch_mooncake(url: str, until_ms: int | None, content_sha256: str, target: Path) -> None:
    """A Mooncake file, its rows before `until_ms`, written to `target` (gzip)."""
    with _open(url) as source:
        lines = iter(source.readline, b"")
        kept = lines if until_ms is None else (line for line in lines if orjson.loads(line)["timestamp"] < until_ms)
        _write(kept, content_sha256, url, target)


def fetch_sessions(url: str, numbers: tuple[int, ...], calls_sha256: str, target: Path) -> None:
    """Claude Code sessions out of the source's archive, `trace_NNNN` by number, one a line, written to `target` (gzip).

    The digest covers what a replay reads of every session (`session_digest_text`), not the layout of the source.
    """
    wanted = {f"trace_{number:04}" for number in numbers}
    found: dict[str, bytes] = {}
    try:
        with _open(url) as source, tarfile.open(fileobj=source, mode="r|gz") as archive:
            for member in archive:
                stem = Path(member.name).stem
                file = archive.extractfile(member) if stem in wanted and "/traces/" in member.name else None
                if file is not None:
                    found[stem] = orjson.dumps(_with_ranges(orjson.loads(file.read())))
    except (OSError, tarfile.TarError, EOFError, KeyError, orjson.JSONDecodeError) as fault:
        raise InputFault(f"{url}: the archive cannot be read ({fault})") from None
    digest = hashlib.sha256()
    for name in sorted(found):
        digest.update(session_digest_text(orjson.loads(found[name])).encode())
    _check(digest.hexdigest(), calls_sha256, url)
    _save(target, (found[name] + b"\n" for name in sorted(found)))


def session_digest_text(session: dict[str, object]) -> str:
    """What a replay reads of a session, as one line per call."""
    lines = [f"{session['id']} {session.get('tool_tokens')} {session.get('system_tokens')}"]
    requests = session["requests"]
    assert isinstance(requests, list)
    for row in requests:
        if "requests" in row:
            head = {**row, "id": row.get("agent_id")}
            lines.append(f"{float(row['t'])} {row.get('subagent_type')} {session_digest_text(head)}")
        else:
            ranges = row["hash_ranges"] if "hash_ranges" in row else _ranges(row["hash_ids"])
            lines.append(
                f"{float(row['t'])} {row['model']} {row['in']} {row['out']} {row['stop']} {json.dumps(ranges)}"
            )
    return "\n".join(lines) + "\n"


def _with_ranges(session: dict[str, object]) -> dict[str, object]:
    requests = session["requests"]
    assert isinstance(requests, list)
    rows = []
    for row in requests:
        if "requests" in row:
            rows.append(_with_ranges(row))
        else:
            ids = row.pop("hash_ids", None)
            rows.append(row if ids is None else {**row, "hash_ranges": _ranges(ids)})
    return {**session, "requests": rows}


def _ranges(ids: list[int]) -> list[list[int]]:
    ranges: list[list[int]] = []
    for block in ids:
        if ranges and ranges[-1][1] == block - 1:
            ranges[-1][1] = block
        else:
            ranges.append([block, block])
    return ranges


def _open(url: str) -> BinaryIO:
    try:
        return urllib.request.urlopen(url, timeout=TIMEOUT_S)  # type: ignore[no-any-return]
    except (urllib.error.URLError, OSError, ValueError) as fault:
        reason = getattr(fault, "reason", fault)
        raise InputFault(f"{url}: cannot be fetched ({reason})") from None


def _write(lines: Iterator[bytes], sha256: str, url: str, target: Path) -> None:
    digest = hashlib.sha256()

    def counted() -> Iterator[bytes]:
        for line in lines:
            digest.update(line)
            yield line
        _check(digest.hexdigest(), sha256, url)

    _save(target, counted())


def _save(target: Path, lines: Iterator[bytes]) -> None:
    """All or nothing: the file appears under its name only when it is whole and checked."""
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f"{target.name}.{os.getpid()}.part")
    try:
        with gzip.GzipFile(part, "wb", compresslevel=6, mtime=0) as file:
            for line in lines:
                file.write(line)
        part.replace(target)
    except (OSError, EOFError, KeyError, orjson.JSONDecodeError) as fault:
        raise InputFault(f"{target}: the trace could not be kept ({fault})") from None
    finally:
        part.unlink(missing_ok=True)


def _check(got: str, sha256: str, url: str) -> None:
    if got != sha256:
        raise InputFault(
            f"{url}: SHA-256 is {got}, not {sha256}: the source is not what was measured, so it is not used"
        )
