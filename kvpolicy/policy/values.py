"""Property values compiled: from `80`, `hold p95(tool.duration) else 5s`, `gpu, cpu after 30s` to what verdicts carry.

A value that has no data at run time (a division by zero that no `else` catches) is as `default`: the rule wins, and
the property stands as if no rule had set it. Computed priorities are rounded, halves upward, and clamped to the
range; durations are never negative, and none is longer than the longest the language knows.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, cast

from kvpolicy import words
from kvpolicy.directive import DROP, HOLD, NORMAL, PIN, Retention, TierRung, Ttl
from kvpolicy.faults import Place
from kvpolicy.language import syntax
from kvpolicy.policy.code import Code, code
from kvpolicy.policy.compiled import DEFAULT, Value
from kvpolicy.policy.model import State, Subject
from kvpolicy.policy.settle import Lets, settle
from kvpolicy.policy.terms import Term, reads
from kvpolicy.policy.timing import watcher
from kvpolicy.units import format_duration

HOLD_UNTIL_BOUND_S = 3600.0  # `hold until EVENT` without `at most`
_WORDS: dict[str, tuple[str, ...]] = {"for": words.LIFETIMES, "place": words.PLACES, "share": words.SHARES}
Run = Callable[[Subject, State], object]


def compile_value(declaration: syntax.Declaration, lets: Lets, group: str) -> Value:
    """The compiled value of one declaration."""
    written = declaration.value
    name, place = declaration.property, declaration.place
    if isinstance(written, syntax.Name) and len(written.path) == 1:
        word = written.path[0]
        if word == "default":
            return _fixed(name, DEFAULT, place)
        if name == "retention" and word in (NORMAL, DROP, PIN):
            return _fixed(name, Retention(word), place)
        if word in _WORDS.get(name, ()):
            return _fixed(name, word, place)
        if name == "replicas" and word == "all":
            return _fixed(name, word, place)
        if name == "tier":
            written = syntax.Ladder((syntax.Rung(word, None, written.place),), written.place)
    run, terms = _computed(name, written, lets, group)
    strained = _strained(name, terms)
    if any(True for term in terms for _ in reads(term)):
        watchers = tuple(found for term in terms if (found := watcher(term)) is not None)
        return Value(name, run, False, terms, place, strained, watchers)
    nothing = cast("Subject", None), cast("State", None)
    return Value(name, _always(run(*nothing)), True, terms, place, _always(strained(*nothing)))


def _fixed(name: str, value: object, place: Place) -> Value:
    return Value(name, _always(value), True, (), place, _always(None))


def _strained(name: str, terms: tuple[Term, ...]) -> Callable[[Subject, State], str | None]:
    """Tells whether a computed rank lay outside its range, or a duration was longer than the longest."""
    codes = tuple(code(t) for t in terms)
    low, high = words.PRIORITY_RANGE

    def notice(subject: Subject, state: State) -> str | None:
        for run in codes:
            found = run(subject, state)
            if found is None or isinstance(found, bool | str):
                continue
            if name == "priority" and not low <= found <= high:
                return f"a computed priority of {found:g} counts as {rank(found)}"
            if name in ("retention", "ttl", "tier", "prefetch") and found > words.LONGEST_DURATION_S:
                return f"a duration longer than {format_duration(words.LONGEST_DURATION_S)} counts as that"
        return None

    return notice


def _always(value: Any) -> Callable[[Subject, State], Any]:
    return lambda subject, state: value


def _computed(name: str, written: syntax.PropertyValue, lets: Lets, group: str) -> tuple[Run, tuple[Term, ...]]:
    if isinstance(written, syntax.Hold):
        return _hold(written, lets, group)
    if isinstance(written, syntax.Ladder):
        return _ladder(written, lets, group)
    if isinstance(written, syntax.Lasting):
        term = settle(written.duration, lets, group)
        return _ttl(code(term), written.fixed), (term,)
    term = settle(written, lets, group)
    run = code(term)
    if name == "priority":
        return _priority(run), (term,)
    if name == "ttl":
        return _ttl(run, fixed=False), (term,)
    if name == "replicas":
        return _replicas(run), (term,)
    return _condition(run, timed=name == "prefetch"), (term,)


def rank(value: float) -> int:
    """A computed priority as a rank: rounded, halves upward, and clamped to 0…100; `never` is the upper end."""
    low, high = words.PRIORITY_RANGE
    if value <= low:
        return low
    return high if value >= high else math.floor(value + 0.5)


def seconds(value: float) -> float:
    """A computed duration: not negative, and capped at the longest."""
    return min(max(0.0, float(value)), words.LONGEST_DURATION_S)


def _priority(run: Code) -> Run:
    def value(subject: Subject, state: State) -> object:
        found = run(subject, state)
        return DEFAULT if found is None else rank(found)  # type: ignore[arg-type]

    return value


def _ttl(run: Code, fixed: bool) -> Run:
    def value(subject: Subject, state: State) -> object:
        found = run(subject, state)
        return DEFAULT if found is None else Ttl(seconds(found), fixed)  # type: ignore[arg-type]

    return value


def _replicas(run: Code) -> Run:
    def value(subject: Subject, state: State) -> object:
        found = run(subject, state)
        if found is None:
            return DEFAULT
        return "all" if found == math.inf else max(0, math.floor(found + 0.5))  # type: ignore[operator]

    return value


def _condition(run: Code, *, timed: bool) -> Run:
    """`admit` and `prefetch`: a condition; for `prefetch` also a duration before the expected next use."""

    def value(subject: Subject, state: State) -> object:
        found = run(subject, state)
        if found is None:
            return DEFAULT
        return seconds(found) if timed and not isinstance(found, bool) else bool(found)  # type: ignore[arg-type]

    return value


def _hold(written: syntax.Hold, lets: Lets, group: str) -> tuple[Run, tuple[Term, ...]]:
    bound = None if written.at_most is None else settle(written.at_most, lets, group)
    limit = None if bound is None else code(bound)
    if written.until is not None:
        event = written.until.name

        def until(subject: Subject, state: State) -> object:
            most = None if limit is None else limit(subject, state)
            return Retention(HOLD, None, event, HOLD_UNTIL_BOUND_S if most is None else seconds(most))  # type: ignore[arg-type]

        return until, () if bound is None else (bound,)
    assert written.duration is not None
    term = settle(written.duration, lets, group)
    run = code(term)

    def hold(subject: Subject, state: State) -> object:
        found = run(subject, state)
        if found is None:
            return DEFAULT
        lasts = seconds(found)  # type: ignore[arg-type]
        most = None if limit is None else limit(subject, state)
        return Retention(HOLD, lasts if most is None else min(lasts, seconds(most)))  # type: ignore[arg-type]

    return hold, (term,) if bound is None else (term, bound)


def _ladder(written: syntax.Ladder, lets: Lets, group: str) -> tuple[Run, tuple[Term, ...]]:
    terms = tuple(None if r.after is None else settle(r.after, lets, group) for r in written.rungs)
    steps = tuple(
        (words.TIER_ALIASES.get(r.tier, r.tier), None if t is None else code(t))
        for r, t in zip(written.rungs, terms, strict=True)
    )

    def ladder(subject: Subject, state: State) -> object:
        found = []
        for tier, after in steps:
            idle = 0.0 if after is None else after(subject, state)
            if idle is None:
                return DEFAULT
            found.append(TierRung(tier, seconds(idle)))  # type: ignore[arg-type]
        return tuple(found)

    return ladder, tuple(t for t in terms if t is not None)
