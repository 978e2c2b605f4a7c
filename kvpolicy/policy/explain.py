"""Why a span gets what it gets: per property the value, the rule that decides, those it beat and those that had no
say.

Works everything out in full where `resolve` stops as soon as the outcome is sure; the outcome is `resolve`'s own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kvpolicy import words
from kvpolicy.directive import Verdict
from kvpolicy.faults import Place
from kvpolicy.policy.circumstances import circumstances
from kvpolicy.policy.compiled import Rule
from kvpolicy.policy.contest import Guards
from kvpolicy.policy.grace import CLOSED, GRACE, OPEN, standing
from kvpolicy.policy.model import State, Subject
from kvpolicy.policy.passed import remarks
from kvpolicy.policy.policy import Policy
from kvpolicy.policy.rivals import unbeaten
from kvpolicy.policy.show import value_json, value_text

_BECAUSE = {
    "over": "because it is written over it",
    "layer": "because its layer comes later",
    "narrower": "because it is the narrower rule",
}


@dataclass(frozen=True, slots=True)
class Decided:
    """One property. value: None in `verdict` where the winner says `default`; `unbeaten`: every rule left standing."""

    property: str
    verdict: Verdict | None
    rule: Rule | None  # None: a limit alone decides
    place: Place | None
    unbeaten: tuple[Rule, ...]
    beaten: tuple[tuple[Rule, str, Rule], ...]  # the rule, why, and by which
    not_candidates: tuple[tuple[Rule, str], ...]  # the rule, and `interval` or `guard`

    def as_json(self) -> dict[str, object]:
        """The row of `kvp explain --format json`."""
        verdict = self.verdict
        return {
            "value": "default" if verdict is None else value_json(verdict.value),
            "rule": self.rule.name if self.rule is not None else verdict.rule if verdict is not None else None,
            "layer": None if self.rule is None else self.rule.layer_name,
            "file": None if self.place is None else self.place.file,
            "line": None if self.place is None else self.place.line,
            "limited_by": None if verdict is None else verdict.limited_by,
            "beaten": [{"rule": r.name, "because": why} for r, why, _ in self.beaten],
            "not_candidates": [{"rule": r.name, "because": why} for r, why in self.not_candidates],
        }


@dataclass(frozen=True, slots=True)
class Explanation:
    """Everything about one span in one state. waiting: per property that only rules without a say would set, those
    rules; the property itself is absent. conditions: of the rules with a condition that was asked."""

    subject: Subject
    properties: tuple[Decided, ...]
    waiting: tuple[tuple[str, tuple[tuple[Rule, str], ...]], ...]
    sentences: tuple[str, ...]
    conditions: tuple[tuple[Rule, bool, tuple[str, ...]], ...] = ()  # asked of: whether it holds, and why

    def as_json(self) -> dict[str, object]:
        """The document of `kvp explain --format json`."""
        return {
            "span": {"kind": self.subject.kind, **self.subject.attributes},
            "properties": {d.property: d.as_json() for d in self.properties},
            "not_set": {name: [{"rule": r.name, "because": why} for r, why in rows] for name, rows in self.waiting},
            "conditions": [{"rule": r.name, "holds": holds, "values": list(why)} for r, holds, why in self.conditions],
            "sentences": list(self.sentences),
        }


def explain(policy: Policy, subject: Subject, state: State, properties: Sequence[str] = ()) -> Explanation:
    """Explain the verdicts on a span; `properties` restricts it to some (default: all)."""
    menu = policy.menu(subject)
    verdicts = policy.resolve(subject, state)
    guards = Guards(subject, state)
    decided: list[Decided] = []
    waiting: list[tuple[str, tuple[tuple[Rule, str], ...]]] = []
    for name in words.PROPERTIES:
        if properties and name not in properties:
            continue
        rules = [r for r in menu.rules if name in r.values]
        verdict = verdicts.get(name)
        lingers = any(r.name == verdict.rule and _standing(r, guards) == GRACE for r in rules) if verdict else False
        silent = [(r, why) for r in rules if (why := _silent(r, guards, OPEN if lingers else GRACE)) is not None]
        candidates = [r for r in rules if all(r is not s for s, _ in silent)]
        if candidates or verdict is not None:
            decided.append(_decide(policy, name, verdict, candidates, silent))
        elif silent:
            waiting.append((name, tuple(silent)))
    conditions = _conditions(decided, waiting, guards)
    whys = {id(rule): "; ".join(why) for rule, _, why in conditions}  # each is taken out where it is told
    sentences = [line for d in decided for line in _sentences(d, subject, state, whys)]
    sentences += [_waiting_sentence(name, rows, whys) for name, rows in waiting]
    if not decided:
        sentences.insert(0, f"No rule decides anything for this {subject.kind}: it stands at the default rank.")
    return Explanation(subject, tuple(decided), tuple(waiting), tuple(sentences), conditions)


def _conditions(
    decided: list[Decided], waiting: list[tuple[str, tuple[tuple[Rule, str], ...]]], guards: Guards
) -> tuple[tuple[Rule, bool, tuple[str, ...]], ...]:
    """Of the rules that decide, are beaten or fail by their condition: whether it holds, and what it came to."""
    asked: dict[int, Rule] = {}
    for d in decided:
        winner = [d.rule] if d.rule is not None else []
        failed = [rule for rule, why in d.not_candidates if why == "guard"]
        asked |= {id(rule): rule for rule in (*winner, *(rule for rule, _, _ in d.beaten), *failed)}
    asked |= {id(rule): rule for _, rows in waiting for rule, why in rows if why == "guard"}
    subject, state = guards.subject, guards.state
    return tuple(
        (rule, guards.hold(rule.guard), circumstances(rule.guard.term, subject, state))
        for rule in asked.values()
        if rule.guard is not None
    )


def _standing(rule: Rule, guards: Guards) -> int:
    """Whether the rule's interval is closed, open, or only lingers in its grace; a rule without one is open."""
    if rule.interval is None:
        return OPEN
    return standing(guards.state.opening(rule.interval, guards.subject), guards.state.now)


