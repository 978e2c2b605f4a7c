"""KVP203 and KVP204: rules that no span can match, intervals and holds that wait for what cannot come."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from kvpolicy import words
from kvpolicy.faults import WARNING, Diagnostic, Place
from kvpolicy.language import codes, syntax
from kvpolicy.language.nesting import node_names
from kvpolicy.language.phrase import phrase
from kvpolicy.language.spelling import is_worth_it, nearest
from kvpolicy.policy.analysis.view import View, called
from kvpolicy.policy.matching import domains
from kvpolicy.policy.order import phase_of
from kvpolicy.policy.settle import condition_values

_MOST = 12  # so many names are shown of those that there are

# What cannot happen to an owner while it is in a phase; whatever leads out of the phase first closes its intervals.
_CANNOT: dict[str, frozenset[str]] = {
    "tool_pause": frozenset({"turn_end"}),
    "human_pause": frozenset({"tool_result", "tool_call", "turn_end"}),
    "idle": frozenset({"tool_result", "turn_end"}),
    "ended": frozenset(
        {
            "tool_call",
            "tool_result",
            "turn_end",
            "step_end",
            "branch_done",
            "branch_scored",
            "barrier",
            "compact",
            "pause",
        }
    ),
}


def matches_nothing(view: View) -> list[Diagnostic]:
    """Brackets that leave nothing, in rules, limits and events; agents that no workflow of the policy has."""
    found: list[Diagnostic] = []
    agents = _agents(view)
    seen: set[int] = set()
    for member in view.policy.files.members:
        for rule in member.file.rules:
            for match in rule.selector:
                found += _empty(match.conditions, match.place, "span", member.group, view)
                found += _strangers(match, agents, len(found))
            if rule.interval is not None and id(rule.interval) not in seen:
                seen.add(id(rule.interval))
                for event in (rule.interval.start, rule.interval.until):
                    if event is not None:
                        found += _empty(event.conditions, event.place, "event", member.group, view)
        for limit in member.file.limits:
            for match in limit.selector:
                found += _empty(match.conditions, match.place, "span", member.group, view)
    return found


def _empty(
    conditions: tuple[syntax.Condition, ...], place: Place, what: str, group: str, view: View
) -> Iterator[Diagnostic]:
    settled = tuple((c.attribute, c.operator, condition_values(c, view.policy.lets, group)) for c in conditions)
    for attribute, left in domains(settled).items():
        if left.empty:
            mine = [c for c in conditions if c.attribute == attribute]
            said = ", ".join(f"{c.attribute} {c.operator} {_values(c)}" for c in mine)
            message = f"no {what} can match [{said}]: it leaves no value for '{attribute}'"
            yield codes.MATCHES_NOTHING.at(mine[0].place, message, fix="widen or remove one of the conditions")


def _values(condition: syntax.Condition) -> str:
    shown = ", ".join(phrase(value) for value in condition.values)
    return f"{{{shown}}}" if condition.operator == "in" else shown


def _agents(view: View) -> dict[str, frozenset[str]]:
    """Node names per workflow of the policy, those of the workflows that stand in it among them."""
    found: dict[str, frozenset[str]] = {}
    for workflow in view.policy.workflows:
        found[workflow.name] = frozenset(node_names(workflow))
    return found


def _strangers(match: syntax.Match, agents: dict[str, frozenset[str]], told: int) -> Iterator[Diagnostic]:
    """An agent or node that no workflow of the policy has. A warning: a run may bring a workflow of its own. told: so
    many faults went before; for the first few the nearest name is looked for."""
    chosen = [value for c in match.conditions if c.attribute == "workflow" and c.operator == "=" for value in _names(c)]
    known = [names for name, names in agents.items() if not chosen or name in chosen]
    if not known:
        return
    everyone = frozenset().union(*known)
    for condition in match.conditions:
        if condition.attribute not in {"agent", "node"} or condition.operator not in {"=", "in"}:
            continue
        for name in _names(condition):
            if name not in everyone:
                near = nearest(name, everyone) if is_worth_it(told, len(everyone)) else None
                fix = f"did you mean `{near}`?" if near else f"its nodes are {_some(everyone)}"
                message = f"no workflow here has a node '{name}', so this {condition.attribute} is never met in it"
                yield replace(codes.MATCHES_NOTHING.at(condition.place, message, fix=fix), severity=WARNING)


def _some(names: Iterable[str]) -> str:
    """The first of some names."""
    shown = sorted(names)
    return ", ".join(shown[:_MOST]) + (f" and {len(shown) - _MOST:,} more" if len(shown) > _MOST else "")


def _names(condition: syntax.Condition) -> Iterable[str]:
    for value in condition.values:
        if isinstance(value, syntax.Name):
            yield value.path[0]
        elif isinstance(value, syntax.Text):
            yield value.value


def events_that_cannot_follow(view: View) -> list[Diagnostic]:
    """`on turn_end until tool_result`, and a hold until what cannot come while its interval is open."""
    found: list[Diagnostic] = []
    seen: set[int] = set()
    for rule in view.policy.rules:
        source = view.written[id(rule)]
        interval = source.interval
        if interval is None:
            continue
        phase = phase_of(rule.interval)
        cannot = _CANNOT.get(phase or "", frozenset())
        start = interval.start.name
        if id(interval) not in seen and interval.until is not None and interval.until.name in cannot:
            message = f"{interval.until.name} cannot follow {start}: {_because(phase)}"
            fix = f"write an event that can, or leave out `until`: {_or_else(phase)} ends the interval anyway"
            found.append(codes.MATCHES_NOTHING.at(interval.until.place, message, fix=fix))
        seen.add(id(interval))
        for declaration in source.declarations:
            hold = declaration.value
            if isinstance(hold, syntax.Hold) and hold.until is not None and hold.until.name in cannot:
                message = (
                    f"{called(rule)} holds until {hold.until.name}, which cannot follow {start}: {_because(phase)}"
                )
                found.append(
                    codes.HOLD_UNTIL_NEVER.at(hold.place, message, fix=f"write `hold until {_or_else(phase)}`")
                )
    return found


def _because(phase: str | None) -> str:
    return {
        "tool_pause": "a tool runs, and its result comes first",
        "human_pause": "a human is next, and their message comes first",
        "idle": "nothing of this owner runs",
        "ended": "its life is over",
    }[phase or "idle"]


def _or_else(phase: str | None) -> str:
    ways = {"tool_pause": "tool_result", "human_pause": "turn_start", "idle": "step_start", "ended": "turn_start"}
    return ways[phase or "idle"]


assert all(name in words.EVENTS for names in _CANNOT.values() for name in names)
