"""Attributes brought down to what selectors can tell apart, so that a choice of rules can be kept and found again.

Two spans of one kind whose keys are equal are matched by the same rules and limits. The number of keys is bounded by
the policy's text, whatever clients send.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping

from kvpolicy.policy.matching import Matcher

Bucket = Callable[[object], object]
_OTHER = "\0other"  # a value that no condition names
_ORDERED = ("<", "<=", ">", ">=")


class Buckets:
    """Keys over the attributes that some matchers speak of."""

    def __init__(self, matchers: Iterable[Matcher]) -> None:
        named: dict[str, set[object]] = {}
        ordered: set[str] = set()
        for match in matchers:
            for attribute, operator, values in match.conditions:
                named.setdefault(attribute, set()).update(values)
                if operator in _ORDERED:
                    ordered.add(attribute)
        self.names = frozenset(named)
        self._buckets = tuple((a, _bucket(named[a], a in ordered)) for a in sorted(named))

    def key(self, kind: str, attributes: Mapping[str, object]) -> tuple[object, ...]:
        """The key of a span: its kind, and one member per attribute."""
        get = attributes.get
        return (kind, *[bucket(get(name)) for name, bucket in self._buckets])


def _bucket(named: set[object], ordered: bool) -> Bucket:
    numbers = sorted(v for v in named if isinstance(v, int | float) and not isinstance(v, bool))

    def word(value: object) -> object:
        if value is None:
            return None
        try:
            return value if value in named else _OTHER
        except TypeError:  # a list or the like from a client: equal to nothing
            return _OTHER

    def number(value: object) -> object:
        if isinstance(value, int | float) and not isinstance(value, bool) and value == value:  # noqa: PLR0124 - NaN
            return bisect_left(numbers, value) + bisect_right(numbers, value)
        return word(value) if value is None or value != value else (word(value),)  # noqa: PLR0124 - NaN

    return number if ordered else word
