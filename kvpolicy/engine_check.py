"""What an engine cannot honour of a policy, and what it becomes there: the codes KVP301 to KVP311.

Takes a policy that the other checks have passed and an engine's `Capabilities`; `kvp check --engine` lists the answers.
They are told from the text alone, for values that are the same in every state; what becomes of one request is told by
`lowering`, which uses the same scale. Each question is a function in a visible tuple.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

from kvpolicy import words
from kvpolicy.adapter import DIRECTION_UNKNOWN, LARGER, SMALLER, Capabilities, duration, find_adapter, level
from kvpolicy.directive import DROP, HOLD, NORMAL, Retention, TierRung, Ttl
from kvpolicy.faults import Diagnostic, Note, Place
from kvpolicy.language import codes
from kvpolicy.policy.analysis.view import called, fixed_value
from kvpolicy.policy.compiled import DEFAULT, Rule
from kvpolicy.policy.policy import Policy
from kvpolicy.policy.terms import Constant
from kvpolicy.units import format_duration

_STAND = words.DEFAULT_PRIORITY
_PROTECTED = words.PRIORITY_RANGE[1]  # what `lowering` sends for a protected span
_MOST = 5  # so many places are named in one message


@dataclass(frozen=True, slots=True)
class Asked:
    """A policy and an engine. ranks: every rank that the policy sets to a literal, by the place of its first."""

    policy: Policy
    engine: Capabilities
    ranks: dict[int, Place]

    def setting(self, name: str) -> Iterator[tuple[Rule, object, Place]]:
        """The rules that set a property, its value where it never changes (else None), and its place."""
        for rule in self.policy.rules:
            if name in rule.values:
                yield rule, fixed_value(rule, name), rule.values[name].place


Question = Callable[[Asked], Iterator[Diagnostic]]


def find_engine(name: str) -> Capabilities:
    """What an installed adapter's engine can do, or what a JSON file says. Raises InputFault for neither."""
    if not name.endswith(".json") and not os.path.exists(name):
        return find_adapter(name).capabilities
    from kvpolicy.capabilities_json import read_capabilities
    from kvpolicy.request_json import load_json

    return read_capabilities(load_json(name), name)


def check_engine(policy: Policy, engine: Capabilities) -> tuple[Diagnostic, ...]:
    """Everything of the policy that the engine cannot honour, by place."""
    asked = Asked(policy, engine, _ranks(policy))
    if engine.direction not in (LARGER, SMALLER) or not engine.supported:
        return tuple(_takes_nothing(asked))
    found = [fault for question in QUESTIONS for fault in question(asked)]
    return tuple(sorted(found, key=lambda fault: (fault.place, fault.code)))


def _ranks(policy: Policy) -> dict[int, Place]:
    found: dict[int, Place] = {}
    for rule in policy.rules:
        rank, retention = fixed_value(rule, "priority"), fixed_value(rule, "retention")
        if isinstance(rank, int):
            found.setdefault(rank, rule.values["priority"].place)
        if isinstance(retention, Retention) and retention.mode != NORMAL:
            found.setdefault(0 if retention.mode == DROP else _PROTECTED, rule.values["retention"].place)
    for clamp in policy.clamps:
        if clamp.property == "priority" and isinstance(clamp.term, Constant) and isinstance(clamp.term.value, int):
            found.setdefault(clamp.term.value, clamp.place)
    return found


def _takes_nothing(asked: Asked) -> Iterator[Diagnostic]:
    engine = asked.engine
    place = next((rule.place for rule in asked.policy.rules), None)
    if place is None:
        return
    why = "does not take hints about keeping blocks"
    if engine.direction not in (LARGER, SMALLER):
        why = f"is not known to keep larger levels longer, nor smaller ones ({DIRECTION_UNKNOWN})"
    message = f"{engine.name} {why}, so nothing of this policy reaches it: requests go out as if there were none"
    fix = "state `direction` and `supported` where they are known, or serve with another engine"
    yield codes.ENGINE_TAKES_NOTHING.at(place, message, fix=fix)


