"""From checked files to a policy that answers: guards and values to closures, names, layers and `over` settled.

The last pass before running. It expects what `check` has passed, and raises PolicyFault on what it cannot give a
meaning to.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import PurePath

from kvpolicy.faults import Place, PolicyFault
from kvpolicy.language import syntax
from kvpolicy.language.codes import PRECEDENCE_CYCLE, SYNTAX, UNKNOWN_NAME
from kvpolicy.language.nesting import nest
from kvpolicy.language.scope import home_layer
from kvpolicy.policy.code import code
from kvpolicy.policy.compiled import Clamp, Guard, Quota, Rule
from kvpolicy.policy.layers import LayerOrder, order_layers
from kvpolicy.policy.limits import compile_limit
from kvpolicy.policy.matching import matcher
from kvpolicy.policy.model import EventPattern, IntervalPattern
from kvpolicy.policy.order import Order
from kvpolicy.policy.over import Over, closed, numbered
from kvpolicy.policy.policy import Policy
from kvpolicy.policy.settle import Lets, event_pattern, fault, settle
from kvpolicy.policy.terms import Constant, Term, normal
from kvpolicy.policy.timing import watcher
from kvpolicy.policy.values import compile_value, seconds

DEFAULT_BOUND_S = 3600.0


def compile(files: syntax.FileSet) -> Policy:
    """The policy of a file set.

    Raises PolicyFault for a name that nothing defines, a workflow within itself, an `over` towards a later layer, or
    layers in a circle.
    """
    try:
        return _compile(files)
    except RecursionError:
        place = next((m.file.rules[0].place for m in files.members if m.file.rules), Place("", 1, 1))
        raise fault(SYNTAX, place, "expressions here are nested too deep; name parts of them with let") from None


def _compile(files: syntax.FileSet) -> Policy:
    lets = gather_lets(files)
    layers = order_layers(files)
    pool = Pool(lets)
    rules = [pool.rule(member, rule) for member in files.members for rule in member.file.rules]
    rules = _close_over(rules, files, layers)
    clamps: list[Clamp] = []
    quotas: list[Quota] = []
    for member in files.members:
        for limit in member.file.limits:
            some, shares = compile_limit(limit, lets, member.group)
            clamps += some
            quotas += shares
    flows = nest(files)
    if flows.faults:
        raise PolicyFault(flows.faults)
    own = [m.file for m in files.members if not m.group] or [m.file for m in files.members]
    return Policy(
        name=_name_of(own),
        digests={m.file.name: m.file.digest for m in files.members},
        rules=tuple(rules),
        clamps=tuple(clamps),
        quotas=tuple(quotas),
        intervals=tuple(pool.intervals.values()),
        workflows=flows.workflows,
        order=Order(layers, rules),
        files=files,
        lets=lets,
    )


def gather_lets(files: syntax.FileSet) -> Lets:
    """Every `let` of the set; what a `use … with` sets stands for the `let` of the used file."""
    table: dict[tuple[str, str], tuple[syntax.Expression, str]] = {}
    for member in files.members:
        for let in member.file.lets:
            table[member.group, let.name] = (let.value, member.group)
    for member in files.members:
        for setting in member.settings:
            table[member.group, setting.name] = (setting.value, "")
    return Lets(table)


class Pool:
    """Makes rules; equal intervals and equal guards of different rules are one object, so that each is asked once."""

    def __init__(self, lets: Lets) -> None:
        self.lets = lets
        self.intervals: dict[IntervalPattern, IntervalPattern] = {}
        self._guards: dict[Term, Guard] = {}
        self._events: dict[EventPattern, EventPattern] = {}

    def rule(self, member: syntax.Member, rule: syntax.Rule) -> Rule:
        """One rule of one file."""
        group = member.group
        label = f"{group}.{rule.label}" if group and rule.label else rule.label
        return Rule(
            name=label or f"{rule.place.file}:{rule.place.line}",
            group=group,
            label=rule.label,
            layer=(group, rule.layer or home_layer(member.file)),
            place=rule.place,
            matches=tuple(matcher(m, self.lets, group) for m in rule.selector),
            interval=None if rule.interval is None else self._interval(rule.interval, group),
            guard=None if rule.guard is None else self._guard(settle(rule.guard, self.lets, group)),
            values={d.property: compile_value(d, self.lets, group) for d in rule.declarations},
        )

    def _guard(self, term: Term) -> Guard:
        same = normal(term)
        if same not in self._guards:
            self._guards[same] = Guard(same, code(same), watcher(same))
        return self._guards[same]

    def _interval(self, interval: syntax.Interval, group: str) -> IntervalPattern:
        bound = DEFAULT_BOUND_S
        if interval.at_most is not None:
            term = settle(interval.at_most, self.lets, group)
            if isinstance(term, Constant) and not isinstance(term.value, str):
                bound = seconds(term.value)
        until = None if interval.until is None else event_pattern(interval.until, self.lets, group)
        pattern = IntervalPattern(event_pattern(interval.start, self.lets, group), until, bound)
        return self.intervals.setdefault(pattern, pattern)


def _close_over(rules: list[Rule], files: syntax.FileSet, layers: LayerOrder) -> list[Rule]:
    """Replace the `over` paths as written by the rules meant, closed transitively."""
    by_name = {r.name: r for r in rules if r.label}
    by_layer = {f"{r.layer_name}.{r.label}": r for r in rules if r.label}
    order = numbered(rules, [len(r.matches) for r in rules])
    number = {id(rule): at for at, rule in enumerate(order)}
    over: dict[int, int] = {}
    under: dict[int, int] = {}
    for rule, place, path in _written_over(rules, files):
        inner = f"{rule.group}.{path}" if rule.group else path
        target = next((table[p] for p in (inner, path) for table in (by_name, by_layer) if p in table), None)
        if target is None:
            raise fault(UNKNOWN_NAME, place, f"no rule is called '{path}'")
        if layers.is_later(target.layer, rule.layer):
            raise fault(
                PRECEDENCE_CYCLE,
                place,
                f"'{rule.name}' cannot go over '{target.name}': layer {target.layer_name} comes later and wins anyway",
            )
        winner, loser = number[id(rule)], number[id(target)]
        over[winner] = over.get(winner, 0) | 1 << loser
        under[loser] = under.get(loser, 0) | 1 << winner
    if not over:
        return rules
    names, numbers = [r.name for r in order], {r.name: at for at, r in enumerate(order) if r.label}
    beaten, beating = closed(over, len(order)), closed(under, len(order))
    return [replace(r, over=Over(names, numbers, beaten[number[id(r)]], beating[number[id(r)]])) for r in rules]


def _written_over(rules: list[Rule], files: syntax.FileSet) -> Iterator[tuple[Rule, Place, str]]:
    written = (rule for member in files.members for rule in member.file.rules)
    for rule, source in zip(rules, written, strict=True):
        places = source.over_places or (source.place,) * len(source.over)
        for path, place in zip(source.over, places, strict=True):
            yield rule, place, ".".join(path)


def _name_of(files: list[syntax.File]) -> str:
    """What a policy is called: by its `policy` line, else by its first file."""
    named = next((f.header.name for f in files if f.header is not None), None)
    return named or (PurePath(files[0].name).stem if files else "")
