"""What a policy reads, and so what may change what it says: worked out once, so that steering does nothing in vain."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kvpolicy import words
from kvpolicy.language.syntax import Hold
from kvpolicy.policy.compiled import Rule
from kvpolicy.policy.policy import Policy
from kvpolicy.policy.steps import timed_rules
from kvpolicy.policy.terms import Read, Term, reads
from kvpolicy.workflow.phases import RUNNING

_TIERED = frozenset({"tier", "prefetch", "admit"})
_MOVED = frozenset({"rank", "score", "status"})  # attributes that events change
# What is answered from how long things took, and how sessions grew.
_TIMES = frozenset(
    {"mean", "p50", "p90", "p95", "count", "eta", "next_use", "return_probability", "reuse_probability", "best_hold"}
)
_STEPS = frozenset({"steps_to_next_use", "next_use", "reuse_probability"})  # what a step changes for the whole run


@dataclass(frozen=True, slots=True)
class Needs:
    """tiers: it says where blocks may lie. events: an event can change what it says. drifts: so can time, apart from
    the claims' own clocks; timed: by its rules. steps, fan_out: so can what others of the run do. hits: it asks what
    others left behind. times: it asks how long things take. density: it asks how worthwhile it is to wait. ahead: it
    wants blocks brought up before their next use. until: events that end a hold. pressed: kinds of spans for which it
    reads the pressure of a tier, and those tiers. fleeting: what it says of a request while that runs
    leaves nothing behind once it says something else."""

    tiers: bool = False
    events: bool = False
    drifts: bool = False
    timed: bool = False
    steps: bool = False
    fan_out: bool = False
    hits: bool = False
    times: bool = False
    density: bool = False
    ahead: bool = False
    until: frozenset[str] = frozenset()
    pressed: frozenset[str] = frozenset()
    pressing: frozenset[str] = frozenset()
    fleeting: bool = False

    def reads_pressure_for(self, kind: str) -> bool:
        """Whether the pressure may change what it says of a span of that kind."""
        return kind in self.pressed or words.ANY_KIND in self.pressed


def needs(policy: Policy | None) -> Needs:
    """What `policy` needs; None needs nothing."""
    if policy is None:
        return Needs()
    asked = {read.function for _, term in _terms(policy) for read in reads(term)}
    pressed = [(kinds, r) for kinds, term in _terms(policy) for r in reads(term) if r.function == "pressure"]
    timed = bool(timed_rules(policy.rules))
    ahead = any("prefetch" in rule.values for rule in policy.rules)
    tiers = any(_TIERED & rule.values.keys() for rule in policy.rules)
    return Needs(
        tiers=tiers,
        events=_reads_state(policy),
        drifts=tiers or timed,
        timed=timed,
        steps=bool(asked & _STEPS),
        fan_out="fan_out" in asked,
        hits="hits" in asked,
        times=ahead or bool(asked & _TIMES),
        density="hit_density" in asked,
        ahead=ahead,
        until=frozenset(_ends_of_holds(policy)),
        pressed=frozenset(kind for kinds, _ in pressed for kind in kinds),
        pressing=frozenset(_tier(read) for _, read in pressed),
        fleeting=not (tiers or pressed or any(_stays(rule) for rule in policy.rules)),
    )


def _terms(policy: Policy) -> Iterator[tuple[tuple[str, ...], Term]]:
    """Every expression of a rule or a limit, with the kinds of spans that it is about."""
    for rule in policy.rules:
        kinds = tuple(m.kind for m in rule.matches)
        if rule.condition is not None:
            yield kinds, rule.condition
        for value in rule.values.values():
            for term in value.terms:
                yield kinds, term
    for clamp in policy.clamps:
        yield tuple(m.kind for m in clamp.matches), clamp.term


def _tier(read: Read) -> str:
    return str(read.argument)


def _reads_state(policy: Policy) -> bool:
    """Whether any rule can say something else after an event."""
    return bool(policy.intervals) or any(
        rule.guard is not None
        or any(not value.fixed for value in rule.values.values())
        or any(name in _MOVED for m in rule.matches for name, _, _ in m.conditions)
        for rule in policy.rules
    )


def _stays(rule: Rule) -> bool:
    """Whether a claim may keep something of what a rule said of a request that ran: a hold that began, or a life that
    ended with the request."""
    life = rule.values.get("for")
    if life is not None and not (life.fixed and rule.interval is None and rule.guard is None):
        return True
    pauses = rule.interval is not None and words.PHASE_AFTER.get(rule.interval.start.name, RUNNING) != RUNNING
    return "retention" in rule.values and not pauses


def _ends_of_holds(policy: Policy) -> Iterator[str]:
    for member in policy.files.members:
        for rule in member.file.rules:
            for declaration in rule.declarations:
                if isinstance(declaration.value, Hold) and declaration.value.until is not None:
                    yield declaration.value.until.name