def no_rank_below_default(asked: Asked) -> Iterator[Diagnostic]:
    """`priority: 20` and `retention: drop` where untagged blocks stand lowest already."""
    engine = asked.engine
    for rank, place in asked.ranks.items():
        if rank < _STAND and level(rank, engine) == engine.default:
            what = "a drop" if rank == 0 else f"priority {rank}"
            message = (
                f"{engine.name} has no level below its default of {engine.default}: {what} becomes that level, and "
                "those blocks leave no sooner than untagged ones"
            )
            fix = f"raise what is to stay above {_STAND}"
            yield codes.NO_RANK_BELOW_DEFAULT.at(place, message, fix=fix)


def rank_clipped(asked: Asked) -> Iterator[Diagnostic]:
    """Ranks that are one level there, or that lie beyond its ends."""
    engine = asked.engine
    levels: dict[int, list[int]] = {}
    for rank in sorted({*asked.ranks, _STAND}):
        levels.setdefault(level(rank, engine), []).append(rank)
    for value, alike in levels.items():
        told = [rank for rank in alike if rank in asked.ranks and (rank > _STAND or value != engine.default)]
        if len(alike) > 1 and told:
            rank = told[-1]
            shown = " and ".join(str(other) for other in alike)
            message = f"priorities {shown} become one level, {value}, on {engine.name}: it cannot tell them apart"
            notes = tuple(
                Note(asked.ranks[other], f"priority {other} is here")
                for other in islice((r for r in alike if r in asked.ranks and r != rank), _MOST)
            )
            fix = f"its levels go from {engine.lowest} to {engine.highest}; set priorities further apart"
            yield codes.RANK_CLIPPED.at(asked.ranks[rank], message, notes=notes, fix=fix)
        elif len(alike) == 1 and told and _clamped(alike[0], value, engine):
            message = f"priority {alike[0]} becomes level {value} on {engine.name}, which ends there"
            fix = f"its levels go from {engine.lowest} to {engine.highest}"
            yield codes.RANK_CLIPPED.at(asked.ranks[alike[0]], message, fix=fix)


def _clamped(rank: int, value: int, engine: Capabilities) -> bool:
    return engine.default == _STAND and engine.direction == LARGER and value != rank


def lifetimes(asked: Asked) -> Iterator[Diagnostic]:
    """A ttl where none is taken, or where the unit is coarser."""
    engine = asked.engine
    for rule, value, place in asked.setting("ttl"):
        if value is DEFAULT or (isinstance(value, Ttl) and value.seconds == 0):
            continue
        if engine.unit_s is None:
            message = f"{engine.name} takes no lifetimes: what {called(rule)} keeps stays until its memory is needed"
            fix = (
                f"give it a rank that may stay, or end it by an event, such as `on turn_end {{ … priority: {_STAND} }}`"
            )
            yield codes.NO_LIFETIMES.at(place, message, fix=fix)
        elif isinstance(value, Ttl):
            units = duration(value.seconds, engine)
            sent = (units or 0) * engine.unit_s
            if units is not None and abs(sent - value.seconds) > 1e-6:
                message = f"{engine.name} counts lifetimes in {format_duration(engine.unit_s)}: "
                message += f"{format_duration(value.seconds)} becomes {format_duration(sent)}"
                yield codes.LIFETIME_ROUNDED.at(place, message, fix=f"write `ttl: {format_duration(sent)}`")


def steps_merged(asked: Asked) -> Iterator[Diagnostic]:
    """A hold that ends before the rank does: one level and one lifetime can say only both at their most."""
    if asked.engine.ranks_change:
        return
    for rule, value, place in asked.setting("retention"):
        rank, ttl = fixed_value(rule, "priority"), fixed_value(rule, "ttl")
        if not isinstance(value, Retention) or value.mode != HOLD or not isinstance(rank, int) or rank <= _STAND:
            continue
        if isinstance(ttl, Ttl) and ttl.seconds == value.seconds:
            continue
        message = (
            f"{called(rule)} holds for a time and ranks at {rank} after it; {asked.engine.name} takes one level and "
            "one lifetime with a request, so it gets the highest level for the longest time"
        )
        fix = "let the hold do without a rank, or give both one time"
        yield codes.STEPS_MERGED.at(place, message, fix=fix)


