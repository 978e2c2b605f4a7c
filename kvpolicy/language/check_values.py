"""What a property may be given: the value of every declaration. Part of `check_rules` and of `check_tests`."""

from __future__ import annotations

from kvpolicy import units, words
from kvpolicy.faults import Place
from kvpolicy.language import codes, syntax
from kvpolicy.language.build_expressions import BROKEN
from kvpolicy.language.check_conditions import check_event
from kvpolicy.language.check_names import unknown
from kvpolicy.language.phrase import phrase
from kvpolicy.language.typer import Typer
from kvpolicy.language.types import DURATION, INT, NUMBER, PLAIN, spoken

_WORDS: dict[str, tuple[str, ...]] = {
    "retention": ("normal", "drop", "pin"),
    "for": words.LIFETIMES,
    "place": words.PLACES,
    "share": words.SHARES,
}
TIERS = (*words.TIERS, *words.TIER_ALIASES)


def check_value(name: str, value: syntax.PropertyValue, group: str, typer: Typer) -> None:
    """The value of one property."""
    word = value.path[0] if isinstance(value, syntax.Name) and len(value.path) == 1 else None
    if word == "default" or (isinstance(value, syntax.Name) and value.path == BROKEN):
        return
    if isinstance(value, syntax.Hold | syntax.Lasting | syntax.Ladder):
        _shaped(name, value, group, typer)
    elif name in _WORDS:
        _word(name, value, group, typer)
    elif name == "priority":
        _priority(value, group, typer)
    elif name == "replicas":
        if word != "all":
            _replicas(value, group, typer)
    elif name == "prefetch":
        _prefetch(value, group, typer)
    elif name == "admit":
        typer.condition(value, group, "`admit`")
    else:
        _odd(value.place, f"this is no value of `{name}`", "write a ladder, such as `gpu, cpu after 30s`", typer)


def _shaped(name: str, value: syntax.Hold | syntax.Lasting | syntax.Ladder, group: str, typer: Typer) -> None:
    """A value whose shape belongs to one property."""
    match name, value:
        case "retention", syntax.Hold():
            _hold(value, group, typer)
        case "ttl", syntax.Lasting():
            typer.duration(value.duration, group, "a ttl")
        case "tier", syntax.Ladder():
            _ladder(value, group, typer)
        case _, syntax.Hold():
            _odd(value.place, "`hold` is a value of `retention`", "write `retention: hold …`", typer)
        case _, syntax.Lasting():
            _odd(value.place, "`fixed` belongs to `ttl`", "remove `fixed`", typer)
        case _:
            message = f"a list is a value of `tier`, not of `{name}`"
            _odd(value.place, message, f"write one value after `{name}:`", typer)


def _odd(place: Place, message: str, fix: str | None, typer: Typer) -> None:
    typer.faults.append(codes.UNIT_MISMATCH.at(place, message, fix=fix))


def _hold(value: syntax.Hold, group: str, typer: Typer) -> None:
    if value.duration is not None:
        typer.duration(value.duration, group, "a hold")
    if value.until is not None:
        check_event(value.until, group, typer)
    if value.at_most is not None:
        typer.duration(value.at_most, group, "the bound of a hold")


def _word(name: str, value: syntax.Expression, group: str, typer: Typer) -> None:
    """A property that takes one word of a list."""
    table = _WORDS[name]
    if isinstance(value, syntax.Name):
        written = ".".join(value.path)
        if written in table or value.path[-1] in typer.scope.lost:
            return
        if name == "retention" and typer.scope.find_let(value.path, group) is not None:
            _odd(value.place, f"'{written}' is no retention", f"write `hold {written}`", typer)
            return
        known = (*table, "hold", "default") if name == "retention" else (*table, "default")
        typer.faults.append(unknown(f"value of `{name}` called", written, value.place, known))
        return
    found = typer.infer(value, group)
    fix = f"write one of {', '.join(table)}"
    if name == "retention" and found.kind == DURATION:
        fix = f"write `hold {phrase(value)}`"
    if found.kind != "?":
        _odd(value.place, f"`{name}` takes a word, not {spoken(found.kind)}", fix, typer)


