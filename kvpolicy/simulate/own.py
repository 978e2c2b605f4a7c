"""kvpolicy's own form: a header, then calls with spans, owner and answer, and events between them.

`SCHEMA` is what `kvp trace describe` prints. The header states the units, so nothing has to be guessed.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from kvpolicy import words
from kvpolicy.faults import InputFault
from kvpolicy.request import Owner, Request, Span
from kvpolicy.simulate import fields
from kvpolicy.simulate.clock import SECONDS_PER, Clock
from kvpolicy.simulate.fields import Row
from kvpolicy.simulate.gather import Gather
from kvpolicy.simulate.trace import NO_ANSWER, Answer, Call, Facts

VERSION = 1
HEADER = "kvpolicy_trace"
_OWNER = ("tenant", "session", "run", "agent", "branch", "parent")
_KINDS = list(words.SPAN_KINDS)
_COUNT = {"type": "integer", "minimum": 0}
_TEXT = {"type": ["string", "null"]}

SCHEMA: dict[str, object] = {
    "title": "kvpolicy trace, one JSON object a line, in order of time: a header, then calls and events",
    "header": {
        "required": [HEADER, "block_size", "time_unit"],
        "properties": {
            HEADER: {"const": VERSION},
            "block_size": {"type": "integer", "minimum": 1, "description": "tokens per block"},
            "time_unit": {"enum": list(SECONDS_PER)},
            "label": {"type": "string", "description": "where the trace comes from"},
            "workflow": {"type": "object", "description": "the graph of its runs, as `kvp graph` reads it"},
        },
    },
    "call": {
        "required": ["at", "tokens", "hashes"],
        "properties": {
            "at": {"type": "number", "minimum": 0, "description": "in time_unit, from the trace's start"},
            "id": {"type": "string"},
            "owner": {"type": "object", "properties": dict.fromkeys(_OWNER, _TEXT)},
            "model": _TEXT,
            "tokens": {**_COUNT, "description": "length of the prompt"},
            "hashes": {
                "type": "array",
                "items": {"type": ["integer", "string"]},
                "description": "one id per block, prefix-chained and global; the partial last block may be left out",
            },
            "spans": {
                "type": "array",
                "items": {
                    "required": ["kind", "start", "end"],
                    "properties": {
                        "kind": {"enum": _KINDS},
                        "start": {**_COUNT, "description": "first token"},
                        "end": {**_COUNT, "description": "token after the last"},
                        "tool": _TEXT,
                        "name": _TEXT,
                        "branch": _TEXT,
                        "agent": _TEXT,
                        "node": _TEXT,
                    },
                },
            },
            "took": {"type": "number", "minimum": 0, "description": "how long the call took, in seconds"},
            "pause": {
                "type": "number",
                "minimum": 0,
                "description": "seconds from the end of what it waits for to this call; only --engine-model reads it",
            },
            "waits_for": {
                "type": "array",
                "items": {"type": "string"},
                "description": "ids of earlier calls that end first (a join); without it, the owner's previous call",
            },
            "attributes": {"type": "object", "description": "plan, workflow, node, turn, depth of the whole call"},
            "answer": {
                "type": "object",
                "description": "known only when the call is over",
                "properties": {
                    "stop": {"type": ["string", "null"], "description": "tool_use, end_turn, or another word"},
                    "tool_calls": {"type": "array", "items": {"type": "string"}, "description": "names of the tools"},
                    "output_tokens": _COUNT,
                    "output_types": {"type": "array", "items": {"type": "string"}},
                },
            },
        },
    },
    "event": {
        "required": ["at", "event"],
        "properties": {
            "at": {"type": "number", "minimum": 0},
            "event": {"enum": list(words.EVENTS)},
            **dict.fromkeys((*words.OWNER_FIELDS, "tool"), _TEXT),
        },
    },
}


def fits(row: Row) -> bool:
    """Is this the first row of such a trace?"""
    return HEADER in row


def calls(path: Path, rows: Iterator[tuple[int, Row]], first: tuple[int, Row], facts: Facts) -> Iterator[Call]:
    """The trace's calls in file order, each with the events before it. Events after the last call decide nothing."""
    line, header = first
    if header[HEADER] != VERSION:
        raise InputFault(f"{path}:{line}: {HEADER} is {header[HEADER]!r}; this version reads {VERSION}")
    block_size = fields.whole(path, line, header, "block_size")
    if block_size == 0:
        raise InputFault(f"{path}:{line}: block_size is 0; it is the tokens of one block, such as 16")
    if "time_unit" not in header:
        raise InputFault(f"{path}:{line}: time_unit is missing; state one of {', '.join(SECONDS_PER)}")
    facts.workflow = _object(path, line, header, "workflow") or None
    label = fields.text(path, line, header, "label")
    facts.label = label or facts.label
    clock = Clock(path, line, header, unit="s", key="at")
    gather = Gather(path, facts, clock.unit, True)
    next(rows)
    events: list[Row] = []
    for number, row in rows:
        at = clock.seconds(number, row)
        if "event" in row:
            name = row["event"]
            if not isinstance(name, str) or name not in words.EVENTS:
                raise InputFault(f"{path}:{number}: {name!r} is no event; `kvp trace describe` lists them")
            events.append({**row, "at": at})
            continue
        call = _call(path, number, row, at, block_size, facts.requests)
        call.before = tuple(events)
        events.clear()
        yield gather.call(number, call)
    gather.end()


