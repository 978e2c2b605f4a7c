"""Which spans a selector takes, and whether one takes no other than another does: by trying every value that could
matter. Part of the slow and obvious `reference`."""

from __future__ import annotations

import itertools

from kvpolicy.language import syntax

KINDS = ("system", "tools", "document", "turn", "tool_result", "scratchpad", "branch", "output")
NUMBERS = ("depth", "turn", "tokens", "rank", "score")
ABSENT = object()
COMPARE = {
    "=": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


def constant(value: syntax.Expression, attribute: str):
    if isinstance(value, syntax.Literal):
        return value.quantity.value
    if isinstance(value, syntax.Text):
        return value.value
    word = value.path[0]
    return {"yes": True, "no": False}[word] if attribute == "last_step" else word


def meets(condition: syntax.Condition, attributes: dict) -> bool:
    if condition.attribute not in attributes:
        return False
    value = attributes[condition.attribute]
    wanted = [constant(v, condition.attribute) for v in condition.values]
    if condition.operator == "in":
        return value in wanted
    return COMPARE[condition.operator](value, wanted[0])


def selects(match: syntax.Match, kind: str, attributes: dict) -> bool:
    return match.kind in (kind, "any") and all(meets(c, attributes) for c in match.conditions)


def kinds(match: syntax.Match) -> tuple[str, ...]:
    return KINDS if match.kind == "any" else (match.kind,)


def tries(conditions: list[syntax.Condition]):
    """Every combination of attribute values, absence included, that these conditions could tell apart."""
    by_attribute: dict[str, list] = {}
    for condition in conditions:
        row = by_attribute.setdefault(condition.attribute, [ABSENT])
        for value in condition.values:
            known = constant(value, condition.attribute)
            row += [known, known + 1, known - 1] if condition.attribute in NUMBERS else [known]
            row += [known + 0.5, known - 0.5] if condition.attribute == "score" else []
    for name, row in by_attribute.items():
        if name == "last_step":
            row += [True, False]
        elif name == "status":
            row += ["running", "done", "pruned"]
        elif name not in NUMBERS:
            row += ["no such value"]
    rows = [list(dict.fromkeys(r)) for r in by_attribute.values()]
    for values in itertools.product(*rows):
        yield {n: v for n, v in zip(by_attribute, values, strict=True) if v is not ABSENT}


def conditions_within(narrow, wide) -> bool:
    return all(
        all(meets(c, attributes) for c in wide)
        for attributes in tries([*narrow, *wide])
        if all(meets(c, attributes) for c in narrow)
    )


def match_within(match: syntax.Match, kind: str, wide: syntax.Match) -> bool:
    return wide.kind in (kind, "any") and conditions_within(match.conditions, wide.conditions)


def event_within(a: syntax.Event, b: syntax.Event) -> bool:
    return a.name == b.name and conditions_within(a.conditions, b.conditions)


def interval_within(a: syntax.Interval | None, b: syntax.Interval | None) -> bool:
    if b is None:
        return True
    if a is None or not event_within(a.start, b.start):
        return False
    if b.until is None:
        return True
    return a.until is not None and event_within(b.until, a.until)
