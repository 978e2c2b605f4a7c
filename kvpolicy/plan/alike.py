"""Which spans of one request are sure to get the same verdicts, so that the policy is asked once for all of them.

Rules see a span by its kind and a few attributes (a policy's `menu`), and the state by functions. Where all functions
that a menu reads are about the owner, spans with one menu differ in nothing that a rule could see.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

from kvpolicy.policy.terms import reads

OF_THE_OWNER = frozenset(
    {
        "mean",
        "p50",
        "p90",
        "p95",
        "count",
        "eta",
        "queue_delay",
        "pressure",
        "return_probability",
        "idle",
        "age",
        "hits",
    }
)
_known: WeakKeyDictionary[Any, bool] = WeakKeyDictionary()


def is_of_the_owner(menu: Any) -> bool:
    """Whether everything that the rules and limits of a `policy.resolve.Menu` read is the same for all its spans."""
    answer = _known.get(menu)
    if answer is None:
        terms = [rule.guard.term for rule in menu.rules if rule.guard is not None]
        terms += [term for rule in menu.rules for value in rule.values.values() for term in value.terms]
        terms += [clamp.term for clamps in menu.clamps.values() for clamp in clamps]
        answer = _known[menu] = all(read.function in OF_THE_OWNER for term in terms for read in reads(term))
    return answer
