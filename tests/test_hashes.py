"""Block hashes: chained, with extra keys that cannot be mistaken for each other."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvpolicy.faults import InputFault
from kvpolicy.hashes import block_hashes

TEXT = list(range(96))


def shared(a: list[bytes], b: list[bytes]) -> int:
    """Leading blocks that two chains have in common."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def test_only_full_blocks_have_a_hash() -> None:
    assert [len(block_hashes(TEXT[:n], 16)) for n in (0, 15, 16, 40, 48)] == [0, 0, 1, 2, 3]


def test_the_same_text_has_the_same_hashes_and_they_are_whole_digests() -> None:
    hashes = block_hashes(TEXT, 16)
    assert hashes == block_hashes(tuple(TEXT), 16, {})
    assert {len(h) for h in hashes} == {32}
    assert len(set(hashes)) == 6


@given(st.integers(0, 95), st.integers(-(1 << 62), 1 << 62))
def test_a_changed_token_changes_its_block_and_all_behind(at: int, token: int) -> None:
    changed = [*TEXT[:at], token, *TEXT[at + 1 :]]
    expected = 6 if token == at else at // 16
    first, second = block_hashes(TEXT, 16), block_hashes(changed, 16)
    assert shared(first, second) == expected
    assert not set(first[expected:]) & set(second[expected:])


def test_equal_blocks_at_different_places_differ() -> None:
    assert len(set(block_hashes([7] * 64, 16))) == 4


def test_an_adapter_and_a_salt_of_equal_text_do_not_collide() -> None:
    chains = [
        block_hashes(TEXT, 16, extra)
        for extra in ({}, {"lora": "x"}, {"salt": "x"}, {"model": "x"}, {"lora": "x", "salt": "x"}, {"salt": ""})
    ]
    assert len({h for chain in chains for h in chain}) == 6 * 6


def test_adjacent_keys_cannot_be_moved_into_each_other() -> None:
    one = block_hashes(TEXT, 16, {"lora": "a", "salt": "bsalt:str:1:c"})
    two = block_hashes(TEXT, 16, {"lora": "asalt:str:13:b", "salt": "c"})
    assert shared(one, two) == 0


def test_two_pictures_share_the_text_before_them_and_nothing_after() -> None:
    """32 tokens of text, 48 of a picture, 16 of text; the digests differ in their last digit alone."""
    digest = "0" * 63
    extras = [{"images": [{"start": 32, "length": 48, "digest": digest + last}]} for last in "01"]
    one, two = (block_hashes(TEXT, 16, extra) for extra in extras)
    assert shared(one, two) == 2
    assert one[2] != two[2]
    assert not set(one[2:]) & set(two)


def test_a_picture_at_another_place_is_another_block() -> None:
    one, two = (block_hashes(TEXT, 16, {"images": [{"start": at, "length": 20, "digest": "d"}]}) for at in (32, 36))
    assert shared(one, two) == 2


def test_a_picture_enters_the_blocks_it_overlaps_and_no_other() -> None:
    plain = block_hashes(TEXT, 16)
    late = block_hashes(TEXT, 16, {"images": [{"start": 79, "length": 1, "digest": "d"}]})
    assert shared(plain, late) == 4


@pytest.mark.parametrize(
    "image", [{"start": 1, "length": 3}, {"start": 1, "digest": "d"}, {"length": 1, "digest": "d"}]
)
def test_a_picture_without_identity_or_place_is_refused(image: dict[str, object]) -> None:
    with pytest.raises(InputFault, match="image 0: start, length"):
        block_hashes(TEXT, 16, {"images": [image]})


def test_tokens_that_are_none_are_refused() -> None:
    with pytest.raises(InputFault, match="64 bits"):
        block_hashes([1, 1 << 70], 1)
    with pytest.raises(InputFault, match="integers"):
        block_hashes([1, "a"], 1)  # type: ignore[list-item]
    with pytest.raises(InputFault, match="block_size"):
        block_hashes([1], 0)
