"""KVP210 to KVP213: ranks and lifetimes that do nothing, do what the engine does anyway, or do more than they say."""

from __future__ import annotations

from kvpolicy import words
from kvpolicy.directive import DROP, NORMAL, Retention, Ttl
from kvpolicy.faults import Diagnostic, Note
from kvpolicy.language import codes
from kvpolicy.policy.analysis.meeting import pairs
from kvpolicy.policy.analysis.view import ALL_KINDS, View, called, fixed_value, kinds_of
from kvpolicy.policy.compiled import DEFAULT, Rule
from kvpolicy.policy.order import disjoint, implies

_HEAD = ("system", "tools")  # where the chat template puts them, everything else stands behind
_BEHIND = ("turn", "tool_result", "output", "scratchpad")
_RANKING = frozenset({"priority", "ttl", "retention", "for"})


def lifetimes_of_nothing(view: View) -> list[Diagnostic]:
    """A ttl on spans that no rule ever ranks above the default: it would end a rank that was never raised."""
    lasting = [r for r in view.by_property.get("ttl", ()) if fixed_value(r, "ttl") is not DEFAULT]
    if not lasting or any(c.property == "priority" and c.side == "least" for c in view.policy.clamps):
        return []
    raising = [
        rule
        for rule in view.by_property.get("priority", ())
        if not rule.values["priority"].fixed or _rank(rule) > words.DEFAULT_PRIORITY
    ]
    high = {id(rule) for rule in raising}
    raised = {id(rule) for rule in lasting if id(rule) in high}
    waiting = {id(rule) for rule in lasting} - raised
    both = {id(rule): rule for rule in (*lasting, *raising)}
    for one, other in pairs(tuple(both.values())) if waiting else ():
        for rule, by in ((one, other), (other, one)):
            if id(rule) in waiting and id(rule) not in raised and id(by) in high and not disjoint(rule, by):
                raised.add(id(rule))
    found: list[Diagnostic] = []
    for rule in lasting:
        if id(rule) in raised:
            continue
        here = fixed_value(rule, "priority")
        rank = f"ranks them at {here}" if isinstance(here, int) else "ranks them higher than the default"
        who = "it" if isinstance(here, int) else "no rule"
        message = f"{called(rule)} gives a lifetime to spans, and {who} {rank}: nothing ends with it"
        fix = f"set a priority above {words.DEFAULT_PRIORITY}, or remove the ttl"
        found.append(codes.LIFETIME_OF_NOTHING.at(rule.values["ttl"].place, message, fix=fix))
    return found


def _rank(rule: Rule) -> int:
    value = fixed_value(rule, "priority")
    return value if isinstance(value, int) else words.DEFAULT_PRIORITY


def this_is_lru(view: View) -> list[Diagnostic]:
    """Every span gets one rank and one lifetime: the engine's own order, with more words."""
    rules = view.policy.rules
    if not rules or any(not rule.values.keys() <= _RANKING for rule in rules) or view.policy.quotas:
        return []
    if not any(name in view.by_property for name in ("priority", "ttl", "retention")) or view.policy.clamps:
        return []
    outcomes: set[tuple[str, object]] = set()
    for name, nothing in (("priority", words.DEFAULT_PRIORITY), ("ttl", None), ("retention", Retention(NORMAL))):
        of_name: set[object] = set()
        for kind in ALL_KINDS:
            setting = [rule for rule in view.by_property.get(name, ()) if kind in kinds_of(rule.matches)]
            if any(not rule.values[name].fixed for rule in setting):
                return []
            values = [fixed_value(rule, name) for rule in setting]
            of_name |= {nothing if value is DEFAULT else value for value in values}
            if not any(_always_reaches(rule, kind) for rule in setting):
                of_name.add(nothing)
        if len(of_name) != 1:
            return []
        outcomes |= {(name, value) for value in of_name}
    retention = next(value for name, value in outcomes if name == "retention")
    ttl = next(value for name, value in outcomes if name == "ttl")
    if retention != Retention(NORMAL) or (isinstance(ttl, Ttl) and ttl.fixed):
        return []
    first = min(rules, key=lambda rule: rule.place)
    message = (
        "this policy gives every span the same rank and lifetime: that is the order the engine has without it (LRU)"
    )
    fix = "rank some spans higher than others, such as `system { priority: 90 }`"
    return [codes.THIS_IS_LRU.at(first.place, message, fix=fix)]


def _always_reaches(rule: Rule, kind: str) -> bool:
    """Whether a rule decides every span of a kind, in every state."""
    plain = any(m.kind in (kind, words.ANY_KIND) and not m.conditions for m in rule.matches)
    return plain and rule.guard is None and rule.interval is None


def stranded_tokens(view: View) -> list[Diagnostic]:
    """System prompt or tools ranked below what always stands behind them: they are kept for its sake all the same."""
    found: list[Diagnostic] = []
    ranked = [rule for rule in view.by_property.get("priority", ()) if rule.values["priority"].fixed]
    for rule in ranked:
        low = fixed_value(rule, "priority")
        heads = [m.kind for m in rule.matches if m.kind in _HEAD]
        if not isinstance(low, int) or not heads or rule.guard is not None or rule.interval is not None:
            continue
        if any(m.conditions for m in rule.matches) or _overruled(rule, view):
            continue
        for other in ranked:
            high = fixed_value(other, "priority")
            behind = [m.kind for m in other.matches if m.kind in _BEHIND and not m.conditions]
            if isinstance(high, int) and high > low and behind and _plain(other) and not _overruled(other, view):
                message = (
                    f"{called(rule)} ranks {heads[0]} at {low}, below the {behind[0]} behind it ({high}): "
                    f"a {behind[0]} needs all that stands before it, so the low rank has no effect"
                )
                note = Note(other.values["priority"].place, f"{called(other)} is here")
                fix = f"rank {heads[0]} at {high} or higher"
                found.append(codes.STRANDED_TOKENS.at(rule.values["priority"].place, message, notes=(note,), fix=fix))
                break
    return found


def _plain(rule: Rule) -> bool:
    return rule.guard is None and rule.interval is None


def _overruled(rule: Rule, view: View) -> bool:
    """Whether another rule can set the rank of its spans in its place."""
    rivals = view.by_property["priority"]
    return any(view.policy.order.beats(other, rule) and not disjoint(other, rule) for other in rivals)


def drops_that_take_more(view: View) -> list[Diagnostic]:
    """A drop of the head of the prompt that leaves what stands behind it unsaid."""
    found: list[Diagnostic] = []
    dropping = [
        rule for rule in view.by_property.get("retention", ()) if fixed_value(rule, "retention") == Retention(DROP)
    ]
    for rule in dropping:
        heads = [m.kind for m in rule.matches if m.kind in _HEAD]
        if not heads:
            continue
        with_it = {kind for other in dropping if _no_less(rule, other) for kind in kinds_of(other.matches)}
        rest = [kind for kind in _BEHIND if kind not in with_it]
        if rest:
            message = f"{called(rule)} drops {heads[0]}, and with it all this owner holds behind it: {', '.join(rest)}"
            fix = f"drop these too, or give {heads[0]} a low priority"
            found.append(codes.DROP_TAKES_MORE.at(rule.values["retention"].place, message, fix=fix))
    return found


def _no_less(rule: Rule, other: Rule) -> bool:
    """Whether `other` stands whenever `rule` does, whatever spans they reach."""
    same_guard = other.guard is None or (rule.guard is not None and rule.guard.term == other.guard.term)
    return rule is other or implies(rule, other) or (same_guard and other.interval in (None, rule.interval))
