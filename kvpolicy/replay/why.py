"""Why a block has its rank: which claims cover it, whose they are, until when, and which rule decided each.

Looks at a `Replay` as it stands; renews nothing. `kvp explain --replay … --block …` shows it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kvpolicy import words
from kvpolicy.faults import Place
from kvpolicy.policy.model import Subject
from kvpolicy.policy.policy import Policy
from kvpolicy.replay.replay import Replay
from kvpolicy.steering.limits import attributes_of
from kvpolicy.steering.show import owner_row
from kvpolicy.units import format_duration

_STATES = {
    "absent": "is not in the cache: it has never been stored, or it has left",
    "unknown": "is named by no request so far",
    "computing": "is being computed by a request that runs, and can be claimed once it is full",
    "partial": "is not full, so nobody can find it again and nobody claims it",
}
_LASTING = {"request": "this request lasts", "tenant": "the tenant is known"}


def why(replay: Replay, block: str, policy: Policy) -> dict[str, Any]:
    """The row of `show` for a block, with `rules` for each claim, and `sentences`. block: as timelines name it."""
    (row,) = replay.step({"do": "show", "at": replay.now, "blocks": [block]})["blocks"]
    claims = [{**claim, "rules": _rules(replay, claim, policy)} for claim in row["claims"]]
    strongest = max(claims, key=lambda c: (c["protected"], c["priority"]), default=None)
    row = {**row, "at": replay.now, "claims": claims}
    return {**row, "sentences": list(_sentences(row, strongest, policy, replay.now))}


def _rules(replay: Replay, row: Mapping[str, Any], policy: Policy) -> dict[str, str]:
    """Per property the rule that decides it now, of the span that a claim is for; none for a claim by call."""
    steering = replay.stage.steering
    for holder in steering.ledger.holders.values():
        if owner_row(holder.owner) != row["owner"]:
            continue
        for line in holder.lines():
            for _, _, claim in line.living(steering.ledger.ranks, replay.now):
                if not line.manual and (claim.kind, claim.end) == (row["kind"], row["end"]):
                    subject = Subject(claim.kind, attributes_of(line, claim), holder.owner, claim.span)
                    return {n: verdict.rule for n, verdict in policy.resolve(subject, steering.state).items()}
    return {}


def _sentences(row: Mapping[str, Any], strongest: object, policy: Policy, now: float) -> Iterator[str]:
    name = f"Block {row['block']}"
    if row["state"] != "resident":
        yield f"{name} {_STATES.get(row['state'], 'is not in the cache')}."
        return
    if row["dropped"]:
        stands = "is given up and leaves before all others"
    elif row["protected"]:
        stands = f"is protected, at rank {row['rank']}"
    else:
        stands = f"ranks {row['rank']}"
    yield f"{name}, in {row['tier'].upper()} memory, {stands}."
    if not row["evictable"]:
        yield "A request uses it now, so it cannot leave, whatever its rank."
    claims = row["claims"]
    if not claims:
        yield f"Nobody claims it: it stands where untagged blocks stand, at {words.DEFAULT_PRIORITY}."
        return
    if len(claims) > 1:
        yield f"{len(claims)} claims cover it, of {row['owners']} owner{'s' * (row['owners'] != 1)}; the first decides."
    for claim in sorted(claims, key=lambda c: c is not strongest):
        yield _claim(claim, policy, now)


def _claim(claim: Mapping[str, Any], policy: Policy, now: float) -> str:
    owner = claim["owner"]
    whose = " of ".join(f"{name} {owner[name]}" for name in ("branch", "agent", "session", "run") if name in owner)
    whose = whose or f"tenant {owner.get('tenant', 'default')}"
    reach = f"{claim['blocks']} block{'s' * (claim['blocks'] != 1)}"
    what = f"wants its {claim['kind']} and everything before it" if claim["kind"] else "has claimed a prompt by call"
    if claim["dropped"]:
        text = f"{whose} will not send its {claim['kind'] or 'prompt'} again ({reach})"
    else:
        text = f"{whose} {what} ({reach}) kept at priority {claim['priority']}"
        if claim["implicit"]:
            text += ", which is the default, for no rule set one"
    until = claim["protected_until"]
    if claim["protected"] and until is not None and not claim["dropped"]:
        text += ", protected for good" if until == "never" else f", protected until {_when(until, now)}"
    if claim["expires"] is not None:
        text += f", which lapses at {_when(claim['expires'], now)}"
    lasting = _LASTING.get(claim["for"], f"its {claim['for']} lives")
    named = _named(claim["rules"], policy)
    return f"{text[0].upper()}{text[1:]}. The claim stands as long as {lasting}{f'; {named}' if named else ''}."


def _named(rules: Mapping[str, str], policy: Policy) -> str:
    """`priority and ttl come from paused (a.kvp:9), retention from held (a.kvp:12)`."""
    by: dict[str, list[str]] = {}
    for name, rule in rules.items():
        by.setdefault(rule, []).append(name)
    places: dict[str, Place] = {rule.name: rule.place for rule in policy.rules}
    told = []
    for rule, names in by.items():
        listed = " and ".join((", ".join(names[:-1]), names[-1]) if len(names) > 1 else names)
        told.append(f"{listed} come{'s' * (len(names) == 1)} from {_called(rule, places.get(rule))}")
    return ", ".join(told)


def _called(rule: str, place: Place | None) -> str:
    where = None if place is None else f"{place.file}:{place.line}"
    return f"the rule at {rule}" if where == rule else rule if where is None else f"{rule} ({where})"


def _when(at: float, now: float) -> str:
    left = at - now
    return f"{at:g} s" + (f", {format_duration(round(left, 3))} from now" if left > 0 else ", now over")
