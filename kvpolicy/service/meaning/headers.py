"""The `x-kvp-…` headers: RFC 9651 structured fields, by a kept library, remembered by their bytes.

A field that cannot be parsed is ignored as a whole, as the RFC has it, and answered by `malformed`. Members that are
not known are answered by `unknown_tag`. Read by `annotations.merged`.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from functools import lru_cache
from typing import Any

import http_sf

from kvpolicy import words
from kvpolicy.service.meaning.annotations import (
    MALFORMED,
    MESSAGE,
    MOST_EVENTS,
    NOTHING,
    TOKEN,
    TOO_MANY,
    TOOLS,
    UNKNOWN_TAG,
    Annotations,
    Context,
    Mark,
    event_of,
    name_of,
)
from kvpolicy.workflow.events import Event

CONTEXT, SPANS, EVENTS, POLICY = "x-kvp-context", "x-kvp-spans", "x-kvp-event", "x-kvp-policy"
LONGEST = 8192  # characters of one field
_NAMES = frozenset({"session", "run", "workflow", "node", "agent", "branch", "parent"})
_MOST_MARKS = 512


def from_headers(headers: Mapping[str, str]) -> Annotations:
    """What the headers say (lower-case names; several lines of one already joined)."""
    told = tuple(headers.get(name) for name in (CONTEXT, SPANS, EVENTS, POLICY))
    if told == (None, None, None, None):
        return NOTHING
    warned: list[str] = []
    context, marks, events, policy = (
        _field(name, value, warned) for name, value in zip((CONTEXT, SPANS, EVENTS, POLICY), told, strict=True)
    )
    name, mode = policy or (None, None)
    return Annotations(context or Context(), marks or (), events or (), name, mode, tuple(dict.fromkeys(warned)))


def _field(name: str, value: str | None, warned: list[str]) -> Any:
    if value is None:
        return None
    if len(value) > LONGEST:
        warned.append(MALFORMED)
        return None
    made, said = _read(name, value)
    warned.extend(said)
    return made


@lru_cache(maxsize=4096)
def _read(name: str, value: str) -> tuple[Any, tuple[str, ...]]:
    """One field's meaning with the codes to answer; the same bytes are parsed once."""
    kind = {CONTEXT: "dictionary", POLICY: "item"}.get(name, "list")
    try:
        parsed: Any = http_sf.parse(value.encode("latin-1", "replace"), tltype=kind)
    except (ValueError, RecursionError, ArithmeticError):
        return None, (MALFORMED,)
    warned: list[str] = []
    made = _READERS[name](parsed, warned)
    return made, tuple(warned)


def _context(parsed: Mapping[str, Any], warned: list[str]) -> Context:
    said: dict[str, Any] = {}
    for key, member in parsed.items():
        value = _plain(member[0])
        if key in _NAMES:
            said[key] = name_of(value)
        elif key in ("turn", "depth"):
            said[key] = value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
        elif key in ("final", "last_step"):
            said[key] = value if isinstance(value, bool) else None
        else:
            warned.append(UNKNOWN_TAG)
            continue
        if said[key] is None:
            warned.append(MALFORMED)
    return Context(**said)


def _marks(parsed: list[Any], warned: list[str]) -> tuple[Mark, ...]:
    made = []
    for members, given in parsed[:_MOST_MARKS]:
        parameters = {key: _plain(value) for key, value in given.items()}
        kind = parameters.pop("t", None)
        unit = TOKEN if parameters.pop("u", None) == "token" else MESSAGE
        part = parameters.pop("part", None)
        numbers = [_plain(item[0]) for item in members] if isinstance(members, list) else []
        if kind not in words.SPAN_KINDS:
            warned.append(UNKNOWN_TAG)
            continue
        attributes = {key: value for key, value in parameters.items() if key in _OWN_ATTRIBUTES}
        if len(attributes) < len(parameters):
            warned.append(UNKNOWN_TAG)
        if numbers == [TOOLS]:
            made.append(Mark(kind, TOOLS, attributes=attributes))
        elif len(numbers) == 2 and all(isinstance(n, int) and not isinstance(n, bool) and n >= -1 for n in numbers):
            made.append(Mark(kind, unit, numbers[0], numbers[1], part if isinstance(part, int) else None, attributes))
        else:
            warned.append(MALFORMED)
    return tuple(made)


_OWN_ATTRIBUTES = frozenset({"name", "tool", "branch", "agent", "node"})


def _events(parsed: list[Any], warned: list[str]) -> tuple[Event, ...]:
    made = []
    if len(parsed) > MOST_EVENTS:
        warned.append(TOO_MANY)
    for item in parsed[:MOST_EVENTS]:
        value, parameters = item
        event = event_of(str(_plain(value)), {key.replace("-", "_"): _plain(v) for key, v in parameters.items()})
        if event is None:
            warned.append(UNKNOWN_TAG)
        else:
            made.append(event)
    return tuple(made)


def _policy(parsed: tuple[Any, Mapping[str, Any]], warned: list[str]) -> tuple[str | None, str | None]:
    value, parameters = parsed
    mode = _plain(parameters.get("mode"))
    if mode not in (None, "off", "shadow", "enforce"):
        warned.append(UNKNOWN_TAG)
        mode = None
    return name_of(_plain(value)), mode


def _plain(value: Any) -> Any:
    """A bare item as a plain value: tokens and display strings are text, decimals numbers."""
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, bool | int | float) or value is None:
        return value
    return str(value)


_READERS: Mapping[str, Any] = {CONTEXT: _context, SPANS: _marks, EVENTS: _events, POLICY: _policy}
