"""The directives of a plan, made when somebody looks at them.

Claims need the values alone, and most plans of a session are read by nobody else, so the full rows wait until then.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import overload

from kvpolicy.directive import Directive
from kvpolicy.plan.answer import Answer
from kvpolicy.plan.clocks import Common
from kvpolicy.plan.outline import Place


class Directives(Sequence[Directive]):
    """Equal to the tuple of its members. wishes: the values by span. distinct: each answer's values once."""

    __slots__ = ("_places", "_rows", "distinct", "wishes")

    def __init__(self, places: Sequence[Place], answers: Sequence[Answer]) -> None:
        self.distinct: list[Common] = [a.values for a in answers if a.values is not None]
        self.wishes: Mapping[int, Common] = {}
        if self.distinct:
            values = [a.values for a in answers]
            self.wishes = {p.span: found for p in places if (found := values[p.group]) is not None and p.claims}
        self._places = places
        self._rows: tuple[Directive, ...] | None = None

    @property
    def rows(self) -> tuple[Directive, ...]:
        """In prompt order."""
        if self._rows is None:
            wishes = self.wishes
            self._rows = tuple(
                Directive(p.span, p.kind, p.start, p.end, *wishes[p.span]) for p in self._places if p.span in wishes
            )
        return self._rows

    def __len__(self) -> int:
        return len(self.wishes)

    @overload
    def __getitem__(self, place: int) -> Directive: ...

    @overload
    def __getitem__(self, place: slice) -> tuple[Directive, ...]: ...

    def __getitem__(self, place: int | slice) -> Directive | tuple[Directive, ...]:
        return self.rows[place]

    def __iter__(self) -> Iterator[Directive]:
        return iter(self.rows)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Directives):
            return self.rows == other.rows
        return self.rows == other

    __hash__ = None  # type: ignore[assignment]  # their rules are dictionaries

    def __repr__(self) -> str:
        return repr(self.rows)
