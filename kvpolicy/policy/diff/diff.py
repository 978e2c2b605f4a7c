"""Two policies compared, property by property: the regions that differ, and what else is not the same.

`kvp diff` and the mutation of policies read it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kvpolicy import words
from kvpolicy.language import syntax
from kvpolicy.language.check_chances import value
from kvpolicy.policy.compiled import Quota
from kvpolicy.policy.diff.outcome import Outcome
from kvpolicy.policy.diff.regions import Found, regions
from kvpolicy.policy.diff.wording import Where, where, witness, word
from kvpolicy.policy.policy import Policy
from kvpolicy.units import format_quantity


@dataclass(frozen=True, slots=True)
class Change:
    """One property in one region. witness: a span that lies there."""

    property: str
    where: Where
    before: Outcome
    after: Outcome
    witness: dict[str, object]

    def as_json(self) -> dict[str, object]:
        """The row of `kvp diff --format json`."""
        row = {"property": self.property, **self.where.as_json()}
        return {**row, "before": _side(self.before), "after": _side(self.after), "witness": self.witness}


@dataclass(frozen=True, slots=True)
class Difference:
    """changes: of properties. quotas, workflows: sentences on those that are not the same. unsettled: properties with
    so many regions that not all were compared."""

    changes: tuple[Change, ...]
    quotas: tuple[str, ...]
    workflows: tuple[str, ...]
    unsettled: tuple[str, ...]
    found: dict[str, Found]

    @property
    def others(self) -> tuple[str, ...]:
        """Sentences on all that is no property of a span."""
        return (*self.quotas, *self.workflows)

    @property
    def of_quotas_alone(self) -> bool:
        """Whether every span is promised the same, and only how much memory promises may take differs."""
        return bool(self.quotas) and not (self.changes or self.workflows or self.unsettled)

    @property
    def same(self) -> bool:
        """Whether every span gets the same, whatever the state."""
        return not self.changes and not self.others and not self.unsettled


def difference(before: Policy, after: Policy) -> Difference:
    """Compare two policies that pass their checks."""
    names = [n for n in words.PROPERTIES if _speaks(before, n) or _speaks(after, n)]
    found = {name: regions(before, after, name) for name in names}
    changes = [
        Change(name, where(rows.space, r.box), r.before, r.after, witness(rows.space, r.box))
        for name, rows in found.items()
        for r in rows.regions
    ]
    unsettled = tuple(name for name, rows in found.items() if not rows.whole)
    quotas, workflows = tuple(_quotas(before.quotas, after.quotas)), tuple(_workflows(before, after))
    return Difference(tuple(changes), quotas, workflows, unsettled, found)


def _speaks(policy: Policy, property: str) -> bool:
    bounds = {"retention": "hold"}.get(property, property)
    return any(property in r.values for r in policy.rules) or any(c.property == bounds for c in policy.clamps)


def _side(outcome: Outcome) -> dict[str, object]:
    rule = outcome.rule
    return {
        "value": outcome.text,
        "rule": None if rule is None else rule.name,
        "file": None if rule is None else rule.place.file,
        "line": None if rule is None else rule.place.line,
        "limited_by": list(outcome.limited),
    }


def _quotas(before: Iterable[Quota], after: Iterable[Quota]) -> list[str]:
    one, two = [{quota_text(q): None for q in quotas} for quotas in (before, after)]
    gone = [f"only the first has the limit `{q}`" for q in one if q not in two]
    return gone + [f"only the second has the limit `{q}`" for q in two if q not in one]


def quota_text(quota: Quota) -> str:
    """A quota as a policy writes it."""
    spans = []
    for match in quota.matches:
        said = []
        for attribute, operator, values in match.conditions:
            shown = [word(v) for v in values]
            said.append(f"{attribute} {operator} {'{' + ', '.join(shown) + '}' if operator == 'in' else shown[0]}")
        spans.append(match.kind + (f"[{', '.join(sorted(said))}]" if said else ""))
    of = f" of {quota.of}" if quota.unit == "percent" else ""
    per = f" per {quota.per}" if quota.per else ""
    amount = format_quantity(quota.amount, quota.unit)
    return f"limit {', '.join(sorted(spans))}{per} {{ {quota.property}: at {quota.side} {amount}{of} }}"


def _workflows(before: Policy, after: Policy) -> list[str]:
    one, two = [{w.name: _graph(w) for w in policy.workflows} for policy in (before, after)]
    told = [f"only the first has the workflow '{name}'" for name in one if name not in two]
    told += [f"only the second has the workflow '{name}'" for name in two if name not in one]
    return told + [f"the workflow '{n}' has other nodes or edges" for n in one if n in two and one[n] != two[n]]


def _graph(workflow: syntax.Workflow) -> object:
    nodes = frozenset((n.role, n.name, n.path, n.parent) for n in workflow.nodes)
    chance = {(e.source, e.target): value(e.probability) for e in workflow.edges if e.probability is not None}
    edges = ((e.source, e.target, e.times, e.at_most, e.is_loop) for e in workflow.edges)
    return nodes, frozenset(edges), chance
