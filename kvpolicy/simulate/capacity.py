"""Capacities as written on the command line, as blocks."""

from __future__ import annotations

from fractions import Fraction

from kvpolicy.faults import InputFault
from kvpolicy.units import COUNT, PERCENT, TOKENS, UnitFault, parse_quantity

MOST_BLOCKS = 1 << 53  # beyond, numbers in JSON are no longer exact
_COUNT = "a capacity is a count, such as 4096, or several, such as 1000,4000; its unit is --capacity-unit"
UNITS = ("blocks", "tokens", "percent")


def read_capacities(texts: list[str]) -> list[Fraction]:
    """`["1,2", "5"]` as numbers, in the order written, each once. Raises InputFault for what is no positive number."""
    numbers: list[Fraction] = []
    for text in ",".join(texts).split(","):
        try:
            quantity = parse_quantity(text)
        except UnitFault:
            raise InputFault(f"--capacity {text.strip() or '(nothing)'}: {_COUNT}") from None
        if quantity.unit not in (COUNT, TOKENS, PERCENT):
            raise InputFault(f"--capacity {text.strip()}: {_COUNT}")
        value = Fraction(text.strip().rstrip("%").strip()) if quantity.unit != TOKENS else Fraction(str(quantity.value))
        if value <= 0:
            raise InputFault(f"--capacity {text}: a pool needs at least one block; give a number above 0")
        if value not in numbers:
            numbers.append(value)
    return numbers


def in_blocks(number: Fraction, unit: str, block_size: int, unique_blocks: int) -> int:
    """A capacity in whole blocks, rounded down. Raises InputFault where not even one block is left."""
    share = {"blocks": Fraction(1), "tokens": Fraction(1, block_size), "percent": Fraction(unique_blocks, 100)}[unit]
    blocks = int(number * share)
    if blocks > MOST_BLOCKS:
        raise InputFault(f"--capacity {float(number):g} {unit}: more than {MOST_BLOCKS} blocks; give less")
    if blocks < 1:
        raise InputFault(f"--capacity {float(number):g} {unit}: less than one block of {block_size} tokens; give more")
    return blocks
