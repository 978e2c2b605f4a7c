"""Logs of several makers as recorded calls. Lines that are none are passed over and counted; a file with no call at all
is refused by who reads it.

Forms: `openai` (one object a line: a request's body, alone or under `request` or `body`, with its answer under
`response`), `claude-code` (session files), `vllm` (the server's own log), `decisions` (the service's decision log).
"""

from __future__ import annotations

import json
import re
from ast import literal_eval
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

from kvpolicy.record.calls import BYTES, Piece, Recorded
from kvpolicy.record.pieces import pieces
from kvpolicy.units import UnitFault, parse_duration

Lines = Iterable[str]
_BODY = ("messages", "input", "prompt")
_TIMES = ("timestamp", "created", "created_at", "time", "start_time", "at")
_SESSION = ("session_id", "prompt_cache_key", "session", "user", "trace_id")


def _objects(lines: Lines, counts: Counter[str]) -> Iterator[dict[str, Any]]:
    for line in lines:
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError:
            row = None
        if isinstance(row, dict):
            yield row
        else:
            counts["unread"] += 1


# --- OpenAI-style logs ----------------------------------------------------------------------------------------------


def openai(lines: Lines, counts: Counter[str]) -> Iterator[Recorded]:
    """Logs of requests to OpenAI- or Anthropic-style servers, as SDKs, proxies and batch files write them."""
    for number, row in enumerate(_objects(lines, counts)):
        body = next((b for b in (row.get("request"), row.get("body"), row) if _is_body(b)), None)
        if body is None and isinstance(row.get("request"), Mapping) and _is_body(row["request"].get("body")):
            body = row["request"]["body"]
        if body is None:
            counts["unread"] += 1
            continue
        given = row.get("response")
        answer: Mapping[str, Any] = given if isinstance(given, Mapping) else {}
        if isinstance(answer.get("body"), Mapping):
            answer = answer["body"]
        at = next(
            (t for name in _TIMES for where in (row, answer) if (t := _seconds(where.get(name))) is not None), None
        )
        told = body.get("metadata")
        metadata: Mapping[str, Any] = told if isinstance(told, Mapping) else {}
        session = next((where.get(n) for n in _SESSION for where in (body, metadata, row) if where.get(n)), None)
        stop, calls, output = _answered(answer)
        yield Recorded(
            float(number) if at is None else at,
            pieces(body),
            {"session": None if session is None else str(session), "agent": _name(row.get("agent"))},
            _name(body.get("model")),
            stop,
            calls,
            output,
            _took(row),
        )


def _is_body(value: Any) -> bool:
    return isinstance(value, Mapping) and any(isinstance(value.get(key), str | list) for key in _BODY)


def _answered(answer: Mapping[str, Any]) -> tuple[str | None, list[str], int | None]:
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
    return ("tool_use" if names else _name(answer.get("stop_reason"))), names, output


def _took(row: Mapping[str, Any]) -> float | None:
    for name, unit in (("duration_ms", 0.001), ("latency_ms", 0.001), ("duration", 1.0), ("latency", 1.0)):
        value = row.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return value * unit
    return None


# --- Claude Code's session files -------------------------------------------------------------------------------------


