"""Limits: what may be bounded, in which unit, and shares of memory. A pass of `check`."""

from __future__ import annotations

from kvpolicy import units, words
from kvpolicy.language import codes, syntax
from kvpolicy.language.check_conditions import check_selector
from kvpolicy.language.check_names import unknown
from kvpolicy.language.check_values import TIERS, check_rank
from kvpolicy.language.typer import Typer
from kvpolicy.language.types import BYTES, DURATION, INT, PERCENT, PLAIN, TOKENS

# What a limit may bound: ranks and durations are clamped, memory is a quota.
_CLAMPED = {"priority": INT, "ttl": DURATION, "replicas": INT}
_BOUNDED = (*_CLAMPED, "hold", *TIERS)


def check_limits(files: syntax.FileSet, typer: Typer) -> None:
    """Every limit of every file."""
    for member in files.members:
        for limit in member.file.limits:
            check_selector(limit.selector, member.group, typer)
            for bound in limit.bounds:
                _bound(bound, limit, member.group, typer)


def _bound(bound: syntax.Bound, limit: syntax.Limit, group: str, typer: Typer) -> None:
    name = bound.property
    if name not in _BOUNDED:
        if name in words.PROPERTIES:
            message = f"'{name}' has no more or less, so it cannot be limited"
            fix = f"what can be limited: {', '.join(_BOUNDED)}"
            typer.faults.append(codes.UNKNOWN_NAME.at(bound.place, message, fix=fix))
        else:
            typer.faults.append(unknown("limit on", name, bound.place, _BOUNDED))
        return
    if bound.of is not None and bound.of not in TIERS:
        typer.faults.append(unknown("tier", bound.of, bound.place, TIERS))
        return
    if bound.of is not None and name in {"priority", *_CLAMPED}:
        message = f"`of {bound.of}` belongs to a share of memory, and a limit on {name} is none"
        typer.faults.append(codes.UNIT_MISMATCH.at(bound.place, message, fix=f"remove `of {bound.of}`"))
        return
    if name == "priority" and isinstance(bound.value, syntax.Literal) and bound.value.quantity.unit == units.COUNT:
        check_rank(bound.value, typer)
    elif name in _CLAMPED:
        wanted = _CLAMPED[name]
        if wanted == DURATION:
            typer.duration(bound.value, group, f"a limit on {name}")
        else:
            typer.needs(bound.value, group, f"a limit on {name}", wanted, lambda kind: kind in PLAIN)
    else:
        _quota(bound, group, typer)


def _quota(bound: syntax.Bound, group: str, typer: Typer) -> None:
    """`hold: at most 40% of gpu`, `gpu: at most 3GiB`, `hold: at most 10min`."""
    fits = {PERCENT, BYTES, TOKENS} | ({DURATION} if bound.property == "hold" else set())
    what = f"a limit on {bound.property}"
    if not typer.needs(bound.value, group, what, PERCENT, lambda kind: kind in fits):
        return
    literal = bound.value
    if isinstance(literal, syntax.Literal):
        value = literal.quantity.value
        if value < 0 or (literal.quantity.unit == units.PERCENT and value > 1):
            message = f"{what} is from 0% to 100%, and this is {literal.text}"
            typer.faults.append(codes.OUT_OF_RANGE.at(literal.place, message, fix="write a share such as 40%"))
