"""Tree search over a long trunk under `tree_of_thought`: what stands, what is parked and comes back, what goes; and
what priorities, lifetimes and tiers do for it, each by being left out."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from tests.policies.deleting import without
from tests.policies.scene import text_of
from tests.policies.tree_search import BRANCHES, SIZE, THOUGHT, Level, Search

TEXT = text_of("tree_of_thought")
LIVE = (BRANCHES - 1) * THOUGHT  # blocks of the branches that reach the join
NEIGHBOUR = (604, 544, 468)  # by level; the path of winners takes more and more room
WITHOUT = {
    "priority": re.sub(r"priority: (\d+|clamp\(.*, 100\)) *", "", TEXT),
    "ttl": re.sub(r"ttl: *search *", "", TEXT),
    "tier": re.sub(r"tier: gpu(, cpu after 5s)? *|prefetch: yes *", "", TEXT),
}


def expected(trunk: int, level: int) -> Level:
    """All of the trunk and of the winners is found; all who live are parked, and back before the join; losers are
    gone."""
    return Level(trunk_hits=trunk, parked=LIVE, back=LIVE, onward=trunk + level * THOUGHT, neighbour=NEIGHBOUR[level])


@pytest.mark.parametrize("tokens", [30_000, 65_000, 100_000])
def test_trunk_and_winners_stand_the_parked_are_back_before_the_join_and_losers_are_gone(tokens: int) -> None:
    search = Search(TEXT, tokens).play()
    trunk = tokens // SIZE
    assert search.seen == [expected(trunk, level) for level in range(3)]
    assert all(level.trunk_hits / trunk >= 0.99 for level in search.seen)
    assert search.abandoned() == 0  # half an hour after it was last heard of, its room is others'


def test_losers_that_are_known_before_the_join_do_not_come_back_for_it() -> None:
    search = Search(TEXT, 30_000, early=True).play()
    for level, seen in enumerate(search.seen):
        plain = expected(120, level)
        assert replace(seen, neighbour=plain.neighbour) == replace(plain, back=THOUGHT)


@pytest.mark.parametrize("text", [None, text_of("base")], ids=["lru", "base"])
def test_without_the_policy_the_trunk_is_lost_between_levels(text: str | None) -> None:
    first, *later = Search(text, 30_000).play().seen
    assert (first.back, first.lost) == (16, 16)
    assert [(level.trunk_hits, level.onward) for level in later] == [(0, 0), (0, 0)]


def test_without_priorities_trunk_and_winners_are_lost_between_levels() -> None:
    first, *later = Search(WITHOUT["priority"], 30_000).play().seen
    assert (first.trunk_hits, first.lost) == (120, 16)
    assert [level.back for level in (first, *later)] == [96, 84, 80]
    assert [(level.trunk_hits, level.onward) for level in later] == [(0, 0), (0, 0)]


def test_without_lifetimes_a_search_that_nobody_ends_keeps_its_trunk() -> None:
    search = Search(WITHOUT["ttl"], 30_000).play()
    assert search.seen == [expected(120, level) for level in range(3)]
    assert search.abandoned() == 120


def test_without_tiers_branches_that_wait_take_the_room_of_others_and_are_not_all_back_for_the_join() -> None:
    seen = Search(WITHOUT["tier"], 30_000).play().seen
    assert [level.back for level in seen] == [100, 84, 68]
    assert [level.neighbour for level in seen] == [464, 436, 392]
    assert all(mine < own for mine, own in zip((level.neighbour for level in seen), NEIGHBOUR, strict=True))


def test_each_rule_of_the_join_does_its_part() -> None:
    parked, joined, beaten, lost = (
        Search(without(TEXT, rule), 30_000).play().seen[0] for rule in ("parked", "joined", "beaten", "lost")
    )
    assert parked.parked < LIVE == expected(120, 0).parked
    assert joined.back == 0  # all are still in CPU memory when the join begins
    assert beaten.beaten > 0
    assert lost.scored_out > 0


def test_the_page_shows_these_figures() -> None:
    page = (Path(__file__).parents[2] / "docs" / "policies" / "tree_of_thought.md").read_text(encoding="utf-8")
    rows = {
        "the policy": TEXT,
        "without priorities": WITHOUT["priority"],
        "without lifetimes": WITHOUT["ttl"],
        "without tiers and prefetch": WITHOUT["tier"],
        "the engine's own order": None,
    }
    for name, text in rows.items():
        search = Search(text, 30_000).play()
        figures = zip(*((level.trunk_hits, level.back, level.neighbour) for level in search.seen), strict=True)
        cells = [", ".join(map(str, column)) for column in figures]
        assert f"| {name} | {' | '.join(cells)} | {search.abandoned()} |" in page
