"""A request's body as JSON, within twice its size: a long prompt must not be there three times while it is read.

orjson works on a copy of what it is given, so that bytes, copy and result would be there at once. What is long is read
by the standard library instead, from its text alone, and means the same: numbers that fit no 64 bits are floats, what
is no number is refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import isfinite
from typing import Any, Protocol

import orjson

from kvpolicy.service.edge import Refusal

LONG = 256 << 10  # bytes
_LEAST, _MOST = -(1 << 63), 1 << 64


class Holder(Protocol):
    """What has the body until it is read."""

    body: bytes | None


def read(holder: Holder, long: int = LONG) -> Any:
    """The value of a body, which is let go of. Raises ValueError for what is no JSON, with no word of it."""
    data, holder.body = holder.body or b"", None
    if len(data) < long:
        return orjson.loads(data)
    text = data.decode()
    del data
    try:
        return json.loads(text, parse_int=_whole, parse_float=_number, parse_constant=_number)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def read_object(holder: Holder) -> dict[str, Any]:
    """The JSON object that a body is. Raises Refusal for anything else."""
    try:
        body = read(holder)
    except ValueError as fault:
        raise Refusal(400, "invalid_request_error", f"the body is not JSON: {fault}") from None
    if not isinstance(body, dict):
        raise Refusal(400, "invalid_request_error", "the body must be a JSON object")
    return body


def written(body: Mapping[str, Any]) -> bytes:
    """An object's JSON. Raises Refusal for one that can be read, and not be written."""
    try:
        return orjson.dumps(body)
    except orjson.JSONEncodeError:
        said = "the body is nested too deeply, or has text that is no Unicode"
        raise Refusal(400, "invalid_request_error", said) from None


def _whole(digits: str) -> int | float:
    value = int(digits)
    return value if _LEAST <= value < _MOST else _number(digits)


def _number(text: str) -> float:
    value = float(text)
    if not isfinite(value):
        raise ValueError("a number that is too large, or none")
    return value
