"""Rules: selectors, events, guards and properties. A pass of `check`."""

from __future__ import annotations

from collections.abc import Iterable

from kvpolicy import words
from kvpolicy.language import codes, syntax
from kvpolicy.language.check_conditions import check_event, check_selector
from kvpolicy.language.check_names import twice_in, unknown
from kvpolicy.language.check_values import check_value
from kvpolicy.language.habits import retention_meant
from kvpolicy.language.phrase import phrase
from kvpolicy.language.typer import Typer


def check_rules(files: syntax.FileSet, typer: Typer) -> None:
    """Every rule of every file."""
    for member in files.members:
        intervals: dict[int, syntax.Interval] = {}
        for rule in member.file.rules:
            if rule.interval is not None and id(rule.interval) not in intervals:
                intervals[id(rule.interval)] = rule.interval
                check_interval(rule.interval, member.group, typer)
            check_selector(rule.selector, member.group, typer)
            if rule.guard is not None:
                typer.condition(rule.guard, member.group, "what stands after `when`")
            check_declarations(rule.declarations, member.group, typer)


def check_interval(interval: syntax.Interval, group: str, typer: Typer) -> None:
    """`on A until B at most D`."""
    check_event(interval.start, group, typer)
    if interval.until is not None:
        check_event(interval.until, group, typer)
    if interval.at_most is not None:
        typer.duration(interval.at_most, group, "the bound of an interval")


def check_declarations(declarations: Iterable[syntax.Declaration], group: str, typer: Typer) -> None:
    """The properties of one rule."""
    twice_in(declarations, typer.faults)
    for declaration in declarations:
        if declaration.property in words.PROPERTIES:
            check_value(declaration.property, declaration.value, group, typer)
        elif declaration.property == "hold":
            text = phrase(declaration.value) if isinstance(declaration.value, syntax.Literal) else "DURATION"
            message = "'hold' is a value of `retention`, not a property"
            typer.faults.append(
                codes.UNKNOWN_NAME.at(declaration.place, message, fix=f"write `retention: hold {text}`")
            )
        elif (meant := retention_meant(declaration.property)) is not None:
            message = f"there is no property '{declaration.property}'"
            typer.faults.append(codes.UNKNOWN_NAME.at(declaration.place, message, fix=f"write `{meant}`"))
        else:
            typer.faults.append(unknown("property", declaration.property, declaration.place, words.PROPERTIES))
