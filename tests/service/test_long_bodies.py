"""A long body holds up nobody else: what it means is found in a thread, and others have turns while it goes out."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from kvpolicy.service.aside import MANY_MESSAGES
from kvpolicy.service.decisions import Decisions
from kvpolicy.service.exchange import Exchange
from kvpolicy.service.reading import LONG
from kvpolicy.service.upstreams import Body, Made, _Long
from tests.service.test_edge_failing_open import assembled, engine_like, stage
from tests.service.test_edge_passing import PATH
from tests.service.upstream import upstream

PIECE, PIECES = 64 << 10, 160


MANY = [{"role": "user", "content": "w"}] * (MANY_MESSAGES + 1)
BROKEN = "w" * LONG + "\ud800"  # the reader of long bodies takes it, the digests do not


def reads(of: Decisions) -> list[int]:
    """The threads in which bodies are looked at from now on."""
    read, looked_at = list[int](), of._read

    def watched(exchange: Exchange) -> Any:
        read.append(threading.get_ident())
        return looked_at(exchange)

    of._read = watched  # type: ignore[method-assign]
    return read


@pytest.mark.parametrize(
    ("messages", "aside"),
    [
        ([{"role": "user", "content": "w" * 100}], False),
        ([{"role": "user", "content": "w" * LONG}], True),
        (MANY, True),
    ],
    ids=["short", "long", "many"],
)
def test_what_a_long_one_means_is_found_in_a_thread_and_once(messages: Any, aside: bool) -> None:
    with upstream(engine_like) as engine, assembled(engine.url) as (at, made):
        read, loop = reads(stage(made, "decisions")), set[int]()
        made.proxy.decided = lambda _: loop.add(threading.get_ident())
        answer = httpx.post(at + PATH, json={"model": "m", "messages": messages}, timeout=60)
        assert answer.status_code == 200
        assert "reason=unread" not in answer.headers["x-kvp-decision"]
        assert len(read) == 1 and len(loop) == 1
        assert (read[0] not in loop) is aside


def test_what_cannot_be_found_in_a_thread_is_as_where_it_is_short() -> None:
    with upstream(engine_like) as engine, assembled(engine.url) as (at, made):
        read = reads(stage(made, "decisions"))
        for number, size in enumerate((100, LONG), 1):
            body = {"model": "m", "messages": "w" * size}
            answer = httpx.post(at + PATH, json=body, timeout=60)
            assert answer.status_code == 200
            assert "status=ignored;reason=unread" in answer.headers["x-kvp-decision"]
            assert len(read) == number, "and once"
        assert made.proxy.counts["stage_faults"] == 0


def test_nor_is_one_with_a_fault_gone_through_again() -> None:
    with upstream(engine_like) as engine, assembled(engine.url) as (at, made):
        read = reads(stage(made, "decisions"))
        body = json.dumps({"model": "m", "messages": [{"role": "user", "content": BROKEN}]})
        assert httpx.post(at + PATH, content=body, timeout=60).status_code == 400
        assert len(read) == 1
        assert made.proxy.counts["stage_faults"] == 1


class _Taking:
    """An engine's connection that takes all at once."""

    def __init__(self) -> None:
        self.size = 0

    async def write(self, piece: bytes) -> None:
        self.size += len(piece)


def pieces() -> Iterator[bytes]:
    for _ in range(PIECES):
        yield b"x" * PIECE


async def turns_beside(work: Any) -> int:
    """How often another had its turn until some work was done."""
    turns, over = 0, asyncio.ensure_future(work)
    while not over.done():
        await asyncio.sleep(0)
        turns += 1
    await over
    return turns


def test_a_long_one_goes_out_in_turns_with_others() -> None:
    taking = _Taking()
    sent = _Long(Body(b"x" * (PIECE * PIECES)))
    assert asyncio.run(turns_beside(sent.write(taking))) > PIECES // 8  # type: ignore[arg-type]
    assert taking.size == PIECE * PIECES


def test_and_so_is_its_size_found() -> None:
    assert asyncio.run(turns_beside(Made.of(pieces))) > PIECES // 8
    assert asyncio.run(Made.of(pieces)).size == PIECE * PIECES
