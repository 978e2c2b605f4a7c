"""The directives of a plan, made when somebody looks at them: claims need the values alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from kvpolicy.directive import Directive
from kvpolicy.plan.clocks import Common
from kvpolicy.plan.later import Later
from kvpolicy.plan.said import Said
from kvpolicy.request import Span


class Directives(Later[Directive]):
    """wishes, distinct: as in `Said`."""

    __slots__ = ("distinct", "wishes")

    def __init__(self, said: Said, spans: Sequence[Span]) -> None:
        self.distinct, self.wishes = said.distinct, said.wishes
        super().__init__(lambda: tuple(_rows(said.wishes, spans)))


def _rows(wishes: Mapping[int, Common | None], spans: Sequence[Span]) -> Iterator[Directive]:
    for index, each in wishes.items():
        if each is not None:
            span = spans[index]
            yield Directive(index, span.kind, span.start, span.end, *each)
