"""Learned times as a plain document, so that they survive a restart: written and read.

A document is JSON, one a tenant: for every tool and node, for all tools, all steps and humans, the durations by the way
they ended (exact ones as pairs of seconds and weight, sketched ones by the number of their bin), for the classes of
pauses their returns and seconds at risk, and how far they are believed, for sessions the sums that tell of their
length. Loading what was exported gives the same answers, but for pauses that were open: those belong to owners, not to
what was learned. What is read is checked; one of another version, or one that does not fit, is refused as a whole.
Called by `learned`, and by the package `store` for what others have kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kvpolicy.faults import InputFault
from kvpolicy.workflow.classes import MOST_TOOLS, Classes, Names
from kvpolicy.workflow.durations import FADES_AT, FEW, HALF_LIFE_S, WAYS, Kept, Series
from kvpolicy.workflow.events import LATEST_S
from kvpolicy.workflow.hazard import FADES_AT as PAUSES_FADE_AT
from kvpolicy.workflow.hazard import STEPS, Hazard
from kvpolicy.workflow.hold import Memoryfulness
from kvpolicy.workflow.learned_times import MOST_NAMES, LearnedTimes
from kvpolicy.workflow.sample import LEAST, Sample
from kvpolicy.workflow.shown import shown
from kvpolicy.workflow.sketch import Sketch
from kvpolicy.workflow.trust import MOST_LEAD

VERSION = 3
_SINGLE = ("tools", "human", "step")
_NAMED = ("tool", "node")
_MOST_BINS = 1 << 20
_DEPTH = 5  # names of a class of pauses
_MOST_CLASSES = 1 << 14  # rows; coarse classes are 1,732 at most
# What no document of ours exceeds, and what can be reckoned with: neither overflows nor becomes 0.
_LONGEST_S, _MOST_AT_RISK_S, _MOST_TOLD, _MOST_SUM = 2.0 * LATEST_S, 1e15, 1 << 53, 1e60


def write(tenant: str, times: LearnedTimes, memory: Memoryfulness, classes: Classes) -> dict[str, Any]:
    """The document of one tenant."""
    return {
        "version": VERSION,
        "tenant": tenant,
        **{name: {key: _row(s) for key, s in getattr(times, name).items() if s.weight} for name in _NAMED},
        **{name: _row(getattr(times, name)) for name in _SINGLE},
        "sessions": memory.state(),
        "pauses": [_class_row(*row) for row in classes.rows()],
        "believed": classes.trust.lead,
    }


def read(document: Mapping[str, Any], half_life: float = HALF_LIFE_S) -> tuple[LearnedTimes, Memoryfulness, Classes]:
    """What a document says was learned. Raises InputFault for one that does not fit."""
    times = times_of(document, half_life)
    sums = document.get("sessions")
    if not isinstance(sums, list) or len(sums) != len(Memoryfulness().state()):
        raise InputFault("learned times: sessions are no list of six sums")
    memory = Memoryfulness.of([_number(value, "sessions", most=_MOST_SUM) for value in sums])
    return times, memory, classes_of(document)


def times_of(document: Mapping[str, Any], half_life: float = HALF_LIFE_S) -> LearnedTimes:
    """The learned times of a document. Raises InputFault for one that does not fit."""
    if not isinstance(document, Mapping):
        raise InputFault("learned times are a JSON object")
    if document.get("version") != VERSION:
        raise InputFault(f"learned times of version {shown(document.get('version'))}; this version reads {VERSION}")
    times = LearnedTimes(half_life)
    for name in _NAMED:
        rows, made = document.get(name), getattr(times, name)
        if not isinstance(rows, dict) or len(rows) > MOST_NAMES:
            raise InputFault(f"learned times: {name} is no object of at most {MOST_NAMES} names")
        for key, row in rows.items():
            if not isinstance(key, str):
                raise InputFault(f"learned times: {name}: {shown(key)} is no name")
            made[key] = _series(row, f"{name} {shown(key)}", half_life)
    for name in _SINGLE:
        setattr(times, name, _series(document.get(name), name, half_life))
    return times


def classes_of(document: Mapping[str, Any]) -> Classes:
    """The classes of pauses of a document. Raises InputFault for one that does not fit."""
    rows = document.get("pauses")
    if not isinstance(rows, list) or len(rows) > _MOST_CLASSES:
        raise InputFault(f"learned times: pauses are no list of at most {_MOST_CLASSES} classes")
    classes, fine = Classes(), 0
    classes.trust.lead = _number(document.get("believed"), "pauses, believed", -MOST_LEAD, MOST_LEAD)
    for row in rows:
        names, tools = (row.get(key) if isinstance(row, dict) else None for key in ("class", "tools"))
        if not isinstance(names, list) or not isinstance(tools, list) or len(names) > _DEPTH:
            raise InputFault("learned times: a row of pauses has no class, or no tools")
        if not all(map(_is_name, (*names, *tools))):
            raise InputFault("learned times: a class of pauses has a name that is none")
        fine += bool(tools)
        if fine > MOST_TOOLS:
            raise InputFault(f"learned times: more than {MOST_TOOLS} classes of pauses with tools")
        returns = _numbered(row.get("returns"), "pauses, returns", range(STEPS), PAUSES_FADE_AT)
        at_risk = _numbered(row.get("at_risk"), "pauses, at_risk", range(STEPS), _MOST_AT_RISK_S)
        told = _told(row.get("told"), "pauses, told")
        hazard = classes.named(names, tuple(tools))
        hazard.take(_number(row.get("count"), "pauses, count", most=PAUSES_FADE_AT), told, returns, at_risk)
    return classes


# --- rows -----------------------------------------------------------------------------------------------------------


def _class_row(names: Names, tools: Names, hazard: Hazard) -> dict[str, Any]:
    count, told, returns, at_risk = hazard.state()
    return {
        "class": list(names),
        "tools": list(tools),
        "count": count,
        "told": told,
        "returns": {str(k): value for k, value in returns.items()},
        "at_risk": {str(k): max(0.0, value) for k, value in at_risk.items()},
    }


def _row(series: Series) -> dict[str, Any]:
    kept, began, halved = series.state()
    return {"began": began, "halved": halved, "exact": series.exact, **{way: _kept_row(kept[way]) for way in WAYS}}


def _kept_row(kept: Kept) -> Any:
    if isinstance(kept, Sample):
        return [[seconds, weight] for seconds, weight in zip(*kept.rows(), strict=True)]
    none, bins = kept.state()
    return {"none": none, "bins": {str(key): weight for key, weight in bins.items()}}


def _series(row: object, what: str, half_life: float) -> Series:
    if not isinstance(row, dict) or not isinstance(row.get("exact"), bool):
        raise InputFault(f"learned times of {what} are missing")
    began, halved = row.get("began"), row.get("halved")
    if began is not None:
        began = _number(began, what, least=-_LONGEST_S)
    halved = _told(halved, f"{what}, halved")
    read: Callable[[object, str], Kept] = _sample if row["exact"] else _sketch
    kept = {way: read(row.get(way), f"{what}, {way}") for way in WAYS}
    if row["exact"] and sum(map(len, (row[way] for way in WAYS))) > FEW:
        raise InputFault(f"learned times of {what}: more than {FEW} exact durations")
    return Series.of(kept, began, halved, half_life)


def _sample(rows: object, what: str) -> Sample:
    if not isinstance(rows, list):
        raise InputFault(f"learned times of {what} are no list of durations")
    sample = Sample()
    for row in rows:
        if not isinstance(row, list) or len(row) != 2:
            raise InputFault(f"learned times of {what}: {shown(row)} is no pair of a duration and its weight")
        sample.add(_number(row[0], what), _number(row[1], f"{what}, weight", LEAST, 1.0))
    return sample


def _sketch(row: object, what: str) -> Sketch:
    if not isinstance(row, dict):
        raise InputFault(f"learned times of {what} are no sketch of durations")
    bins = _numbered(row.get("bins"), what, range(-_MOST_BINS, _MOST_BINS), FADES_AT)
    none = _number(row.get("none"), what, most=FADES_AT)
    if none + sum(bins.values()) > FADES_AT:
        raise InputFault(f"learned times of {what}: durations that weigh more than {FADES_AT:.0f}")
    return Sketch.of(none, {key: weight for key, weight in bins.items() if weight})


def _numbered(row: object, what: str, among: range, most: float) -> dict[int, float]:
    """Numbers by a whole number, which JSON writes as a text."""
    if not isinstance(row, dict):
        raise InputFault(f"learned times of {what} are no object of numbers")
    made = {}
    for key, value in row.items():
        digits = key.removeprefix("-") if isinstance(key, str) else ""
        if not digits.isdecimal() or len(digits) > len(str(_MOST_BINS)) or int(key) not in among:
            raise InputFault(f"learned times of {what}: {shown(key)} is no number of a step or bin")
        made[int(key)] = _number(value, what, most=most)
    return made


def _is_name(value: object) -> bool:
    """Whether a class may be called so."""
    return value is None or isinstance(value, str) or (isinstance(value, int) and abs(value) <= _MOST_TOLD)


def _told(value: object, what: str) -> int:
    """How often something was done."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MOST_TOLD:
        raise InputFault(f"learned times of {what}: {shown(value)} is no number of times")
    return value


def _number(value: object, what: str, least: float = 0.0, most: float = _LONGEST_S) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise InputFault(f"learned times of {what}: {shown(value)} is no number from {least:g} to {most:g}")
    return float(value)
