"""The directives of a plan, made when somebody looks at them: claims need the values alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from kvpolicy.directive import Directive
from kvpolicy.plan.answer import Answer
from kvpolicy.plan.clocks import Common
from kvpolicy.plan.later import Later
from kvpolicy.plan.outline import Outline
from kvpolicy.request import Span


class Directives(Later[Directive]):
    """wishes: the values by span, None where no rule touches it. distinct: each answer's values once."""

    __slots__ = ("distinct", "wishes")

    def __init__(self, drawn: Outline, answers: Sequence[Answer]) -> None:
        values = [a.values for a in answers]
        self.distinct: list[Common] = [each for each in values if each is not None]
        wishes: dict[int, Common | None] = {}
        if self.distinct:
            values.append(None)  # for the spans of no group, which stands at -1
            wishes = dict(zip(drawn.claimed, map(values.__getitem__, drawn.groups), strict=True))
            wishes.pop(-1, None)  # where its position is unknown
        self.wishes: Mapping[int, Common | None] = wishes
        super().__init__(lambda: tuple(_rows(wishes, drawn.layout.spans)))


def _rows(wishes: Mapping[int, Common | None], spans: Sequence[Span]) -> Iterator[Directive]:
    for index, each in wishes.items():
        if each is not None:
            span = spans[index]
            yield Directive(index, span.kind, span.start, span.end, *each)
