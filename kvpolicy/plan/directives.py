"""The directives of a plan, made when somebody looks at them: claims need the values alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kvpolicy.directive import Directive
from kvpolicy.plan.answer import Answer
from kvpolicy.plan.clocks import Common
from kvpolicy.plan.later import Later
from kvpolicy.plan.outline import Outline


class Directives(Later[Directive]):
    """wishes: the values by span. distinct: each answer's values once."""

    __slots__ = ("distinct", "wishes")

    def __init__(self, drawn: Outline, answers: Sequence[Answer]) -> None:
        values = [a.values for a in answers]
        self.distinct: list[Common] = [each for each in values if each is not None]
        wishes: dict[int, Common] = {}
        if self.distinct:
            values.append(None)  # for the spans of no group, which stands at -1
            placed = zip(drawn.claimed, drawn.groups, strict=True)
            wishes = {index: each for index, group in placed if (each := values[group]) is not None}
            wishes.pop(-1, None)  # where its position is unknown
        self.wishes: Mapping[int, Common] = wishes
        spans = drawn.layout.spans
        super().__init__(
            lambda: tuple(
                [Directive(i, spans[i].kind, spans[i].start, spans[i].end, *each) for i, each in wishes.items()]
            )
        )