def rank_fixed(asked: Asked) -> Iterator[Diagnostic]:
    """Rules that begin or end while nothing of the owner is sent."""
    if asked.engine.ranks_change:
        return
    late = [
        rule
        for rule in asked.policy.rules
        if rule.interval is not None and rule.values.keys() & {"priority", "retention", "ttl"}
    ]
    if late:
        message = (
            f"{asked.engine.name} takes levels with a request only: what {called(late[0])} sets between two requests "
            "reaches the blocks with the next one that uses them"
        )
        if len(late) > 1:
            message += f" (so do {len(late) - 1} more rules)"
        notes = tuple(Note(rule.place, f"{called(rule)} is here") for rule in late[1:_MOST])
        fix = "say in a rule without `on` what is to hold from the start"
        yield codes.RANK_FIXED.at(late[0].place, message, notes=notes, fix=fix)


def no_such_tier(asked: Asked) -> Iterator[Diagnostic]:
    """A rung of a ladder that leads nowhere."""
    engine = asked.engine
    for rule, value, place in asked.setting("tier"):
        rungs = [rung.tier for rung in value if isinstance(rung, TierRung)] if isinstance(value, tuple) else []
        missing = [tier for tier in rungs if tier not in engine.tiers]
        if missing:
            left = [tier for tier in rungs if tier in engine.tiers]
            becomes = f"{', '.join(left)} is left of the ladder" if left else f"they stay on {engine.tiers[0]}"
            has = ", ".join(engine.tiers)
            message = f"{engine.name} has no {' and no '.join(missing)} for the blocks of {called(rule)}: {becomes}"
            yield codes.NO_SUCH_TIER.at(place, message, fix=f"its tiers are {has}; name these")


def no_prefetch(asked: Asked) -> Iterator[Diagnostic]:
    """A prefetch that nobody carries out."""
    for rule, value, place in asked.setting("prefetch") if not asked.engine.prefetch else ():
        if value is not False and value is not DEFAULT:
            message = f"{asked.engine.name} cannot bring blocks up: {called(rule)} prefetches nothing there"
            yield codes.NO_PREFETCH.at(place, message, fix="hold them, or remove `prefetch`")


def one_rank_a_request(asked: Asked) -> Iterator[Diagnostic]:
    """Spans of one prompt at two ranks, where a request has one."""
    ranks = sorted(asked.ranks)
    if asked.engine.granularity == "request" and len(ranks) > 1:
        highest = ranks[-1]
        shown = ", ".join(str(rank) for rank in ranks)
        message = f"{asked.engine.name} takes one level a request: of {shown} the highest counts for a whole prompt"
        yield codes.ONE_RANK_A_REQUEST.at(
            asked.ranks[highest], message, fix="rank whole requests, such as `any[agent = judge] { … }`"
        )


def limit_not_kept(asked: Asked) -> Iterator[Diagnostic]:
    """A bound on memory that nobody keeps there."""
    for quota in asked.policy.quotas if not asked.engine.limits else ():
        what = "is held" if quota.property == "hold" else f"is kept on {quota.property}"
        whose = "" if quota.per is None else f" of each {quota.per}"
        message = f"{asked.engine.name} is told of no limits: its own settings alone bound what{whose} {what}"
        yield codes.LIMIT_NOT_KEPT.at(quota.place, message, fix="bound that where the engine is started, or hold less")


QUESTIONS: tuple[Question, ...] = (
    no_rank_below_default,  # 302
    rank_clipped,  # 303
    lifetimes,  # 304, 305
    steps_merged,  # 306
    rank_fixed,  # 307
    no_such_tier,  # 308
    no_prefetch,  # 309
    one_rank_a_request,  # 310
    limit_not_kept,  # 311
)
