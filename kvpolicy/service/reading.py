"""A request's body as JSON, within twice its size: a long prompt must not be there three times while it is read.

orjson works on a copy of what it is given, so that bytes, copy and result would be there at once. What is long is read
by the standard library instead, from its text alone, and means the same: numbers that fit no 64 bits are floats, what
is no number is refused. It is read in a thread, so that other requests go on. Its text takes a byte a letter, too: as
Python keeps text, one letter that needs four would make all of it four times as long.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from json.encoder import encode_basestring_ascii
from math import isfinite
from typing import Any, Protocol

import orjson

from kvpolicy.service.aside import run
from kvpolicy.service.edge import Refusal

LONG = 256 << 10  # bytes
_LEAST, _MOST = -(1 << 63), 1 << 64
_SURE = 18  # characters of a whole number that fits 64 bits whatever they are
_FAR = re.compile(rb"[\x80-\xff]+")  # letters beyond ASCII
_PIECE = 64 << 10  # bytes that are looked through in one step; others have their turn then
# First bytes of letters beyond ASCII, and how many bytes more their escapes take.
_MORE = ((0xC2, 0xE0, 4), (0xE0, 0xF0, 3), (0xF0, 0x100, 8))
# White space behind it: glibc gives back at once what is larger than all that it gave back before, and the body, which
# is let go of first, was as long. A smaller text would leave a hole among what is kept.
_PAD = 16 << 10
_SELDOM = 8  # a letter in so many bytes, or fewer; written as an escape it takes up to eight more


class Holder(Protocol):
    """What has the body until it is read."""

    body: bytes | None


def read(holder: Holder, long: int = LONG) -> Any:
    """The value of a body, which is let go of. Raises ValueError for what is no JSON, with no word of it."""
    data, holder.body = holder.body or b"", None
    if len(data) < long:
        return orjson.loads(data)
    narrow = _narrow(data)
    del data
    text = narrow.decode()
    del narrow
    try:
        return json.loads(text, object_hook=_turn, parse_int=_whole, parse_float=_number, parse_constant=_number)
    except RecursionError:
        raise ValueError("nested too deeply") from None


@dataclass(slots=True)
class Kept:
    """A body, for who has none of its own that holds it."""

    body: bytes | None


async def read_value(data: bytes) -> Any:
    """The value of a body; a long one's in a thread. Raises ValueError for what is no JSON, or no text that can be
    written."""
    value = await run(len(data) >= LONG, read, Kept(data))
    if len(data) >= LONG and await run(True, _has_surrogates, value):
        raise ValueError("text that is no Unicode")
    return value


async def read_object(holder: Holder) -> dict[str, Any]:
    """The JSON object that a body is. Raises Refusal for anything else."""
    return await run(len(holder.body or b"") >= LONG, _object, holder)


def _object(holder: Holder) -> dict[str, Any]:
    try:
        body = read(holder)
    except ValueError as fault:
        raise Refusal(400, "invalid_request_error", f"the body is not JSON: {fault}") from None
    if not isinstance(body, dict):
        raise Refusal(400, "invalid_request_error", "the body must be a JSON object")
    return body


def _has_surrogates(value: Any) -> bool:
    """Whether a text of it is none that can be written: what is short is read by a reader that takes no such."""
    left = [value]
    while left:
        each = left.pop()
        if isinstance(each, str):
            try:
                each.encode()
            except UnicodeEncodeError:
                return True
        elif isinstance(each, dict):
            left += each.keys()
            left += each.values()
        elif isinstance(each, list):
            left += each
    return False


def written(body: Mapping[str, Any]) -> bytes:
    """An object's JSON. Raises Refusal for one that can be read, and not be written."""
    try:
        return orjson.dumps(body)
    except orjson.JSONEncodeError:
        said = "the body is nested too deeply, or has text that is no Unicode"
        raise Refusal(400, "invalid_request_error", said) from None


def _turn(value: dict[str, Any]) -> dict[str, Any]:
    """Each object that is read. Nothing is done with it: a call of Python's own is where other threads have their turn,
    and the reader has none."""
    return value


def _narrow(data: bytes) -> bytes | bytearray:
    """The same JSON, letters beyond ASCII as escapes where they are rare: so its text takes a byte a letter. Raises
    ValueError for what is no UTF-8."""
    if data.isascii():
        return data
    found = [len(data.translate(None, _all_but(first, last))) for first, last, _ in _MORE]
    if sum(found) * _SELDOM > len(data):
        return data
    size = len(data) + sum(number * more for number, (_, _, more) in zip(found, _MORE, strict=True))
    made = bytearray(b" ") * (size + _PAD)  # at once: one that grows is copied as it does
    whole, end, to = memoryview(data), 0, 0
    while end < len(data):
        at, end = end, min(end + _PIECE, len(data))
        while end < len(data) and data[end] >= 0x80:
            end += 1
        for letters in () if data[at:end].isascii() else _FAR.finditer(data, at, end):
            if _is_escaped(data, letters.start()):
                raise ValueError("an escape of nothing")
            for part in (whole[at : letters.start()], encode_basestring_ascii(letters[0].decode())[1:-1].encode()):
                made[to : to + len(part)] = part
                to += len(part)
            at = letters.end()
        made[to : to + end - at] = whole[at:end]
        to += end - at
    return made


def _all_but(first: int, last: int) -> bytes:
    return bytes([*range(first), *range(last, 0x100)])


def _is_escaped(data: bytes, place: int) -> bool:
    """Whether a backslash before it means what stands there.

    # INVARIANT: what escapes a letter beyond ASCII is no JSON, and stays none where that letter becomes an escape.
    """
    start = place
    while start and data[start - 1] == 0x5C:
        start -= 1
    return (place - start) % 2 == 1


def _whole(digits: str) -> int | float:
    value = int(digits)
    if len(digits) <= _SURE:
        return value
    return value if _LEAST <= value < _MOST else _number(digits)


def _number(text: str) -> float:
    value = float(text)
    if not isfinite(value):
        raise ValueError("a number that is too large, or none")
    return value
