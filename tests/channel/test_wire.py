"""Whatever bytes come from outside, the only faults are those that say what is wrong."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvpolicy.adapters.vllm.decode import decode
from kvpolicy.channel.wire import (
    LONGEST_LINE,
    OF_THE_CHANNEL,
    OF_THE_SCHEDULER,
    ChannelFault,
    Lines,
    encode,
    read_message,
)
from kvpolicy.faults import InputFault
from kvpolicy.residency import Residency

SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
KEYS = ("id", "owner", "claim", "priority", "ttl", "hold", "protected", "hashes", "lifetimes", "event", "token")
MESSAGES = st.builds(
    lambda do, rest: {"do": do, **rest},
    st.sampled_from(sorted(OF_THE_CHANNEL | OF_THE_SCHEDULER)) | VALUES,
    st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=5),
)


@given(st.binary(max_size=200) | MESSAGES.map(lambda row: json.dumps(row).encode()))
def test_a_line_is_a_message_or_a_fault(line: bytes) -> None:
    with suppress(ChannelFault):
        row = read_message(line)
        assert row["do"] in OF_THE_CHANNEL | OF_THE_SCHEDULER
        assert read_message(encode(row)) == row


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "-1e999"])
def test_a_number_that_is_none_is_no_json(number: str) -> None:
    with pytest.raises(ChannelFault, match=f"{number} is no number that JSON can say"):
        read_message(f'{{"do": "ping", "at": [{number}]}}'.encode())


@given(st.lists(st.binary(max_size=40).map(lambda b: b.replace(b"\n", b"")), max_size=8), st.data())
def test_lines_are_the_same_however_they_are_cut(lines: list[bytes], data: st.DataObject) -> None:
    whole = b"".join(line + b"\n" for line in lines)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=6)))
    reader, found = Lines(), []
    for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True):
        found += list(reader.feed(whole[start:end]))
    assert found == [line for line in lines if line.strip()]


def test_a_line_that_is_too_long_is_passed_over_whole() -> None:
    reader = Lines()
    found = []
    for _ in range(5):
        found += list(reader.feed(b"x" * (LONGEST_LINE // 2)))
    found += list(reader.feed(b"end\nnext\n"))
    assert found == [None, b"next"]
    assert list(reader.feed(b"y" * (LONGEST_LINE + 1) + b"\nz\n")) == [None, b"z"]


FIELDS = st.dictionaries(
    st.sampled_from(
        ["block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium", "extra_keys", "group_idx"]
    ),
    VALUES | st.lists(st.integers(0, 5), max_size=4) | st.lists(st.integers(-(2**63), 2**64 - 1), max_size=4),
)
NAMES = st.sampled_from(["BlockStored", "BlockRemoved", "AllBlocksCleared", "Else"])
EVENTS = st.builds(lambda name, fields: {"type": name, **fields}, NAMES, FIELDS) | st.builds(
    lambda name, rest: [name, *rest], NAMES, st.lists(st.lists(st.integers(0, 5), max_size=3) | SCALARS, max_size=9)
)
BATCHES: st.SearchStrategy[Any] = st.lists(EVENTS, max_size=4).map(lambda events: [1.0, events, 0]) | VALUES


def packed(row: Any) -> bytes:
    try:
        return msgspec.msgpack.encode(row)
    except (OverflowError, ValueError):
        return b""


@settings(max_examples=300)
@given(st.binary(max_size=100) | BATCHES.map(packed))
def test_a_frame_is_a_batch_or_a_fault_and_residency_takes_every_batch(payload: bytes) -> None:
    with suppress(InputFault):
        event = decode(payload).event
        residency = Residency()
        residency.take("w", 0, 0, event, 0.0)
        residency.take("w", 0, 1, event, 0.0)
        for part in event.parts:
            residency.lookup("w", 0, part.hashes, 0.0)
        residency.blocks_of("w", 0, [1, 2, 3, 4])
