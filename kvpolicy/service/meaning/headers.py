"""The `x-kvp-…` headers: RFC 9651 structured fields, by a kept library, remembered by their bytes.

A field that cannot be parsed is ignored as a whole, as the RFC has it, and answered by `malformed`. Members that are
not known are answered by `unknown_tag` with their names, and so is a header that begins as ours and is none. Read by
`annotations.merged`.
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

CONTEXT, SPANS, EVENTS, POLICY = "x-kvp-context", "x-kvp-spans", "x-kvp-event", "x-kvp-policy"
LONGEST = 8192  # characters of one field
_NAMES = frozenset({"session", "run", "workflow", "node", "agent", "branch", "parent"})
_MOST_MARKS = 512
OURS = "x-kvp-"
KNOWN = frozenset({CONTEXT, SPANS, EVENTS, POLICY, "x-kvp-doctor"})  # the last is the prefix doctor's own


def from_headers(headers: Mapping[str, str]) -> Annotations:
    """What the headers say (lower-case names; several lines of one already joined)."""
    told = tuple(headers.get(name) for name in (CONTEXT, SPANS, EVENTS, POLICY))
    warned = [tag(name) for name in headers if name.startswith(OURS) and name not in KNOWN]
    if told == (None, None, None, None) and not warned:
        return NOTHING
    context, marks, events, policy = (
        _field(name, value, warned) for name, value in zip((CONTEXT, SPANS, EVENTS, POLICY), told, strict=True)
    )
    name, mode = policy or (None, None)
    return Annotations(context or Context(), marks or (), events or (), name, mode, once(warned))


def _field(name: str, value: str | None, warned: list[Warned]) -> Any:
    if value is None:
        return None
    if len(value) > LONGEST:
        warned.append(tag(name, MALFORMED))
        return None
    made, said = _read(name, value)
    warned.extend(said)
    return made


@lru_cache(maxsize=4096)
def _read(name: str, value: str) -> tuple[Any, tuple[Warned, ...]]:
    """One field's meaning with the codes to answer; the same bytes are parsed once."""
    kind = {CONTEXT: "dictionary", POLICY: "item"}.get(name, "list")
    try:
        parsed: Any = http_sf.parse(value.encode("latin-1", "replace"), tltype=kind)
    except (ValueError, RecursionError, ArithmeticError):
        return None, (tag(name, MALFORMED),)
    warned: list[Warned] = []
    made = _READERS[name](parsed, warned)
    return made, tuple(warned)


def _context(parsed: Mapping[str, Any], warned: list[Warned]) -> Context:
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
            warned.append(tag(key))
            continue
        if said[key] is None:
            warned.append(tag(key, MALFORMED))
    return Context(**said)


def _marks(parsed: list[Any], warned: list[Warned]) -> tuple[Mark, ...]:
    made = []
    for members, given in parsed[:_MOST_MARKS]:
        parameters = {key: _plain(value) for key, value in given.items()}
        kind, unit = parameters.pop("t", None), parameters.pop("u", None)
        part = parameters.pop("part", None)
        numbers = [_plain(item[0]) for item in members] if isinstance(members, list) else []
        if kind not in words.SPAN_KINDS:
            warned.append(tag("t" if kind is None else kind))
            continue
        attributes = {key: value for key, value in parameters.items() if key in _OWN_ATTRIBUTES}
        warned += [tag(key) for key in parameters if key not in _OWN_ATTRIBUTES]
        if unit not in (None, TOKEN, MESSAGE):
            warned.append(tag(unit))
        elif part is not None and (isinstance(part, bool) or not isinstance(part, int)):
            warned.append(tag("part", MALFORMED))
        elif numbers == [TOOLS]:
            made.append(Mark(kind, TOOLS, attributes=attributes))
        elif len(numbers) == 2 and all(isinstance(n, int) and not isinstance(n, bool) and n >= -1 for n in numbers):
            made.append(Mark(kind, unit or MESSAGE, numbers[0], numbers[1], part, attributes))
        else:
            warned.append(tag(SPANS, MALFORMED))
    return tuple(made)


_OWN_ATTRIBUTES = frozenset({"name", "tool", "branch", "agent", "node"})


def _events(parsed: list[Any], warned: list[Warned]) -> tuple[Event, ...]:
    made = []
    if len(parsed) > MOST_EVENTS:
        warned.append(Warned(TOO_MANY))
    for item in parsed[:MOST_EVENTS]:
        value, parameters = item
        said = {key.replace("-", "_"): _plain(v) for key, v in parameters.items()}
        event = event_of(str(_plain(value)), said, warned)
        if event is not None:
            made.append(event)
    return tuple(made)


def _policy(parsed: tuple[Any, Mapping[str, Any]], warned: list[Warned]) -> tuple[str | None, str | None]:
    value, parameters = parsed
    warned += [tag(key) for key in parameters if key != "mode"]
    mode, name = _plain(parameters.get("mode")), name_of(_plain(value))
    if mode not in MODES:
        warned.append(tag(mode))
        mode = None
    if name is None:
        warned.append(tag(POLICY, MALFORMED))
    return name, mode


def _plain(value: Any) -> Any:
    """A bare item as a plain value: tokens and display strings are text, decimals numbers."""
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, bool | int | float) or value is None:
        return value
    return str(value)


_READERS: Mapping[str, Any] = {CONTEXT: _context, SPANS: _marks, EVENTS: _events, POLICY: _policy}
