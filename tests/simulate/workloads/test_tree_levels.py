"""A search in a pool for its trunk, the winners and three of its eight branches: figures that the evidence states."""

from __future__ import annotations

import pytest

from tests.bench.tree_levels import ABLATIONS, TEXT, play

LIVE = 7  # eight branches, of which one is given up


@pytest.mark.parametrize("trunk", [30_000, 65_000, 100_000])
def test_the_trunk_stands_losers_are_gone_and_nothing_is_computed_again(trunk: int) -> None:
    levels, tally = play(TEXT, trunk)
    assert len(levels) == 3
    for level in levels:
        assert level.trunk >= 0.99
        assert level.lost == 0  # no block of the one that was given up is on the GPU while the others wait
        assert level.lost_below <= 80  # in CPU memory it is the first to leave, once somebody needs the room
        assert level.waiting == level.found == LIVE  # all are there when they are read again
        assert level.ready >= 3  # as many as the GPU has room for are back as the join begins
    assert tally.recomputed_tokens == 0


def test_the_engine_s_own_order_loses_trunk_and_branches() -> None:
    levels, tally = play(None, 30_000)
    assert all(level.trunk < 0.99 and level.found == level.ready == 0 for level in levels)
    assert tally.recomputed_tokens > 30_000


def test_without_priorities_the_trunk_is_lost() -> None:
    levels, _ = play(ABLATIONS["without priorities"], 30_000)
    assert levels[0].trunk < 0.99 and all(level.ready == 0 for level in levels)


def test_without_tiers_fewer_branches_are_back_as_the_join_begins() -> None:
    levels, _ = play(ABLATIONS["without tiers and prefetch"], 30_000)
    with_tiers, _ = play(TEXT, 30_000)
    assert all(one.ready < other.ready for one, other in zip(levels, with_tiers, strict=True))
