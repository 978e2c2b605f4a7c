"""What the readers of logs share: JSON lines, names, what an answer says, and a guard around each row.

A row that is not as its form has it, in whatever way, is passed over and counted as `unread`; the rest is recorded.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, ParamSpec

from kvpolicy.record.calls import Recorded

Lines = Iterable[str]
Made = ParamSpec("Made")
MOST_TOKENS = 1 << 24  # longer than any model's context: a prompt or an answer of more was counted wrongly
_WRONG = (TypeError, ValueError, AttributeError, LookupError, OverflowError, RecursionError)


def objects(lines: Lines, counts: Counter[str]) -> Iterator[dict[str, Any]]:
    """The lines that are JSON objects."""
    for line in lines:
        if not line.strip():
            continue
        row = parsed(line)
        if isinstance(row, dict):
            yield row
        else:
            counts["unread"] += 1


def parsed(line: str) -> Any:
    """A line's JSON, None where it is none."""
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def guarded(
    counts: Counter[str], reader: Callable[Made, Recorded | None], *row: Made.args, **more: Made.kwargs
) -> Recorded | None:
    """What a reader makes of one row; None, and counted, where the row is not as expected."""
    # INVARIANT: no single row ends a recording.
    try:
        call = reader(*row, **more)
        return None if call is None else sound(call)
    except _WRONG:
        counts["unread"] += 1
        return None


def sound(call: Recorded) -> Recorded:
    """The call itself, where it can be written as a row. Raises ValueError where a field is of no use."""
    if not math.isfinite(call.at or 0.0) or not math.isfinite(call.took or 0.0):
        raise ValueError("a time is no number")
    for count in (call.output_tokens or 0, sum(length for _, length in call.units or ()), (call.head or ("", 0))[1]):
        if isinstance(count, bool) or count != int(count) or not 0 <= count <= MOST_TOKENS:
            raise ValueError("a count of tokens is none")
    for piece in call.pieces:
        for token in piece.ids or ():
            token.to_bytes(8, "big", signed=True)
    for name in (call.model, *call.tool_calls, *(told for piece in call.pieces for _, told in piece.attributes)):
        (name or "").encode()  # half a surrogate pair is in no trace that can be read
    return call


def answered(answer: Mapping[str, Any]) -> tuple[str | None, list[str], int | None]:
    """Why it ended, the tools it asked for, its tokens."""
    usage = answer.get("usage") if isinstance(answer.get("usage"), Mapping) else {}
    output = usage.get("completion_tokens", usage.get("output_tokens")) if isinstance(usage, Mapping) else None
    choices = answer.get("choices")
    if isinstance(choices, list) and choices and isinstance(choices[0], Mapping):
        message = choices[0].get("message") or {}
        names = [str((call.get("function") or {}).get("name")) for call in message.get("tool_calls") or ()]
        stop = "tool_use" if names else "end_turn" if choices[0].get("finish_reason") == "stop" else None
        return stop, names, output
    names = [
        str(part.get("name"))
        for part in answer.get("content") or answer.get("output") or ()
        if isinstance(part, Mapping) and part.get("type") in ("tool_use", "function_call")
    ]
    return ("tool_use" if names else name_of(answer.get("stop_reason"))), names, output


def name_of(value: Any) -> str | None:
    """A name, None where there is none."""
    return value if isinstance(value, str) and value else None
