"""What comes to an engine for a request's blocks: read from any of its carriers into a request and its directives.

The same object P everywhere: body field `kv_transfer_params: {"kvpolicy": P}`, body field `vllm_xargs: {"kvpolicy":
"<P as JSON text>"}`, and the control channel's `plan`. An adapter's `lower` writes it. Durations are seconds from the
moment it was written. Raises InputFault naming the place and the mend; an engine serves such a request as one that
says nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from math import inf, isfinite
from typing import Any

from kvpolicy import words
from kvpolicy.channel.ends import Ends
from kvpolicy.claims.strength import DEFAULT
from kvpolicy.directive import DROP, HOLD, NORMAL, PIN, Directive, Retention
from kvpolicy.faults import InputFault
from kvpolicy.request import Owner, Request, Span

KEY = "kvpolicy"
CARRIERS = ("kv_transfer_params", "vllm_xargs")
MOST_SPANS = 4096
MOST_CALLS = 256  # open at once; older ones are no longer waited for
LONGEST_S = 30 * 24 * 3600.0
_OWNER = ("tenant", "session", "run", "agent", "branch")
_MODES = (NORMAL, DROP, HOLD, PIN)
_WISHES = frozenset({"priority", "ttl", "fixed", "hold", "protected_for", "retention", "until", "for", "by_kind"})


@dataclass(frozen=True, slots=True)
class Told:
    """What a request said. directives: by span; names: what its claims are called on the control channel, by span.
    follows: it named itself and did not say where its answer begins, so not all of its spans were known: a plan may
    come over the control channel, also when it has ended."""

    request: Request
    directives: Mapping[int, Directive]
    names: Mapping[int, str]
    follows: bool = False


def of_body(body: Mapping[str, Any]) -> Any:
    """The object P in a request's body, as it came; None where there is none. The engine's own readers see the same."""
    for field in CARRIERS:
        carried = body.get(field)
        if isinstance(carried, Mapping) and carried.get(KEY) is not None:
            return carried[KEY]
    return None


def read(told: Any, request_id: str, tokens: int, block_size: int, now: float, ends: Ends | None = None) -> Told:
    """P as a request with its directives. request_id: the engine's name of it, where P brings none. tokens: length of
    the prompt; block_size: of the blocks that decide hits; ends: those that plans said before."""
    if isinstance(told, str):
        try:
            told = json.loads(told)
        except (ValueError, RecursionError):
            raise InputFault(f"{KEY}: no JSON; an object with owner and spans is needed") from None
    if not isinstance(told, Mapping):
        raise InputFault(f"{KEY}: an object with owner and spans is needed")
    rows = told.get("spans", [])
    if not isinstance(rows, list) or len(rows) > MOST_SPANS:
        raise InputFault(f"{KEY}.spans: a list of at most {MOST_SPANS} spans is needed")
    owner = owner_of(told.get("owner"))
    spans, directives, names = [], {}, {}
    for index, row in enumerate(rows):
        span, directive = _span(row, index, now, None if ends is None else partial(ends.of, owner.key))
        spans.append(span)
        names[index] = str(row.get("claim", span.kind))
        if directive is not None:
            directives[index] = directive
    key, model, name = told.get("key"), told.get("model"), told.get("request")
    request = Request(
        request_id if name is None else str(name),
        owner,
        tokens,
        block_size,
        tuple(spans),
        model=None if model is None else str(model),
        key=None if key is None else str(key),
        waits=_waits(told.get("waits")),
        brings=told.get("brings") is True,
        events=_events(told.get("events")),
        head=None if told.get("head") is None else str(told["head"]),
    )
    follows = name is not None and all(span.end is not None for span in spans)
    return Told(request, directives, names, follows)


def _waits(value: Any) -> tuple[str | None, ...]:
    if value is None:
        return ()
    if not isinstance(value, list) or any(not isinstance(each, str | None) for each in value):
        raise InputFault(f"{KEY}.waits: a list of ids of requests, null for one that nobody knows, is needed")
    return tuple(value[-MOST_CALLS:])


def _events(value: Any) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, list) or any(not isinstance(each, str) or each not in words.EVENTS for each in value):
        raise InputFault(f"{KEY}.events: a list of {', '.join(words.EVENTS)} is needed")
    return tuple(value)


def owner_of(value: Any) -> Owner:
    """An owner: text is a session of the default tenant, an object has the owner's fields, null is nobody known."""
    if value is None:
        return Owner()
    if isinstance(value, str):
        return Owner(session=value)
    if not isinstance(value, Mapping) or any(not isinstance(v, str | None) for v in value.values()):
        raise InputFault(f"{KEY}.owner: text, or an object of text fields {' '.join(_OWNER)}, is needed")
    fields = {name: value.get(name) for name in _OWNER}
    return Owner(**{**fields, "tenant": fields["tenant"] or "default"})  # type: ignore[arg-type]


