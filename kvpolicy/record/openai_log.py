"""Logs of requests to OpenAI- or Anthropic-style servers, one JSON object a line, as SDKs, proxies and batch files
write them: a request's body, alone or under `request` or `body`, with its answer under `response`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from kvpolicy.record.calls import Recorded
from kvpolicy.record.pieces import pieces
from kvpolicy.record.reading import Lines, answered, guarded, name_of, objects
from kvpolicy.record.times import number, seconds

_BODY = ("messages", "input", "prompt")
_TIMES = ("timestamp", "created", "created_at", "time", "start_time", "at")
_SESSION = ("session_id", "prompt_cache_key", "session", "user", "trace_id")


def openai(lines: Lines, counts: Counter[str]) -> Iterator[Recorded]:
    """One call a line."""
    for row in objects(lines, counts):
        call = guarded(counts, _call, row)
        if call is not None:
            yield call


def _call(row: Mapping[str, Any]) -> Recorded:
    body = next((b for b in (row.get("request"), row.get("body"), row) if _is_body(b)), None)
    if body is None and isinstance(row.get("request"), Mapping) and _is_body(row["request"].get("body")):
        body = row["request"]["body"]
    if body is None:
        raise ValueError("no request's body")
    given = row.get("response")
    answer: Mapping[str, Any] = given if isinstance(given, Mapping) else {}
    if isinstance(answer.get("body"), Mapping):
        answer = answer["body"]
    at = next((t for name in _TIMES for where in (row, answer) if (t := seconds(where.get(name))) is not None), None)
    told = body.get("metadata")
    metadata: Mapping[str, Any] = told if isinstance(told, Mapping) else {}
    session = next((where.get(n) for n in _SESSION for where in (body, metadata, row) if where.get(n)), None)
    stop, calls, output = answered(answer)
    return Recorded(
        at,
        pieces(body),
        {"session": None if session is None else str(session), "agent": name_of(row.get("agent"))},
        name_of(body.get("model")),
        stop,
        calls,
        output,
        _took(row),
    )


def _is_body(value: Any) -> bool:
    return isinstance(value, Mapping) and any(isinstance(value.get(key), str | list) for key in _BODY)


def _took(row: Mapping[str, Any]) -> float | None:
    for name, unit in (("duration_ms", 0.001), ("latency_ms", 0.001), ("duration", 1.0), ("latency", 1.0)):
        value = number(row.get(name))
        if value is not None:
            return value * unit
    return None
