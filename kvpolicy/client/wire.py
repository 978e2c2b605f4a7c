"""A scope as the service reads it: `x-kvp-…` headers (RFC 9651), the body field `kvp`, or part of a base URL.

Written here by hand, remembered by scope: strings, integers and booleans are all it takes. The service's own reader
(`service.meaning.headers`) is what tests read it back with.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import quote

from kvpolicy import words
from kvpolicy.client.once import warn_once
from kvpolicy.client.scope import END, MESSAGE, TOKEN, TOOLS, Mark, Scope

CONTEXT, SPANS = "x-kvp-context", "x-kvp-spans"
_NAMES = ("session", "run", "workflow", "node", "agent", "branch", "parent")
_COUNTS = ("turn", "depth")
_FLAGS = ("last_step", "final")
_OF_MARKS = frozenset({"name", "tool", "branch", "agent", "node"})
LONGEST_NAME = 256  # characters; the service takes no longer ones
LONGEST = 8000  # characters of a header
_LARGEST = 999_999_999_999_999  # of RFC 9651's integers
PREFIX = "/kvp/"


@lru_cache(maxsize=4096)
def headers(scope: Scope) -> tuple[tuple[str, str], ...]:
    """The headers of a scope, none where it says nothing. What cannot be said is left out, and warned of once.

    # INVARIANT: every value is printable ASCII: an HTTP client raises for any other, which would cost an LLM call.
    """
    made = []
    context = ", ".join(_context(scope))
    if context:
        made.append((CONTEXT, context))
    marks = ", ".join(_mark(each) for each in _sayable(scope))
    if marks:
        made.append((SPANS, marks))
    for name, value in made:
        if len(value) > LONGEST:
            warn_once(f"long {name}", f"{name} has {len(value)} characters, more than {LONGEST}: it is not sent")
    return tuple((name, value) for name, value in made if len(value) <= LONGEST)


def body(scope: Scope) -> dict[str, Any]:
    """The same as the body field `kvp`, for clients that can add to a body but not to headers."""
    told: dict[str, Any] = dict(_said(scope))
    found: dict[str, Any] = {"context": told} if told else {}
    spans = [_row(each) for each in _sayable(scope)]
    if spans:
        found["spans"] = spans
    return found


def base_url(url: str, scope: Scope) -> str:
    """The service's address for a client that can be told nothing but an address: the scope's names and counts stand
    in the path (`/kvp/session=s1;node=writer/v1`); its spans do not fit there."""
    told = ";".join(f"{name}={quote(_plain(value), safe='')}" for name, value in _said(scope))
    if not told:
        return url
    scheme, slashes, rest = url.partition("://")
    host, _, path = rest.partition("/")
    return f"{scheme}{slashes}{host}{PREFIX}{told}/{path}".rstrip("/")


def _plain(value: object) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value)


def _said(scope: Scope) -> Iterable[tuple[str, Any]]:
    for name in _NAMES:
        value = getattr(scope, name)
        if value is None:
            continue
        if isinstance(value, str) and 0 < len(value) <= LONGEST_NAME and value.isprintable():
            yield name, value
        else:
            warn_once(f"name {name}", f"{name} is no printable text of 1 to {LONGEST_NAME} characters: it is not sent")
    for name in _COUNTS:
        value = getattr(scope, name)
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _LARGEST:
            yield name, value
    for name in _FLAGS:
        if isinstance(getattr(scope, name), bool):
            yield name, getattr(scope, name)


def _context(scope: Scope) -> Iterable[str]:
    for name, value in _said(scope):
        if value is True:
            yield name
        elif value is False:
            yield f"{name}=?0"
        else:
            yield f"{name}={value if isinstance(value, int) else _text(value)}"


def _sayable(scope: Scope) -> Iterable[Mark]:
    """Its marks but for those that the service could not read."""
    for mark in scope.marks:
        why = _fault(mark)
        if why is None:
            yield mark
        else:
            warn_once(f"mark {why[0]}", f"a mark is not sent: its {' '.join(why)}")


def _fault(mark: Mark) -> tuple[str, str] | None:
    """What of a mark cannot be said, and why."""
    if mark.kind not in words.SPAN_KINDS:
        return "kind", f"is one of {', '.join(words.SPAN_KINDS)}, not {mark.kind!r}"
    if mark.unit not in (MESSAGE, TOKEN, TOOLS):
        return "unit", f"is {MESSAGE}, {TOKEN} or {TOOLS}, not {mark.unit!r}"
    numbers = (mark.start, mark.end, 0 if mark.part is None else mark.part)
    if not all(type(number) is int and END <= number <= _LARGEST for number in numbers):
        return "start, end or part", f"counts from 0, and {END} is the end"
    for name, value in mark.attributes:
        if name not in _OF_MARKS:
            return "attributes", f"are {', '.join(sorted(_OF_MARKS))}, not {name!r}"
        if not isinstance(value, str) or any("\ud800" <= each <= "\udfff" for each in value):
            return name, "is no text"
    return None


def _mark(mark: Mark) -> str:
    members = "(tools)" if mark.unit == TOOLS else f"({mark.start} {mark.end})"
    told = "" if mark.unit in (MESSAGE, TOOLS) else f";u={mark.unit}"
    told += "" if mark.part is None else f";part={mark.part}"
    return members + told + f";t={mark.kind}" + "".join(f";{name}={_text(value)}" for name, value in mark.attributes)


def _row(mark: Mark) -> Mapping[str, Any]:
    place: dict[str, Any] = {"tools": True} if mark.unit == TOOLS else {f"{mark.unit}s": [mark.start, mark.end]}
    part = {} if mark.part is None else {"part": mark.part}
    return {**place, **part, "kind": mark.kind, **dict(mark.attributes)}


def _text(value: str) -> str:
    """A string of the structured fields; a Display String where it is not printable ASCII."""
    if value.isascii() and value.isprintable():
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    safe = "".join(chr(b) if 0x20 <= b < 0x7F and b not in b'%"' else f"%{b:02x}" for b in value.encode("utf-8"))
    return f'%"{safe}"'