def _call(path: Path, line: int, row: Row, at: float, block_size: int, index: int) -> Call:
    tokens = fields.whole(path, line, row, "tokens")
    hashes = fields.blocks(path, line, row, "hashes")
    fields.check_count(path, line, len(hashes), tokens, block_size)
    name = fields.text(path, line, row, "id") or f"r{index}"
    attributes = _object(path, line, row, "attributes")
    spans = _spans(path, line, row, tokens)
    model = fields.text(path, line, row, "model")
    request = Request(name, _owner(path, line, row), tokens, block_size, spans, model, attributes)
    said = _object(path, line, row, "answer")
    answer = NO_ANSWER
    if said:
        answer = Answer(
            fields.text(path, line, said, "stop"),
            fields.strings(path, line, said, "tool_calls"),
            fields.whole(path, line, said, "output_tokens", 0),
            fields.strings(path, line, said, "output_types"),
        )
    return Call(
        request,
        hashes,
        at,
        answer,
        took=fields.seconds(path, line, row, "took"),
        pause=fields.seconds(path, line, row, "pause"),
        waits_for=fields.strings(path, line, row, "waits_for") if row.get("waits_for") is not None else None,
    )


def _owner(path: Path, line: int, row: Row) -> Owner:
    owner = _object(path, line, row, "owner")
    unknown = set(owner) - set(_OWNER)
    if unknown:
        raise InputFault(f"{path}:{line}: owner has {sorted(unknown)[0]!r}; its fields are {', '.join(_OWNER)}")
    known = {field: fields.text(path, line, owner, field) for field in _OWNER[1:]}
    return Owner(tenant=fields.text(path, line, owner, "tenant") or "default", **known)


def _spans(path: Path, line: int, row: Row, tokens: int) -> tuple[Span, ...]:
    listed = row.get("spans") or []
    if not isinstance(listed, list):
        raise InputFault(f"{path}:{line}: spans is no list")
    spans, covered = [], 0
    for part in listed:
        if not isinstance(part, dict) or part.get("kind") not in _KINDS:
            raise InputFault(f"{path}:{line}: a span's kind is one of {', '.join(_KINDS)}")
        start, end = fields.whole(path, line, part, "start"), part.get("end")
        if end is not None:
            end = fields.whole(path, line, part, "end")
        if start < covered or (end is not None and not start <= end <= tokens):
            raise InputFault(
                f"{path}:{line}: span {start} to {end} overlaps another or leaves the {tokens} tokens of the prompt"
            )
        covered = tokens if end is None else end
        attributes = {key: value for key, value in part.items() if key not in ("kind", "start", "end")}
        spans.append(Span(part["kind"], start, end, attributes))
    return tuple(spans)


def _object(path: Path, line: int, row: Row, key: str) -> Row:
    value = row.get(key)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise InputFault(f"{path}:{line}: {key} is no JSON object")
    return value