def _silent(rule: Rule, guards: Guards, without: int) -> str | None:
    """Why a rule that reaches the span is no candidate; None where it is one. A lingering interval counts only where
    what it still protects decides, and then as things stood before it closed (`without` OPEN)."""
    if rule.interval is not None and _standing(rule, guards) in (CLOSED, without):
        return "interval"
    return None if guards.hold(rule.guard) else "guard"


def _decide(
    policy: Policy, name: str, verdict: Verdict | None, candidates: list[Rule], silent: list[tuple[Rule, str]]
) -> Decided:
    first = unbeaten(candidates, policy.order)
    winner = next((r for r in candidates if verdict is not None and r.name == verdict.rule), None)
    if winner is None and verdict is None:
        winner = next((r for r in first if r.values[name].run is not None), None)
    beaten = []
    for rule in candidates:
        if rule is winner:
            continue
        rivals = ([winner] if winner is not None else []) + [o for o in candidates if o is not rule]
        found = next(((why, o) for o in rivals if (why := policy.order.beats(o, rule)) is not None), None)
        if found is not None:
            beaten.append((rule, *found))
    place = winner.place if winner is not None else None
    if winner is None and verdict is not None:
        place = next((c.place for c in policy.clamps if c.name == verdict.limited_by), None)
    return Decided(name, verdict, winner, place, first, tuple(beaten), tuple(silent))


def _sentences(found: Decided, subject: Subject, state: State, whys: dict[int, str]) -> list[str]:
    verdict, rule = found.verdict, found.rule
    if rule is None:
        assert verdict is not None
        return [
            f"{found.property} is {value_text(verdict.value)}: no rule sets it, and the limit at {verdict.limited_by} "
            f"holds it below the default."
        ]
    where = f"rule {rule.name} in layer {rule.layer_name}"
    if verdict is None:
        lines = [f"{found.property} is as if no rule had set it: {where} says default."]
    else:
        lines = [f"{found.property} is {value_text(verdict.value)}: {where} decides it."]
        if verdict.limited_by is not None:
            lines.append(f"The limit at {verdict.limited_by} has changed it to that.")
        if verdict.notice is not None:
            lines.append(f"Note that {verdict.notice}.")
        if verdict.opened_at is not None and rule.interval is not None:
            lines.append(f"It has held since {rule.interval.start.name}.")
            lines += remarks(verdict, rule, subject, state)
    if (holds := whys.pop(id(rule), None)) is not None:
        lines.append(f"Its condition holds: {holds}.")
    lines += [f"{w.name} beats {r.name} there, {_BECAUSE[why]}." for r, why, w in found.beaten]
    lines += [_silent_sentence(r, why, whys) for r, why in found.not_candidates]
    return lines


def _silent_sentence(rule: Rule, why: str, whys: dict[int, str]) -> str:
    if why == "guard":
        return f"{rule.name} has no say: its condition does not hold{_as(rule, whys)}."
    event = rule.interval.start.name if rule.interval is not None else ""
    return f"{rule.name} has no say: its interval is not open (it opens on {event})."


def _as(rule: Rule, whys: dict[int, str]) -> str:
    """What a condition that fails came to, the first time that it is asked."""
    told = whys.pop(id(rule), None)
    return "" if told is None else f", as {told}"


def _waiting_sentence(name: str, rows: tuple[tuple[Rule, str], ...], whys: dict[int, str]) -> str:
    *names, last = (r.name for r, _ in rows)
    failed = "".join(f" The condition of {r.name} does not hold{_as(r, whys)}." for r, why in rows if why == "guard")
    if not names:
        return f"{name} is not set: only {last} would set it, and it has no say now.{failed}"
    return f"{name} is not set: only {', '.join(names)} and {last} would set it, and they have no say now.{failed}"