def _priority(value: syntax.Expression, group: str, typer: Typer) -> None:
    if isinstance(value, syntax.Literal) and value.quantity.unit == units.COUNT:
        check_rank(value, typer)
        return
    if isinstance(value, syntax.Name) and typer.scope.find_let(value.path, group) is None:
        if value.path[-1] not in typer.scope.lost:
            message = f"'{'.'.join(value.path)}' is no priority"
            fix = "write a whole number from 0 to 100; 35 is where untagged blocks stand"
            typer.faults.append(codes.UNKNOWN_NAME.at(value.place, message, fix=fix))
        return
    typer.needs(value, group, "a priority", INT, lambda kind: kind in PLAIN)


def check_rank(value: syntax.Literal, typer: Typer) -> None:
    """A rank written as a number is whole and within 0…100."""
    low, high = words.PRIORITY_RANGE
    number = value.quantity.value
    if not low <= number <= high:
        nearest = low if number < low else high
        message = f"a priority is from {low} to {high}, and this is {value.text}"
        typer.faults.append(codes.OUT_OF_RANGE.at(value.place, message, fix=f"write {nearest}"))
    elif number != int(number) or not value.quantity.whole:
        message = f"a priority is a whole number, and this is {value.text}"
        fix = f"write {int(number)}" if number == int(number) else f"write {int(number)} or {int(number) + 1}"
        typer.faults.append(codes.OUT_OF_RANGE.at(value.place, message, fix=fix))


def _replicas(value: syntax.Expression, group: str, typer: Typer) -> None:
    if isinstance(value, syntax.Literal) and value.quantity.unit == units.COUNT:
        if value.quantity.value < 1 or not value.quantity.whole:
            message = f"a span has at least one replica, and whole ones; this is {value.text}"
            typer.faults.append(codes.OUT_OF_RANGE.at(value.place, message, fix="write 1, a larger number, or all"))
        return
    typer.needs(value, group, "a number of replicas", INT, lambda kind: kind in {INT, NUMBER})


def _prefetch(value: syntax.Expression, group: str, typer: Typer) -> None:
    found = typer.solid(value, group)
    if found.kind == DURATION:
        if isinstance(value, syntax.Literal) and value.quantity.value < 0:
            message = f"a time before the next use cannot be negative: {value.text}"
            typer.faults.append(codes.OUT_OF_RANGE.at(value.place, message, fix=f"write {value.text.lstrip('-')}"))
    elif found.kind not in {"bool", "?"}:
        message = f"`prefetch` is a condition or a duration, and this is {spoken(found.kind)}"
        _odd(value.place, message, "write `yes`, a comparison, or a time such as 5s", typer)


def _ladder(value: syntax.Ladder, group: str, typer: Typer) -> None:
    """Tiers from high to low, each but the first with the idle time at which it begins."""
    before = -1
    idle = 0.0
    for number, rung in enumerate(value.rungs):
        if not rung.tier:
            return
        if rung.tier not in TIERS:
            typer.faults.append(unknown("tier", rung.tier, rung.place, TIERS))
            return
        rank = words.TIERS.index(words.TIER_ALIASES.get(rung.tier, rung.tier))
        if rank <= before:
            message = f"'{rung.tier}' does not lie below the tier in front of it"
            fix = f"write the tiers from high to low: {', '.join(words.TIERS)}"
            typer.faults.append(codes.OUT_OF_RANGE.at(rung.place, message, fix=fix))
            return
        before = rank
        if rung.after is not None:
            if number == 0:
                message = f"the first tier of a ladder counts from the start, so '{rung.tier}' has no `after`"
                front = value.rungs[1].tier if len(value.rungs) > 1 and value.rungs[1].after is None else None
                after = phrase(rung.after)
                fix = f"write `{rung.tier}`, or a tier in front: `gpu, {rung.tier} after {after}`"
                if front is not None or rung.tier in {"gpu", "hbm"}:
                    fix = f"write the time behind the tier that follows: `{rung.tier}, {front or 'cpu'} after {after}`"
                typer.faults.append(codes.UNIT_MISMATCH.at(rung.place, message, fix=fix))
                return
            typer.duration(rung.after, group, "an idle time")
            if isinstance(rung.after, syntax.Literal) and rung.after.quantity.unit == units.DURATION:
                if 0 <= rung.after.quantity.value < idle:
                    message = f"'{rung.tier}' would begin before the tier in front of it"
                    typer.faults.append(codes.OUT_OF_RANGE.at(rung.after.place, message, fix="let the times grow"))
                idle = rung.after.quantity.value
        elif number > 0:
            message = f"it is not said after which idle time '{rung.tier}' begins"
            fix = f"write `{rung.tier} after 30s`"
            typer.faults.append(codes.UNIT_MISMATCH.at(rung.place, message, fix=fix))
            return
