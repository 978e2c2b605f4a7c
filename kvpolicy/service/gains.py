"""What a policy would have gained, or has: tokens that an engine computed again though a chain's last prompt had them.

Fed by `decisions` with every request that goes on a chain and with its answer's own count of cached tokens; shown by
`metrics` by mode. Counted in full blocks of prompt tokens:

    reusable    the last prompt of the chain had them, and this one reproduces them
    missed      those of them that the engine did not find cached
    protected   those missed that the plan held protected when the request came
    raised      those missed that the plan held above the default rank then (protected ones included)

In shadow mode nothing of the plan was sent, so `protected` is what enforcing it would have kept at most (its budget may
have been smaller); in enforce mode it is what was lost in spite of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import inf

from kvpolicy.directive import Directive, Plan
from kvpolicy.request import Request
from kvpolicy.words import DEFAULT_PRIORITY


@dataclass(frozen=True, slots=True)
class Expected:
    """What a request finds, if nothing was lost. Tokens from the prompt's beginning."""

    mode: str
    reusable: int
    protected: int
    raised: int


class Gains:
    """counts: tokens by (mode, what), and requests as `requests`."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()

    def found(self, expected: Expected, cached: int) -> None:
        """The answer said how much was cached."""
        mode = expected.mode
        self.counts[mode, "requests"] += 1
        self.counts[mode, "reusable"] += expected.reusable
        for what, upto in (
            ("missed", expected.reusable),
            ("protected", expected.protected),
            ("raised", expected.raised),
        ):
            self.counts[mode, what] += max(0, min(upto, expected.reusable) - cached)


def expected(
    mode: str, last: Request, made: Plan | None, released: float | None, reproduced: int, now: float, block: int
) -> Expected:
    """What the next request of a chain should find at `now`. last, made: its request before, and the plan of that as it
    stands; released: when its answer ended; reproduced: tokens of it that the new prompt has."""
    whole = min(reproduced, last.tokens) // block * block
    directives = () if made is None else made.directives
    protected = _upto(directives, last, lambda d: d.protected_until is not None and d.protected_until > now)

    def stands(each: Directive) -> bool:
        ends = inf if each.ttl is None or released is None else released + each.ttl
        return each.priority > DEFAULT_PRIORITY and ends > now and (each.expires is None or each.expires > now)

    raised = max(protected, _upto(directives, last, stands))
    return Expected(mode, whole, min(protected, whole) // block * block, min(raised, whole) // block * block)


def _upto(directives: Iterable[Directive], last: Request, wanted: Callable[[Directive], bool]) -> int:
    """A claim covers the prompt from its beginning to its span's end."""
    return max((last.tokens if d.end is None else d.end for d in directives if wanted(d)), default=0)
