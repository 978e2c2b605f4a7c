"""What a rank holds, counted by hand: copies by medium and group, and names of blocks by their tokens."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import pytest

from kvpolicy.residency.events import BATCH, CLEARED, REMOVED, STORED, KvEvent
from kvpolicy.residency.holdings import Holdings, root_key, token_key


def held(*events: KvEvent, **more: Any) -> Holdings:
    found = Holdings(**more)
    for event in events:
        found.apply(event)
    return found


def stored(*hashes: str, parent: str | None = None, tokens: tuple[int, ...] = (), **more: Any) -> KvEvent:
    return KvEvent(STORED, hashes, parent, tokens=tokens, **more)


A, B, C = token_key(b"", [1, 2]), token_key(token_key(b"", [1, 2]), [3, 4]), token_key(b"", [5, 6])


def test_a_key_is_a_digest_of_the_parent_s_and_of_tokens_as_64_bits_each_the_lowest_byte_first() -> None:
    assert token_key(b"p", [1, 2 << 40]) == sha256(b"p" + b"\1" + b"\0" * 7 + b"\0" * 5 + b"\2\0\0").digest()
    assert (root_key(None), root_key("ä")) == (b"", b"salt\0\xc3\xa4")


def test_blocks_are_known_by_their_tokens_behind_a_parent_that_is() -> None:
    whole = held(stored("a", "b", tokens=(1, 2, 3, 4)))
    apart = held(stored("a", tokens=(1, 2)), stored("b", parent="a", tokens=(3, 4)))
    assert whole.by_tokens == apart.by_tokens == {A: "a", B: "b"}
    salted = held(stored("a", tokens=(1, 2), salt="s"))
    assert salted.by_tokens == {token_key(root_key("s"), [1, 2]): "a"}


@pytest.mark.parametrize(
    "event",
    [
        stored("b", parent="nobody", tokens=(3, 4)),
        stored("b", "c", tokens=(3, 4, 5)),
        stored("b", "c"),
        stored(tokens=(3, 4)),
    ],
    ids=["an unknown parent", "no whole blocks", "no tokens", "no hashes"],
)
def test_what_is_not_told_of_a_block_makes_no_name(event: KvEvent) -> None:
    assert held(stored("a", tokens=(1, 2)), event).by_tokens == {A: "a"}


def test_a_name_goes_with_its_last_copy_and_only_where_it_is_the_block_s_own() -> None:
    twice = held(stored("a", tokens=(1, 2)), stored("a", tokens=(1, 2), medium="cpu"))
    twice.apply(KvEvent(REMOVED, ("a",)))
    assert (twice.by_tokens, twice.tiers("a"), twice.count("a")) == ({A: "a"}, ["cpu"], 1)
    twice.apply(KvEvent(REMOVED, ("a",), medium="cpu"))
    assert (twice.by_tokens, twice.copies) == ({}, {})
    renamed = held(stored("old", tokens=(1, 2)), stored("new", tokens=(1, 2)), KvEvent(REMOVED, ("old",)))
    assert renamed.by_tokens == {A: "new"}


def test_after_a_clearing_no_block_is_a_known_parent() -> None:
    found = held(stored("a", tokens=(1, 2)), KvEvent(CLEARED, medium=None), stored("b", parent="a", tokens=(3, 4)))
    assert (found.by_tokens, list(found.copies)) == ({}, ["b"])
    one = held(stored("a", tokens=(1, 2)), stored("c", tokens=(5, 6), medium="cpu"), KvEvent(CLEARED, medium="gpu"))
    assert (one.by_tokens, one.tiers("c")) == ({C: "c"}, ["cpu"])


def test_a_store_told_again_is_one_more_copy_unless_the_engine_tells_blocks_anew() -> None:
    again = (stored("a"), stored("a"), KvEvent(BATCH, parts=(stored("a"), stored("b", medium="moon"))))
    assert [held(*again).count(block) for block in "abc"] == [3, 1, 0]
    assert held(*again, reannounces=True).count("a") == 1
    gone = (KvEvent(REMOVED, ("a", "nobody")), KvEvent(REMOVED, ("a",), medium="cpu"))  # only the first is there
    assert held(*again, *gone).count("a") == 2


def test_media_that_nobody_knows_stand_last_by_name() -> None:
    media = ("moon", "remote", "attic", "disk", "cpu", "gpu")
    found = held(*(stored("a", medium=medium) for medium in media))
    assert found.tiers("a") == ["gpu", "cpu", "disk", "remote", "attic", "moon"]


def test_a_block_is_there_when_every_group_that_is_named_has_it() -> None:
    found = held(stored("a", group=0), stored("a", group=1), stored("b", group=0), stored("c"))
    assert [found.has(block, (0, 1)) for block in "abcd"] == [True, False, True, False]
    assert [found.has(block, (0,)) for block in "ab"] == [True, True]
