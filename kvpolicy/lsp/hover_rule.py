"""What a rule sets, what it beats and what beats it, in Markdown: a part of `hover`.

The order of rules is the policy's own (`policy.order`), asked only for rules that can meet: some span is reached by
both, and no phase or guard keeps them apart.
"""

from __future__ import annotations

from kvpolicy.language.syntax import Rule as Written
from kvpolicy.lsp.names import Target
from kvpolicy.lsp.project import View
from kvpolicy.policy.compiled import Rule
from kvpolicy.policy.matching import selectors_meet
from kvpolicy.policy.order import disjoint
from kvpolicy.policy.policy import Policy

_MOST = 8  # rules that are listed
_MANY = 2_000  # rules of a policy beyond which they are not compared with each other
_BECAUSE = {"over": "written over it", "layer": "a later layer", "narrower": "narrower"}


def about_rule(view: View, target: Target) -> str | None:
    """A rule by the place of its name."""
    written = _written(target)
    if written is None:
        return None
    lines = [f"`{written.label or target.part.file.name}` (rule)"]
    if written.interval is not None:
        until = f" until {written.interval.until.name}" if written.interval.until else ""
        lines[0] += f", on {written.interval.start.name}{until}"
    sets = [_declared(target, number, written) for number in range(len(written.declarations))]
    lines.append("sets " + ", ".join(f"`{text}`" for text in sets) if sets else "sets nothing")
    policy = view.policy
    if policy is None:
        lines.append("What it beats is known when the policy has no errors.")
        return "\n\n".join(lines)
    if len(policy.rules) > _MANY:
        lines.append(f"What it beats is not worked out here: the policy has more than {_MANY:,} rules.")
        return "\n\n".join(lines)
    place = (written.place.file, written.place.line, written.place.column)
    rule = next((r for r in policy.rules if (r.place.file, r.place.line, r.place.column) == place), None)
    if rule is None:
        return "\n\n".join(lines)
    lines[0] += f", in layer {rule.layer_name}"
    beats, beaten = _compared(policy, rule)
    lines.append(f"beats {_listed(beats)}" if beats else "beats no rule")
    lines.append(f"is beaten by {_listed(beaten)}" if beaten else "is beaten by no rule")
    return "\n\n".join(lines)


def _written(target: Target) -> Written | None:
    """The rule in the syntax tree; one without a label is found by its line."""
    for rule in target.part.file.rules:
        start = target.part.lines.of_place(rule.place)[0]
        if start == target.start or (target.one is None and rule.place.line == _line(target)):
            return rule
    return None


def _line(target: Target) -> int:
    return target.part.file.text.count("\n", 0, target.start) + 1


def _declared(target: Target, number: int, rule: Written) -> str:
    """A declaration as it is written, on one line."""
    lines, text = target.part.lines, target.part.file.text
    start, end = lines.of_place(rule.declarations[number].place)
    if number + 1 < len(rule.declarations):
        stop = lines.of_place(rule.declarations[number + 1].place)[0]
    else:
        stop = text.find("}", end)
    body = "\n".join(line.partition("#")[0] for line in text[start : stop if stop >= 0 else end].split("\n"))
    return " ".join(body.split())[:120]


def _compared(policy: Policy, rule: Rule) -> tuple[list[tuple[Rule, str]], list[tuple[Rule, str]]]:
    """The rules that one beats, and those that beat it, with why."""
    beats: list[tuple[Rule, str]] = []
    beaten: list[tuple[Rule, str]] = []
    for other in policy.rules:
        if other is rule or not (other.values.keys() & rule.values.keys()):
            continue
        if not selectors_meet(rule.matches, other.matches) or disjoint(rule, other):
            continue
        if (why := policy.order.beats(rule, other)) is not None:
            beats.append((other, why))
        elif (why := policy.order.beats(other, rule)) is not None:
            beaten.append((other, why))
    return beats, beaten


def _listed(rules: list[tuple[Rule, str]]) -> str:
    shown = ", ".join(f"`{rule.name}` ({_BECAUSE[why]})" for rule, why in rules[:_MOST])
    return shown + (f" and {len(rules) - _MOST} more" if len(rules) > _MOST else "")
