"""Fields of a step, read with their types. Every fault is an InputFault that names the key and what it should be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from kvpolicy.faults import InputFault
from kvpolicy.request import Owner
from kvpolicy.workflow.events import LATEST_S

Step = Mapping[str, Any]
OWNER_FIELDS = ("tenant", "session", "run", "agent", "branch", "parent")
_WHERE = ("at", "do")


def only(step: Step, *keys: str) -> None:
    """Refuse a step with keys that it does not have, with the nearest one."""
    for key in step:
        if key not in keys and key not in _WHERE:
            near = get_close_matches(key, keys, n=1)
            mend = f"did you mean '{near[0]}'?" if near else f"its keys are {', '.join((*_WHERE, *keys))}"
            raise InputFault(f"{step.get('do')}: unknown key '{key}'; {mend}")


def text(step: Step, key: str) -> str:
    """A string that has to be there."""
    value = step.get(key)
    if not isinstance(value, str) or not value:
        raise _missing(step, key) if key not in step else _wrong(step, key, "a string that is not empty")
    return value


def maybe_text(step: Step, key: str) -> str | None:
    """A string, or null or nothing."""
    value = step.get(key)
    if value is not None and not isinstance(value, str):
        raise _wrong(step, key, "a string")
    return value


def count(step: Step, key: str, default: int | None = None) -> int:
    """A whole number of at least 0; without a default it has to be there."""
    value = step.get(key, default)
    if value is None and key not in step:
        raise _missing(step, key)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 53:
        raise _wrong(step, key, "a whole number of at least 0")
    return value


def flag(step: Step, key: str) -> bool | None:
    """true, false, or nothing."""
    value = step.get(key)
    if value is not None and not isinstance(value, bool):
        raise _wrong(step, key, "true or false")
    return value


def seconds(step: Step, key: str = "at") -> float:
    """A time in seconds that has to be there."""
    if key not in step:
        raise _missing(step, key)
    value = step[key]
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < LATEST_S:
        raise _wrong(step, key, f"a time in seconds, from 0 to {LATEST_S:g}")
    return float(value)


def names(step: Step, key: str) -> list[str | int]:
    """A list of block names that has to be there."""
    if key not in step:
        raise _missing(step, key)
    return _list_of(step, key, (str, int), "a list of block names (strings or whole numbers)")


def tokens(step: Step, key: str) -> list[int] | None:
    """A list of token ids, or nothing."""
    if step.get(key) is None:
        return None
    found: list[int] = _list_of(step, key, (int,), "a list of token ids (whole numbers)")
    if any(not -(1 << 63) <= token < 1 << 63 for token in found):
        raise _wrong(step, key, "a list of token ids of at most 64 bits")
    return found


def owner(step: Step) -> Owner:
    """The owner of a step; without one, the default tenant's nameless owner."""
    value = step.get("owner")
    if value is None:
        return Owner()
    if not isinstance(value, Mapping):
        raise _wrong(step, "owner", f"an object with {', '.join(OWNER_FIELDS)}")
    fields: dict[str, Any] = {}
    for key, part in value.items():
        if key not in OWNER_FIELDS:
            raise InputFault(f"{step.get('do')}: owner: unknown key '{key}'; its keys are {', '.join(OWNER_FIELDS)}")
        if part is not None and not isinstance(part, str):
            raise InputFault(f"{step.get('do')}: owner: {key}: a string is needed")
        fields[key] = part
    if fields.get("tenant", "") is None:
        del fields["tenant"]
    return Owner(**fields)


def mapping(step: Step, key: str) -> Mapping[str, Any]:
    """An object that has to be there."""
    if key not in step:
        raise _missing(step, key)
    value = step[key]
    if not isinstance(value, Mapping):
        raise _wrong(step, key, "an object")
    return value


def _list_of(step: Step, key: str, types: tuple[type, ...], what: str) -> list[Any]:
    value = step[key]
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise _wrong(step, key, what)
    if any(not isinstance(part, types) or isinstance(part, bool) for part in value):
        raise _wrong(step, key, what)
    return list(value)


def _missing(step: Step, key: str) -> InputFault:
    return InputFault(f"{step.get('do', 'step')}: '{key}' is missing")


def _wrong(step: Step, key: str, what: str) -> InputFault:
    value = step.get(key)
    shown = repr(value) if isinstance(value, str | int | float | bool | None) else f"a {type(value).__name__}"
    return InputFault(f"{step.get('do', 'step')}: {key}: {what} is needed, not {shown[:60]}")
