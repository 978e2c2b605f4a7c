"""What the answers for one request come to: wishes of its spans, one share, one time at which to ask again.

Made by `make` from the answers for its groups. Where nothing in it depends on time, all prompts of spans of the same
kinds share one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf

from kvpolicy.plan.answer import Answer
from kvpolicy.plan.clocks import Common
from kvpolicy.plan.notices import narrowest_share


class Said:
    """answers: one a group. wishes: the values by span, None where no rule touches it. distinct: each answer's values
    once. share, narrowed: of the whole request, and the notice where its spans differ. valid_until: see `Plan`."""

    __slots__ = ("answers", "distinct", "narrowed", "share", "valid_until", "wishes")

    def __init__(self, answers: Sequence[Answer], claimed: Sequence[int], groups: Sequence[int]) -> None:
        """claimed, groups: as an `Outline` has them."""
        self.answers = tuple(answers)  # kept as long as the request: no spare room
        valid_until, shares = inf, {}
        for each in answers:
            shares[each.share] = 0
            valid_until = each.lapse if each.lapse < valid_until else valid_until
        self.valid_until = None if valid_until == inf else valid_until
        self.share, self.narrowed = narrowest_share(shares)
        values = [each.values for each in answers]
        self.distinct: list[Common] = [each for each in values if each is not None]
        wishes: dict[int, Common | None] = {}
        if self.distinct:
            values.append(None)  # for the spans of no group, which stands at -1
            wishes = dict(zip(claimed, map(values.__getitem__, groups), strict=True))
            wishes.pop(-1, None)  # where its position is unknown
        self.wishes: Mapping[int, Common | None] = wishes
