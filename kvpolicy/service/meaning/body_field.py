"""The body field `kvp`: the same as the headers, as JSON, for clients that can add to a body but not to headers.

    {"context": {"session": "s1", "node": "writer", "final": true},
     "spans": [{"messages": [0, 1], "kind": "system"}, {"tools": true, "kind": "tools"}, {"tokens": [0, 40], …}],
     "events": [{"event": "tool_call", "tool": "grep", "eta": 4.5}],
     "policy": {"name": "continuum", "mode": "shadow"}}

The context's keys may also stand at the top. Read by `annotations.merged`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from itertools import islice
from typing import Any

from kvpolicy import words
from kvpolicy.service.meaning.annotations import (
    MALFORMED,
    MESSAGE,
    MODES,
    MOST_EVENTS,
    NOTHING,
    TOKEN,
    TOO_MANY,
    TOOLS,
    Annotations,
    Context,
    Mark,
    Warned,
    event_of,
    name_of,
    once,
    tag,
)
from kvpolicy.workflow.events import Event

_CONTEXT = {each.name for each in fields(Context)}
_NUMBERS, _FLAGS = ("turn", "depth"), ("final", "last_step")
_OWN = frozenset({"name", "tool", "branch", "agent", "node"})
_OF_SPANS = _OWN | {"kind", "t", "messages", "tokens", "tools", "part"}
_MOST = 512


def from_body(body: Mapping[str, Any]) -> Annotations:
    """What the body says. Never raises."""
    told = body.get("kvp")
    if told is None:
        return NOTHING
    if not isinstance(told, Mapping):
        return Annotations(warnings=(tag("kvp", MALFORMED),))
    warned: list[Warned] = []
    inner = told.get("context")
    said = {key: told[key] for key in _CONTEXT if key in told}
    if isinstance(inner, Mapping):
        said |= dict(islice(inner.items(), _MOST))
    elif inner is not None:
        warned.append(tag("context", MALFORMED))
    known = _CONTEXT | {"context", "spans", "events", "event", "policy", "mode"}
    warned += [tag(key) for key in islice(told, _MOST) if key not in known]
    name, mode = _policy(told, warned)
    events = told.get("events", told.get("event", ()))
    if isinstance(events, list | tuple) and len(events) > MOST_EVENTS:
        warned.append(Warned(TOO_MANY))
        events = events[:MOST_EVENTS]
    return Annotations(
        _context(said, warned),
        _rows("spans", told.get("spans", ()), _mark, warned),
        _rows("events", [events] if isinstance(events, Mapping) else events, _event, warned),
        name,
        mode,
        once(warned),
    )


def _context(said: Mapping[str, Any], warned: list[Warned]) -> Context:
    made: dict[str, Any] = {}
    for key, value in said.items():
        if key not in _CONTEXT:
            warned.append(tag(key))
            continue
        if key in _NUMBERS:
            made[key] = value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
        elif key in _FLAGS:
            made[key] = value if isinstance(value, bool) else None
        else:
            made[key] = name_of(value)
        if made[key] is None and value is not None:
            warned.append(tag(key, MALFORMED))
    return Context(**made)


def _rows(name: str, rows: Any, read: Any, warned: list[Warned]) -> tuple[Any, ...]:
    if not isinstance(rows, list | tuple):
        warned.append(tag(name, MALFORMED))
        return ()
    made = []
    for row in rows[:_MOST]:
        if len(warned) > _MOST:
            break  # nobody reads so many; what is wrong has no end
        if not isinstance(row, Mapping):
            warned.append(tag(name, MALFORMED))
        elif (one := read(row, warned)) is not None:
            made.append(one)
    return tuple(made)


def _mark(row: Mapping[str, Any], warned: list[Warned]) -> Mark | None:
    kind = row.get("kind", row.get("t"))
    if not isinstance(kind, str) or kind not in words.SPAN_KINDS:
        warned.append(tag("kind" if kind is None else kind))
        return None
    own = {key: row[key] for key in _OWN if isinstance(row.get(key), str | int | float)}
    warned += [tag(key) for key in islice(row, _MOST) if key not in _OF_SPANS]
    part = row.get("part")
    if part is not None and (isinstance(part, bool) or not isinstance(part, int)):
        warned.append(tag("part", MALFORMED))
        return None
    if row.get("tools") is True:
        return Mark(kind, TOOLS, attributes=own)
    for key, unit in (("messages", MESSAGE), ("tokens", TOKEN)):
        numbers = row.get(key)
        if (
            isinstance(numbers, list)
            and len(numbers) == 2
            and all(isinstance(n, int) and not isinstance(n, bool) and n >= -1 for n in numbers)
        ):
            return Mark(kind, unit, numbers[0], numbers[1], part, own)
    warned.append(tag("spans", MALFORMED))
    return None


def _event(row: Mapping[str, Any], warned: list[Warned]) -> Event | None:
    return event_of(str(row.get("event")), {k: v for k, v in islice(row.items(), _MOST) if k != "event"}, warned)


def _policy(told: Mapping[str, Any], warned: list[Warned]) -> tuple[str | None, str | None]:
    given = told.get("policy")
    name = given.get("name") if isinstance(given, Mapping) else given
    mode = given.get("mode") if isinstance(given, Mapping) else told.get("mode")
    if isinstance(given, Mapping):
        warned += [tag(key) for key in islice(given, _MOST) if key not in ("name", "mode")]
    if mode not in MODES:
        warned.append(tag(mode))
        mode = None
    if name is not None and name_of(name) is None:
        warned.append(tag("policy", MALFORMED))
    return name_of(name), mode