def changed(old: Any, row: Mapping[str, Any], now: float) -> Directive:
    """A directive with what a message of the control channel says of it: priority, ttl, hold, protected. A ttl or hold
    of null is taken away; without the key it stays."""
    until = old.protected_until
    retention, hold = old.retention, old.hold_after_release
    if row.get("protected") is not None:
        until, hold, retention = (inf, None, Retention(PIN)) if row["protected"] else (None, None, Retention())
    if "hold" in row and row["hold"] is None and retention.mode == HOLD:
        until, hold, retention = None, None, Retention()
    elif row.get("hold") is not None:
        until, hold, retention = now + float(row["hold"]), None, Retention(HOLD, seconds=float(row["hold"]))
    ttl = row.get("ttl", old.ttl)
    return Directive(
        span=getattr(old, "span", 0),
        kind=getattr(old, "kind", "turn"),
        start=getattr(old, "start", 0),
        end=getattr(old, "end", None),
        priority=old.priority if row.get("priority") is None else int(row["priority"]),
        retention=retention,
        protected_until=until,
        expires=None,
        ttl=None if ttl is None else float(ttl),
        ttl_fixed=old.ttl_fixed,
        lifetime=old.lifetime,
        hold_after_release=hold,
        drop_by_kind=old.drop_by_kind,
    )


def standing(kind: str) -> Directive:
    """What a span that no rule touches stands for, as a directive to change."""
    lifetime = words.DEFAULT_LIFETIME_BY_KIND.get(kind, words.DEFAULT_LIFETIME)
    return Directive(0, kind, 0, None, DEFAULT, Retention(), None, None, None, False, lifetime)


def _span(
    row: Any, index: int, now: float, end_of: Callable[[float, float], float] | None
) -> tuple[Span, Directive | None]:
    where = f"{KEY}.spans[{index}]"
    if not isinstance(row, Mapping):
        raise InputFault(f"{where}: an object with kind, start and end is needed")
    kind, start, end = row.get("kind", "turn"), row.get("start", 0), row.get("end")
    if not _whole(start) or not (end is None or _whole(end)):
        raise InputFault(f"{where}: start and end are whole numbers of tokens (end null for an output)")
    span = Span(str(kind), start, end)
    if not _WISHES & row.keys():
        return span, None
    priority = row.get("priority", DEFAULT)
    if not _whole(priority) or not words.PRIORITY_RANGE[0] <= priority <= words.PRIORITY_RANGE[1]:
        raise InputFault(f"{where}.priority: a whole number from 0 to 100 is needed, not {priority!r}")
    mode = row.get("retention", NORMAL)
    if mode not in _MODES:
        raise InputFault(f"{where}.retention: one of {', '.join(_MODES)} is needed, not {mode!r}")
    lifetime = row.get("for", words.DEFAULT_LIFETIME_BY_KIND.get(span.kind, words.DEFAULT_LIFETIME))
    if lifetime not in words.LIFETIMES:
        raise InputFault(f"{where}.for: one of {', '.join(words.LIFETIMES)} is needed, not {lifetime!r}")
    until = row.get("protected_for")
    protected = None if until is None else inf if until == "never" else now + _seconds(until, f"{where}.protected_for")
    said = row.get("ends")
    if said is not None and (isinstance(said, bool) or not isinstance(said, int | float) or not isfinite(said)):
        raise InputFault(f"{where}.ends: a number is needed, not {said!r}")
    if said is not None and protected is not None and end_of is not None and protected < inf:
        protected = end_of(said, protected)
    hold, ttl = row.get("hold"), row.get("ttl")
    event = row.get("until")
    if mode == PIN and protected is None:
        protected = inf
    directive = Directive(
        span=index,
        kind=span.kind,
        start=start,
        end=end,
        priority=priority,
        retention=Retention(mode, until=None if event is None else str(event)),
        protected_until=protected,
        expires=None,
        ttl=None if ttl is None else _seconds(ttl, f"{where}.ttl"),
        ttl_fixed=bool(row.get("fixed")),
        lifetime=str(lifetime),
        hold_after_release=None if hold is None else _seconds(hold, f"{where}.hold"),
        drop_by_kind=bool(row.get("by_kind", True)),
    )
    return span, directive


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _seconds(value: Any, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value) or value < 0:
        raise InputFault(f"{where}: seconds, not below 0, are needed, not {value!r}")
    return min(float(value), LONGEST_S)
