"""Fields of a trace row, typed: what a reader asks of a row, and what a wrong one is answered with."""

from __future__ import annotations

import math
from pathlib import Path

from kvpolicy.faults import InputFault
from kvpolicy.simulate.trace import BlockId

Row = dict[str, object]
_MOST = 1 << 40  # tokens; sums over a trace stay numbers that JSON has


def whole(path: Path, line: int, row: Row, key: str, default: int | None = None) -> int:
    """A count: an integer, zero or more."""
    value = row.get(key, default)
    if value is None and default is not None:
        return default
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise InputFault(f"{path}:{line}: {key} {_said(row, key)}; it is a count of tokens, such as 4096")
    if value < 0:
        raise InputFault(f"{path}:{line}: {key} is {value}; a count cannot be negative")
    if value > _MOST:
        raise InputFault(f"{path}:{line}: {key} is {value}; no count of tokens is above {_MOST}")
    return value


def number(path: Path, line: int, row: Row, key: str, default: float | None = None) -> float:
    """A finite number, zero or more, such as a time."""
    value = row.get(key, default)
    if value is None and default is not None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputFault(f"{path}:{line}: {key} {_said(row, key)}; it is a number")
    if not math.isfinite(value) or value < 0:
        raise InputFault(f"{path}:{line}: {key} is {value}; it is a time from the trace's start, zero or more")
    return float(value)


def seconds(path: Path, line: int, row: Row, key: str) -> float | None:
    """A duration, zero or more; None where the row has none."""
    return None if row.get(key) is None else number(path, line, row, key)


def text(path: Path, line: int, row: Row, key: str) -> str | None:
    """A string, or None where the row has none."""
    value = row.get(key)
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)  # some traces number their chats
    raise InputFault(f"{path}:{line}: {key} {_said(row, key)}; it is a string")


def strings(path: Path, line: int, row: Row, key: str) -> tuple[str, ...]:
    """A list of strings, () where the row has none."""
    value = row.get(key)
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(part, str) for part in value):
        raise InputFault(f"{path}:{line}: {key} {_said(row, key)}; it is a list of strings")
    return tuple(value)


def blocks(path: Path, line: int, row: Row, key: str) -> list[BlockId]:
    """A list of block ids: integers or strings."""
    value = row.get(key)
    if not isinstance(value, list) or not set(map(type, value)) <= {int, str}:
        raise InputFault(f"{path}:{line}: {key} {_said(row, key)}; it is a list of block ids, such as [0, 1, 2]")
    return value


def check_count(path: Path, line: int, blocks_listed: int, tokens: int, block_size: int) -> None:
    """The list names every block of the prompt, or every full one."""
    most = -(-tokens // block_size)
    if not most - 1 <= blocks_listed <= most:
        raise InputFault(
            f"{path}:{line}: {blocks_listed} block ids for {tokens} tokens, where {block_size} tokens a block "
            f"make {most}; mend the lengths, or state the trace's own block_size"
        )


def _said(row: Row, key: str) -> str:
    if key not in row:
        return "is missing"
    said = repr(row[key])
    return f"is {said if len(said) <= 40 else said[:37] + '...'}"