def claude_code(lines: Lines, counts: Counter[str]) -> Iterator[Recorded]:
    """A session file: each assistant message is a call whose prompt is all before it in its chain. The system prompt
    and the tools stand in no such file: what the counted tokens have beyond the text is taken as one run at the head.
    """
    rows = [row for row in _objects(lines, counts) if isinstance(row.get("message"), Mapping)]
    texts: dict[str, list[Piece]] = {}
    heads: dict[str, int] = {}
    seen: set[str] = set()
    for row in rows:
        message, key = row["message"], str(row.get("uuid"))
        parent = row.get("parentUuid")
        before = texts.get(str(parent), []) if parent else []
        own = pieces({"messages": [message]})
        if message.get("role") == "assistant":
            call = str(message.get("id") or row.get("requestId") or key)
            usage = message.get("usage") if isinstance(message.get("usage"), Mapping) else {}
            if call not in seen and isinstance(usage, Mapping):
                seen.add(call)
                counted = sum(
                    usage.get(name) or 0
                    for name in ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
                )
                session = str(row.get("sessionId") or "")
                agent = "sidechain" if row.get("isSidechain") else "main"
                estimated = sum(-(-len(piece.text.encode("utf-8", "surrogatepass")) // BYTES) for piece in before)
                chain = f"{session} {agent}"
                head = heads.setdefault(chain, max(0, counted - estimated))
                later = [
                    r["message"] for r in rows if r["message"].get("id") == message.get("id") and message.get("id")
                ]
                stop, names, output = _spoken(later or [message])
                yield Recorded(
                    _seconds(row.get("timestamp")) or 0.0, before, {"session": session, "agent": agent},
                    _name(message.get("model")), stop, names, output, None, None, (chain, head),
                )  # fmt: skip
        texts[key] = [*before, *own]


def _spoken(messages: list[Mapping[str, Any]]) -> tuple[str | None, list[str], int | None]:
    names: list[str] = []
    stop, output = None, None
    for message in messages:
        said, more, count = _answered(message)
        names += more
        stop, output = said or stop, count if count is not None else output
    return ("tool_use" if names else stop), names, output


# --- vLLM's log -------------------------------------------------------------------------------------------------------

_LINE = re.compile(r"(\d\d)-(\d\d) (\d\d):(\d\d):(\d\d)(?:[.,](\d+))?.*?Received request ([^\s:]+)")
_IDS = re.compile(r"prompt_token_ids: (\[[^\]]*\])")
_PROMPT = re.compile(r"prompt: (?='|\")")


def vllm(lines: Lines, counts: Counter[str]) -> Iterator[Recorded]:
    """What vLLM logs with `--enable-log-requests`: `Received request ID: prompt: '…', … prompt_token_ids: […]`. Without
    token ids and prompt (newer versions log them at DEBUG only) a line says nothing of what is shared."""
    for line in lines:
        told = _LINE.search(line)
        if told is None:
            counts["other"] += 1
            continue
        month, day, hour, minute, second = (int(part) for part in told.groups()[:5])
        at = datetime(2024, month, day, hour, minute, second).timestamp() + float(f"0.{told[6] or 0}")
        ids = _IDS.search(line)
        text = None if ids is not None else _quoted(line)
        if ids is None and not text:
            counts["unread"] += 1
            continue
        numbers = None if ids is None else [int(each) for each in ids[1][1:-1].split(",") if each.strip()]
        yield Recorded(at, [Piece("turn", text or "", numbers)])


def _quoted(line: str) -> str | None:
    begin = _PROMPT.search(line)
    if begin is None:
        return None
    quote = line[begin.end()]
    end = begin.end() + 1
    while end < len(line) and line[end] != quote:
        end += 2 if line[end] == "\\" else 1
    try:
        return str(literal_eval(line[begin.end() : end + 1]))
    except (ValueError, SyntaxError):
        return None


# --- the service's decision log --------------------------------------------------------------------------------------


def decisions(lines: Lines, counts: Counter[str]) -> Iterator[Recorded]:
    """The decision log of `kvp serve`. It has no text: runs of a prompt are known by their digests (`prefix`), their
    lengths by the counted tokens, spread evenly over the runs that a prompt has more than the longest known one."""
    lengths: dict[str, int] = {}
    for row in _objects(lines, counts):
        digests, total = row.get("prefix"), row.get("prompt_tokens")
        if not isinstance(digests, list) or not digests or not isinstance(total, int):
            counts["unread"] += 1
            continue
        known = next((place for place in range(len(digests), 0, -1) if digests[place - 1] in lengths), 0)
        base = min(lengths[digests[known - 1]], total) if known else 0
        for place in range(known, len(digests)):
            lengths[digests[place]] = base + (total - base) * (place - known + 1) // (len(digests) - known)
        units, before = [], 0
        for digest in digests:
            units.append((bytes.fromhex(digest), max(0, lengths[digest] - before)))
            before = max(before, lengths[digest])
        stop = "tool_use" if row.get("tool_calls") else None
        names = ["tool"] * int(row.get("tool_calls") or 0)
        owner = {"session": _name(row.get("owner")), "run": _name(row.get("run"))}
        yield Recorded(
            float(row.get("at") or 0.0) - float(row.get("seconds") or 0.0), (), owner, _name(row.get("model")), stop,
            names, row.get("output_tokens"), row.get("seconds"), units,
        )  # fmt: skip


def _seconds(value: Any) -> float | None:
    """A time of a log, in seconds: a number (milliseconds where it is too large), or ISO 8601."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int | float):
        return value / 1000 if value > 1e11 else float(value)
    if isinstance(value, str):
        try:
            return datetime.fromisoformat(value.replace("Z", "+00:00")).timestamp()
        except ValueError:
            try:
                return parse_duration(value)
            except UnitFault:
                return None
    return None


def _name(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


FORMS: Mapping[str, Callable[[Lines, Counter[str]], Iterator[Recorded]]] = {
    "openai": openai,
    "claude-code": claude_code,
    "vllm": vllm,
    "decisions": decisions,
}


def form_of(line: str) -> str | None:
    """The form that a file's first line shows; None where it shows none."""
    if _LINE.search(line) or re.match(r"\S* ?(INFO|DEBUG|WARNING) ", line):
        return "vllm"
    try:
        row = json.loads(line)
    except ValueError:
        return None
    if not isinstance(row, dict):
        return None
    if {"outcome", "dialect", "digest"} <= row.keys():
        return "decisions"
    if "sessionId" in row or row.get("type") in ("summary", "file-history-snapshot", "queue-operation"):
        return "claude-code"
    return "openai"
