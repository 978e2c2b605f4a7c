"""Capacities as written on the command line, as blocks."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from kvpolicy.faults import InputFault
from kvpolicy.units import BYTES, COUNT, DURATION, PERCENT, TOKENS, UnitFault, parse_quantity

MOST_BLOCKS = 1 << 53  # beyond, numbers in JSON are no longer exact
UNITS = ("blocks", "tokens", "percent")
_COUNT = (
    "a capacity is a count, such as 4096, or several, such as 1000,4000, in the unit of --capacity-unit; or a share of "
    "the trace's unique blocks, such as 5%"
)
_NEITHER = {
    BYTES: "a trace does not say how many bytes a block takes",
    DURATION: "a time is no size",
}


@dataclass(frozen=True, slots=True)
class Capacity:
    """A size as it was written. unit: one of `UNITS` where it carries its own (`5%`); None: the one of the call."""

    number: Fraction
    unit: str | None = None


def read_capacities(texts: list[str]) -> list[Capacity]:
    """`["1,2", "5%"]` as capacities, in the order written, each once. Raises InputFault for what is no positive
    number."""
    found: list[Capacity] = []
    for text in (part.strip() for part in ",".join(texts).split(",")):
        try:
            quantity = parse_quantity(text)
        except UnitFault:
            raise InputFault(f"--capacity {text or '(nothing)'}: {_COUNT}") from None
        if quantity.unit in _NEITHER:
            raise InputFault(f"--capacity {text}: {_NEITHER[quantity.unit]}; {_COUNT}")
        plain = quantity.unit == COUNT
        number = (
            Fraction(str(quantity.value)) if quantity.unit == TOKENS else Fraction(text if plain else text[:-1].strip())
        )
        if number <= 0:
            raise InputFault(f"--capacity {text}: a pool needs at least one block; give a number above 0")
        capacity = Capacity(number, "percent" if quantity.unit == PERCENT else None)
        if capacity not in found:
            found.append(capacity)
    return found


def in_blocks(number: Fraction, unit: str, block_size: int, unique_blocks: int) -> int:
    """A capacity in whole blocks, rounded down. Raises InputFault where not even one block is left."""
    share = {"blocks": Fraction(1), "tokens": Fraction(1, block_size), "percent": Fraction(unique_blocks, 100)}[unit]
    blocks = int(number * share)
    if blocks > MOST_BLOCKS:
        raise InputFault(f"--capacity {float(number):g} {unit}: more than {MOST_BLOCKS} blocks; give less")
    if blocks < 1:
        raise InputFault(f"--capacity {float(number):g} {unit}: less than one block of {block_size} tokens; give more")
    return blocks
