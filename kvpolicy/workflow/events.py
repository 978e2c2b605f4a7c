"""An event: something that happened to an owner, at a time.

Read from a request or its answer by whoever sees them, or sent by a caller (state files, timelines, the service);
`RunState.observe` takes it. Events do not act: they open and close the intervals that rules read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from kvpolicy import words
from kvpolicy.faults import InputFault
from kvpolicy.language.spelling import nearest
from kvpolicy.policy.model import EventPattern
from kvpolicy.units import UnitFault, parse_duration


@dataclass(frozen=True, slots=True)
class Event:
    """`at`: seconds on the caller's clock. `name`: of `words.EVENTS`.

    `attributes`: the owner fields it states (`tenant session run agent branch node call`; None = has none; an absent
    one says nothing) and facts such as `tool`, `eta` (seconds), `rank`, `score`, `parent`.
    """

    at: float
    name: str
    attributes: Mapping[str, object] = field(default_factory=dict)


LONGEST_TEXT = 1024  # characters of a field: names of owners are no longer either
LATEST_S = 1e15  # no clock gets there; larger numbers are somebody's mistake
FIELDS = (
    *words.OWNER_FIELDS,
    *(name for name in words.EVENT_ATTRIBUTES if name not in words.OWNER_FIELDS),
    "parent",
    "count",  # of branches behind a step, where an edge out of it says `* NAME`
)


def check_fields(name: str, fields: Iterable[str]) -> None:
    """Refuse fields that no event has: a mistyped owner field states nothing, so the event would address everybody.

    name: the event's. Raises InputFault with the nearest field there is.
    """
    for key in fields:
        if key not in FIELDS:
            near = nearest(key, FIELDS) if isinstance(key, str) else None
            mend = f"did you mean `{near}`?" if near else f"the fields of an event are {', '.join(FIELDS)}"
            raise InputFault(f"{name}: there is no field '{key}'; {mend}")


def is_field(value: object) -> bool:
    """Whether a field of an event may have this value: a text that is not too long, a number, true, false or null."""
    if isinstance(value, str):
        return len(value) <= LONGEST_TEXT
    return value is None or isinstance(value, bool | int | float)


def event_from_row(row: Mapping[str, object], at: float | None = None) -> Event:
    """The event of a JSON row `{"at": 0.0, "event": "tool_call", "tool": "grep", "session": "s"}`.

    `at` stands in where the row has no time. Raises InputFault on an unknown event or field, a missing or unusable
    time, or an unusable eta.
    """
    name = row.get("event")
    if not isinstance(name, str) or name not in words.EVENTS:
        near = words.EVENT_ALIASES.get(name, nearest(name, words.EVENTS)) if isinstance(name, str) else None
        mend = f"did you mean `{near}`?" if near else f"the events are {', '.join(words.EVENTS)}"
        raise InputFault(f"'{name}' is no event; {mend}")
    moment = row.get("at", at)
    if isinstance(moment, bool) or not isinstance(moment, int | float) or not abs(moment) < LATEST_S:
        raise InputFault(f"the event {name} needs a time in seconds under 'at'")
    attributes = {key: value for key, value in row.items() if key not in ("at", "event")}
    check_fields(name, attributes)
    for key, value in attributes.items():
        if not is_field(value):
            raise InputFault(f"{key} of {name}: a text of at most {LONGEST_TEXT} characters, or a number, is needed")
    eta = attributes.get("eta")
    if isinstance(eta, str):
        try:
            attributes["eta"] = parse_duration(eta)
        except UnitFault as fault:
            raise InputFault(f"eta of {name}: {fault}") from None
    return Event(float(moment), name, attributes)


def events_from_rows(rows: Iterable[Mapping[str, object]]) -> list[Event]:
    """The events of a document's list, by time; those of one moment stay in their order. Raises InputFault naming the
    row."""
    told = []
    for index, row in enumerate(rows):
        try:
            told.append(event_from_row(row))
        except InputFault as fault:
            raise InputFault(f"events[{index}]: {fault}") from None
    return sorted(told, key=lambda event: event.at)


def conditions_hold(pattern: EventPattern, attribute: Callable[[str], object]) -> bool:
    """Whether all conditions of `pattern` hold; an absent attribute (None) matches none of them, `!=` included."""
    for name, operator, values in pattern.conditions:
        value = attribute(name)
        if value is None or not _holds(value, operator, values):
            return False
    return True


def _holds(value: object, operator: str, values: tuple[object, ...]) -> bool:
    if operator in ("=", "in"):
        return value in values
    if operator == "!=":
        return value not in values
    right = values[0] if values else None
    if not isinstance(value, int | float) or not isinstance(right, int | float):
        return False  # nothing but numbers has an order here
    if operator == "<":
        return value < right
    if operator == "<=":
        return value <= right
    if operator == ">":
        return value > right
    return value >= right
