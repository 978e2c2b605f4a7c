"""Quantities and their units: read from the language's notation, printed back in it.

A quantity is a number with a unit class; only quantities of one class may be mixed. Durations are seconds,
token counts are tokens, sizes are bytes, percentages are fractions of one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from kvpolicy import words

COUNT, DURATION, TOKENS, BYTES, PERCENT = "count", "duration", "tokens", "bytes", "percent"

_QUANTITY = re.compile(r"(?P<number>-?\d+(?:\.\d+)?)\s*(?P<unit>[A-Za-z%]*)")


class UnitFault(ValueError):
    """A quantity that cannot be read; its message says what to write instead."""


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number of one unit class.

    `value` is in the class's base unit (seconds, tokens, bytes, fraction of one, or a plain count);
    `whole` tells a number written without a decimal point.
    """

    value: float
    unit: str  # COUNT, DURATION, TOKENS, BYTES or PERCENT
    whole: bool = True

    def __str__(self) -> str:
        return format_quantity(self.value, self.unit)


def parse_quantity(text: str) -> Quantity:
    """Read `12k`, `1.5h`, `40%`, `3 GiB`, `7`.

    Raises UnitFault with the units that exist when the unit is unknown, or when `text` is no number.
    """
    match = _QUANTITY.fullmatch(text.strip())
    if match is None:
        raise UnitFault(f"'{text}' is not a quantity; write a number with a unit, such as 30s, 12k or 40%")
    number, unit = match["number"], match["unit"]
    value, whole = float(number), "." not in number
    if unit == "":
        return Quantity(value, COUNT, whole)
    if unit == words.PERCENT_UNIT:
        return Quantity(value / 100.0, PERCENT, whole)
    for table, name in ((words.DURATION_UNITS, DURATION), (words.TOKEN_UNITS, TOKENS), (words.BYTE_UNITS, BYTES)):
        if unit in table:
            return Quantity(_exact(value * table[unit]), name, whole)
    known = ", ".join((*words.DURATION_UNITS, *words.TOKEN_UNITS, *words.BYTE_UNITS, words.PERCENT_UNIT))
    raise UnitFault(f"'{unit}' is not a unit; the units are {known}")


def parse_duration(text: str) -> float:
    """Seconds of a duration such as `90s`; a bare number or another unit class raises UnitFault."""
    quantity = parse_quantity(text)
    if quantity.unit == COUNT:
        number = text.strip()
        raise UnitFault(f"a duration needs a unit; write {number}s, {number}min or {number}h")
    if quantity.unit != DURATION:
        raise UnitFault(f"'{text}' is no duration; write one with ms, s, min, h or d")
    if quantity.value < 0:
        raise UnitFault(f"a duration cannot be negative: '{text}'")
    return quantity.value


def format_duration(seconds: float) -> str:
    """The shortest exact notation: 0.8 -> '800ms', 90 -> '90s', 300 -> '5min', 5400 -> '90min', 3600 -> '1h'."""
    if seconds == 0:
        return "0s"
    for unit in ("d", "h", "min", "s", "ms"):
        scaled = seconds / words.DURATION_UNITS[unit]
        if scaled >= 1 and abs(scaled - round(scaled)) < 1e-9:
            return f"{round(scaled)}{unit}"
    if seconds < 1:
        return f"{_plain(seconds * 1000)}ms"
    return f"{_plain(seconds)}s"


def format_tokens(count: float) -> str:
    """12000 -> '12k', 1500 -> '1500', 2000000 -> '2M'."""
    for unit in ("M", "k"):
        scaled = count / words.TOKEN_UNITS[unit]
        if scaled >= 1 and scaled == round(scaled):
            return f"{round(scaled)}{unit}"
    return _plain(count)


def format_bytes(count: float) -> str:
    """1073741824 -> '1GiB'."""
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        scaled = count / words.BYTE_UNITS[unit]
        if scaled >= 1 and scaled == round(scaled, 3):
            return f"{_plain(scaled)}{unit}"
    return _plain(count)


def format_quantity(value: float, unit: str) -> str:
    """A value of a unit class, in the notation that `parse_quantity` reads back."""
    if unit == DURATION:
        return format_duration(value)
    if unit == TOKENS:
        return format_tokens(value)
    if unit == BYTES:
        return format_bytes(value)
    if unit == PERCENT:
        return f"{_plain(value * 100)}%"
    return _plain(value)


def _exact(value: float) -> float:
    """Undo binary noise: 0.001 * 800 is 0.8, not 0.8000000000000000x."""
    return round(value, 9)


def _plain(value: float) -> str:
    text = f"{value:.9f}".rstrip("0").rstrip(".")
    return text or "0"
