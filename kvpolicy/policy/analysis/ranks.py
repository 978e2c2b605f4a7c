"""KVP210 to KVP213: ranks and lifetimes that do nothing, do what the engine does anyway, or do more than they say."""

from __future__ import annotations

from kvpolicy import words
from kvpolicy.directive import DROP, NORMAL, Retention, Ttl
from kvpolicy.faults import Diagnostic, Note
from kvpolicy.language import codes
from kvpolicy.policy.analysis.view import ALL_KINDS, View, called, fixed_value, kinds_of
from kvpolicy.policy.bits import members
from kvpolicy.policy.compiled import DEFAULT, Rule
from kvpolicy.policy.order import disjoint

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
    index, high = view.index, view.index.bits(raising)
    found: list[Diagnostic] = []
    for rule in lasting:
        at = index.number[id(rule)]
        if high >> at & 1 or any(not disjoint(rule, index.rules[by]) for by in members(index.meeting(at) & high)):
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
    ranked = [rule for rule in view.by_property.get("priority", ()) if isinstance(fixed_value(rule, "priority"), int)]
    behind = [rule for rule in ranked if _plain(rule) and _behind(rule) and not _overruled(rule, view)]
    highest = max(behind, key=_rank, default=None)
    for rule in ranked if highest is not None else ():
        low = _rank(rule)
        heads = [m.kind for m in rule.matches if m.kind in _HEAD]
        if highest is None or not heads or _rank(highest) <= low or not _plain(rule):
            continue
        if any(m.conditions for m in rule.matches) or _overruled(rule, view):
            continue
        high, last = _rank(highest), _behind(highest)[0]
        message = (
            f"{called(rule)} ranks {heads[0]} at {low}, below the {last} behind it ({high}): "
            f"a {last} needs all that stands before it, so the low rank has no effect"
        )
        note = Note(highest.values["priority"].place, f"{called(highest)} is here")
        fix = f"rank {heads[0]} at {high} or higher"
        found.append(codes.STRANDED_TOKENS.at(rule.values["priority"].place, message, notes=(note,), fix=fix))
    return found


def _behind(rule: Rule) -> list[str]:
    """The kinds of a rule, all of their spans, that stand behind the head."""
    return [m.kind for m in rule.matches if m.kind in _BEHIND and not m.conditions]


def _plain(rule: Rule) -> bool:
    return rule.guard is None and rule.interval is None


def _overruled(rule: Rule, view: View) -> bool:
    """Whether another rule can set the rank of its spans in its place."""
    index = view.index
    at = index.number[id(rule)]
    rivals = (index.overruling(at) | index.narrower(at)) & view.setting["priority"] & index.meeting(at)
    return any(not disjoint(index.rules[other], rule) for other in members(rivals))


def drops_that_take_more(view: View) -> list[Diagnostic]:
    """A drop of the head of the prompt that leaves what stands behind it unsaid."""
    found: list[Diagnostic] = []
    dropping = [
        rule for rule in view.by_property.get("retention", ()) if fixed_value(rule, "retention") == Retention(DROP)
    ]
    alike: dict[tuple[object, object], set[str]] = {}  # kinds dropped under one guard in one interval
    of_kind = dict.fromkeys(_BEHIND, 0)
    for rule in dropping:
        kinds = kinds_of(rule.matches)
        alike.setdefault((rule.condition, rule.interval), set()).update(kinds)
        for kind in of_kind.keys() & kinds:
            of_kind[kind] |= 1 << view.index.number[id(rule)]
    for rule in dropping:
        heads = [m.kind for m in rule.matches if m.kind in _HEAD]
        if not heads:
            continue
        implied = view.index.implied(view.index.number[id(rule)])
        with_it = {kind for kind, bits in of_kind.items() if bits & implied}
        # What else stands whenever the rule does, whatever spans it reaches.
        for condition in (None, rule.condition):
            for interval in (None, rule.interval):
                with_it |= alike.get((condition, interval), set())
        rest = [kind for kind in _BEHIND if kind not in with_it]
        if rest:
            message = f"{called(rule)} drops {heads[0]}, and with it all this owner holds behind it: {', '.join(rest)}"
            fix = f"drop these too, or give {heads[0]} a low priority"
            found.append(codes.DROP_TAKES_MORE.at(rule.values["retention"].place, message, fix=fix))
    return found
