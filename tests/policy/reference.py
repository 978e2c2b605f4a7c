"""A resolver that is slow and obviously right: what the product's is compared with.

It shares nothing with the product but the syntax tree. Selectors (`reference_selectors`) and guards
(`reference_guards`) are compared by trying every value and every truth that could matter, expressions are walked anew
each time, nothing is kept or cut short.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from kvpolicy.language import syntax
from kvpolicy.policy.model import IntervalPattern, Opening, Subject
from tests.policy.reference_guards import guard_within
from tests.policy.reference_selectors import COMPARE, interval_within, kinds, match_within, selects

NO_VALUE = object()


WORKED_OUT = ("min", "max", "clamp", "log2")


@dataclass
class World:
    """One state, by table: intervals by (start, until), functions by (name, argument). Serves both resolvers."""

    now: float = 100.0
    openings: dict[tuple[str, str | None], Opening] = field(default_factory=dict)
    functions: dict[tuple[str, object], float | None] = field(default_factory=dict)

    def opening(self, interval: IntervalPattern, subject: Subject) -> Opening | None:
        return self.openings.get((interval.start.name, interval.until and interval.until.name))

    def read(self, function: str, argument: object, subject: Subject) -> float | None:
        return self.functions.get((function, argument))


@dataclass
class Written:
    """A rule with what surrounds it."""

    rule: syntax.Rule
    group: str
    position: int  # of its layer
    name: str


class Reference:
    """Resolves spans of one file set; at most one used policy, so that layers stand in one row."""

    def __init__(self, files: syntax.FileSet) -> None:
        self.files = files
        layers = self.layer_row()
        self.rules = []
        for member in files.members:
            for rule in member.file.rules:
                layer = (member.group, rule.layer or home(member.file))
                label = ".".join(p for p in (member.group, rule.label) if p) if rule.label else None
                name = label or f"{rule.place.file}:{rule.place.line}"
                self.rules.append(Written(rule, member.group, layers.index(layer), name))

    def layer_row(self) -> list[tuple[str, str]]:
        groups = [m for m in self.files.members if m.group]
        own = [m for m in self.files.members if not m.group]
        own_names = list(dict.fromkeys(n for m in own for n in (home(m.file), *m.file.layer_order)))
        listed = [n for m in own for s in m.file.layers for n in s.names]
        row: list[tuple[str, str]] = []
        for member in groups:
            if member.group not in listed:
                row += [(member.group, n) for n in dict.fromkeys((home(member.file), *member.file.layer_order))]
        for name in listed:
            if name in own_names:
                row.append(("", name))
            for member in groups:
                if member.group == name:
                    row += [(name, n) for n in dict.fromkeys((home(member.file), *member.file.layer_order))]
        return row + [("", n) for n in own_names if n not in listed]

    # --- what a span gets -------------------------------------------------------------------------------

    def resolve(self, kind: str, attributes: dict, world: World) -> dict[str, list]:
        """Per property that is set, the values left unbeaten, limits applied (one of them, if the policy is sound)."""
        found = {}
        for name in ("priority", "retention", "ttl", "for", "tier", "prefetch", "admit", "replicas", "place", "share"):
            values = self.limited(name, self.left(name, kind, attributes, world, graced=False), kind, attributes, world)
            lingering = []
            if name in ("priority", "retention", "ttl"):
                lingering = self.left(name, kind, attributes, world, graced=True)
                lingering = self.limited(name, lingering, kind, attributes, world, untouched=False)
            if len(lingering) > 1 or len(values) > 1:
                values = list(dict.fromkeys([*values, *lingering]))
            elif lingering and stronger(name, lingering[0], values[0] if values else None):
                values = lingering
            if values:
                found[name] = values
        return found

    def left(self, name: str, kind: str, attributes: dict, world: World, *, graced: bool) -> list:
        """The distinct values of the unbeaten candidates; `default` and no data are no value."""
        candidates = []
        for written in self.rules:
            sets = [d for d in written.rule.declarations if d.property == name]
            if not sets or not any(selects(m, kind, attributes) for m in written.rule.selector):
                continue
            standing = self.standing(written.rule, world)
            if standing not in (("always", "grace") if graced else ("always", "open")):
                continue
            if written.rule.guard is not None and self.value(written.rule.guard, written.group, world) is not True:
                continue
            candidates.append((written, sets[0]))
        unbeaten = [(w, d) for w, d in candidates if not any(self.beats(o, w) for o, _ in candidates if o is not w)]
        if graced and not any(self.standing(w.rule, world) == "grace" for w, _ in unbeaten):
            return []
        values = [self.property_value(d, w.group, world) for w, d in unbeaten]
        return list(dict.fromkeys(v for v in values if v is not NO_VALUE))

    def standing(self, rule: syntax.Rule, world: World) -> str:
        if rule.interval is None:
            return "always"
        opening = world.openings.get((rule.interval.start.name, rule.interval.until and rule.interval.until.name))
        if opening is None:
            return "closed"
        if opening.grace_until is None:
            return "open"
        return "grace" if world.now < opening.grace_until else "closed"

    # --- order ------------------------------------------------------------------------------------------

    def beats(self, a: Written, b: Written) -> bool:
        if self.is_over(a, b, set()):
            return True
        if self.is_over(b, a, set()):
            return False
        if a.position != b.position:
            return a.position > b.position
        return self.implies(a, b) and not self.implies(b, a)

    def is_over(self, a: Written, b: Written, seen: set[str]) -> bool:
        if a.name in seen:
            return False
        seen.add(a.name)
        targets = [self.named(path, a.group) for path in a.rule.over]
        return any(t is b or self.is_over(t, b, seen) for t in targets)

    def named(self, path: tuple[str, ...], group: str) -> Written:
        for name in (".".join((*((group,) if group else ()), *path)), ".".join(path)):
            for written in self.rules:
                if written.name == name:
                    return written
        raise AssertionError(path)

    def implies(self, a: Written, b: Written) -> bool:
        return (
            all(any(match_within(m, k, w) for w in b.rule.selector) for m in a.rule.selector for k in kinds(m))
            and interval_within(a.rule.interval, b.rule.interval)
            and self.guard_within(a, b)
        )

    def guard_within(self, a: Written, b: Written) -> bool:
        if b.rule.guard is None:
            return True
        if a.rule.guard is None:
            return False
        return guard_within(a.rule.guard, a.group, b.rule.guard, b.group, self.let)

    # --- values -----------------------------------------------------------------------------------------

    def property_value(self, declaration: syntax.Declaration, group: str, world: World):
        value, name = declaration.value, declaration.property
        if isinstance(value, syntax.Name) and value.path == ("default",):
            return NO_VALUE
        if isinstance(value, syntax.Hold):
            most = None if value.at_most is None else self.seconds(value.at_most, group, world)
            if value.until is not None:
                return ("hold", None, value.until.name, 3600.0 if most is None else most)
            seconds = self.seconds(value.duration, group, world)
            return NO_VALUE if seconds is None else ("hold", seconds, None, None)
        if isinstance(value, syntax.Lasting):
            seconds = self.seconds(value.duration, group, world)
            return NO_VALUE if seconds is None else ("ttl", seconds, value.fixed)
        if isinstance(value, syntax.Ladder):
            rungs = [(r.tier, 0.0 if r.after is None else self.seconds(r.after, group, world)) for r in value.rungs]
            return NO_VALUE if any(s is None for _, s in rungs) else tuple(rungs)
        if name == "retention":
            return (value.path[0], None, None, None)
        if name in ("for", "place", "share") or (isinstance(value, syntax.Name) and value.path == ("all",)):
            return value.path[0]
        number = self.value(value, group, world)
        if number is None:
            return NO_VALUE
        if name == "priority":
            return 0 if number <= 0 else 100 if number >= 100 else math.floor(number + 0.5)
        if name == "replicas":
            return math.floor(number + 0.5)
        if isinstance(number, bool):
            return number
        return min(max(number, 0.0), 30 * 86400.0)

    def seconds(self, expression: syntax.Expression, group: str, world: World) -> float | None:
        number = self.value(expression, group, world)
        return None if number is None else min(max(float(number), 0.0), 30 * 86400.0)

    def value(self, e: syntax.Expression, group: str, world: World):  # noqa: PLR0912
        """The value of an expression; None where there is no data."""
        if isinstance(e, syntax.Literal):
            return e.quantity.value
        if isinstance(e, syntax.Name):
            if e.path[-1] in ("yes", "no", "never"):
                return {"yes": True, "no": False, "never": math.inf}[e.path[-1]]
            return self.value(*self.let(e.path, group), world)
        if isinstance(e, syntax.Call):
            arguments = [self.value(a, group, world) for a in e.arguments] if e.function in WORKED_OUT else []
            if None in arguments:
                return None
            if e.function == "min":
                return min(arguments)
            if e.function == "max":
                return max(arguments)
            if e.function == "log2":
                return math.log2(arguments[0]) if arguments[0] > 0 else -math.inf
            if e.function == "clamp":
                return max(arguments[1], min(arguments[0], arguments[2]))
            argument = ".".join(e.arguments[0].path) if e.arguments else None
            if e.within is not None:
                argument = self.value(e.within, group, world)
            return world.functions.get((e.function, argument))
        if isinstance(e, syntax.Unary):
            inner = self.value(e.operand, group, world)
            if inner is None:
                return None
            return (not inner) if e.operator == "not" else -inner
        left = self.value(e.left, group, world)
        if e.operator == "else":
            return self.value(e.right, group, world) if left is None else left
        right = self.value(e.right, group, world)
        if e.operator == "and":
            return False if False in (left, right) else None if None in (left, right) else True
        if e.operator == "or":
            return True if True in (left, right) else None if None in (left, right) else False
        if left is None or right is None:
            return None
        if e.operator in COMPARE:
            return COMPARE[e.operator](left, right)
        if e.operator == "/" and right == 0:
            return None
        result = {"+": left + right, "-": left - right, "*": left * right, "/": left / (right or 1)}[e.operator]
        return None if math.isnan(result) else result

    def let(self, path: tuple[str, ...], group: str) -> tuple[syntax.Expression, str]:
        for home_group in (".".join((*((group,) if group else ()), *path[:-1])), ".".join(path[:-1])):
            for member in self.files.members:
                if member.group != home_group:
                    continue
                for setting in member.settings:
                    if setting.name == path[-1]:
                        return setting.value, ""
                for let in member.file.lets:
                    if let.name == path[-1]:
                        return let.value, home_group
        raise AssertionError(path)

    # --- limits -----------------------------------------------------------------------------------------

    def limited(self, name: str, values: list, kind: str, attributes: dict, world: World, *, untouched=True) -> list:
        most, least = [], []
        for member in self.files.members:
            for limit in member.file.limits:
                if not any(selects(m, kind, attributes) for m in limit.selector):
                    continue
                for bound in limit.bounds:
                    target = "retention" if bound.property == "hold" else bound.property
                    if target != name or bound.value.quantity.unit == "percent":
                        continue
                    (most if bound.side == "most" else least).append(bound.value.quantity.value)
        if name == "priority" and untouched and not values and most and min(most) < 35:
            return [min(most)]
        return list(dict.fromkeys(within(name, v, most, least) for v in values))


def within(name: str, value, most: list, least: list):
    def bring(number):
        number = max([number, *least])
        return min([number, *most])

    if name == "ttl":
        return ("ttl", bring(value[1]), value[2])
    if name == "retention":
        mode, seconds, until, at_most = value
        if mode == "pin" and most:
            return ("hold", min(most), None, None)
        if mode == "hold":
            return (mode, None, until, bring(at_most)) if until else (mode, bring(seconds), None, None)
        return value
    if name == "replicas" and value == "all":
        return min(most) if most else value
    if name in ("priority", "replicas"):
        return bring(value)
    return value


def stronger(name: str, lingering, present) -> bool:
    if name == "priority":
        return lingering > (35 if present is None else present)
    if name == "retention":
        return lingering[0] in ("hold", "pin")
    return present is not None and lingering[1] > present[1]


def home(file: syntax.File) -> str:
    if file.header is not None:
        return file.header.name
    return file.name.rsplit("/", 1)[-1].removesuffix(".kvp")
