"""Engines' tokenizers are asked by a few at once, each to its end; who waits does not ask one that hangs, too."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import orjson
import pytest

from kvpolicy.service import tokenizing as tokenizing_module
from kvpolicy.service.config import checked_config
from kvpolicy.service.meaning.dialects import Conversation, read
from kvpolicy.service.meaning.offsets import Offsets, Places
from kvpolicy.service.tokenizing import AT_ONCE, Tokenizing
from kvpolicy.service.upstreams import Upstreams
from tests.service.test_edge_failing_open import reply
from tests.service.upstream import Asked, Upstream, upstream


def conversation(user: str) -> Conversation:
    messages = [{"role": "system", "content": "be brief"}, {"role": "user", "content": user}]
    found = read("chat", {"model": "m", "messages": messages}, b"salt")
    assert found is not None
    return found


def is_whole(asked: Asked) -> bool:
    """Whether a whole prompt's tokens are asked."""
    return bool(orjson.loads(asked.body)["add_generation_prompt"])


def fetched(urls: Sequence[str], talks: Sequence[str], then: Callable[[], Awaitable[None]]) -> tuple[Tokenizing, int]:
    """Fetch the places of all talks, do something meanwhile, and wait. Returns how many places were found besides; who
    asked is told in any case."""
    config = checked_config({"upstream": [{"url": url} for url in urls]}, "test")
    told: list[Places | None] = []

    async def run() -> Tokenizing:
        upstreams = Upstreams(config.upstream, config.limits)
        made, offsets = Tokenizing(upstreams, time.monotonic), Offsets()
        for talk in talks:
            made.fetch(conversation(talk), offsets, told.append)
        await then()
        async with asyncio.timeout(60):
            await asyncio.gather(*made._tasks)
        await upstreams.close()
        return made

    made = asyncio.run(run())
    assert len(told) == len(talks)
    return made, len([places for places in told if places is not None])


async def nothing() -> None: ...


async def hang(_: Asked, writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(60)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenizing_module, "WITHIN_S", 0.3)


@pytest.mark.usefixtures("impatient")
def test_who_waits_behind_a_tokenizer_that_hangs_does_not_ask_it_too() -> None:
    with upstream(hang) as engine:
        made, found = fetched([engine.url], [f"talk {number}" for number in range(10 * AT_ONCE)], nothing)
        assert made.counts["asked"] == made.counts["faults"] == AT_ONCE
        assert found == 0


@pytest.mark.usefixtures("impatient")
def test_nor_do_they_ask_the_next_one_that_hangs() -> None:
    with upstream(hang) as first, upstream(hang) as second:
        talks = [f"talk {number}" for number in range(3 * AT_ONCE)]
        made, _ = fetched([first.url, second.url], talks, nothing)
        assert made.counts["asked"] == 2 * AT_ONCE


class Gate:
    """A tokenizer that tells whole prompts at once, and beginnings of them when it is open."""

    def __init__(self) -> None:
        self.open, self.waiting = False, 0

    async def __call__(self, asked: Asked, writer: asyncio.StreamWriter) -> None:
        if not is_whole(asked):
            self.waiting += 1
            while not self.open:
                await asyncio.sleep(0.01)
            self.waiting -= 1
        text = "".join(message["content"] for message in orjson.loads(asked.body)["messages"])
        writer.write(reply(orjson.dumps({"count": len(text), "tokens": [ord(letter) for letter in text]})))

    def check(self, engine: Upstream) -> Callable[[], Awaitable[None]]:
        """Waits until as many are at their beginnings as may be, and sees that nobody else has a prompt's tokens."""

        async def checked() -> None:
            async with asyncio.timeout(30):
                while self.waiting < AT_ONCE:
                    await asyncio.sleep(0.01)
            whole: list[Any] = [asked for asked in engine.asked if is_whole(asked)]
            self.open = True
            assert len(whole) == AT_ONCE

        return checked


def test_a_few_have_the_tokens_of_their_prompts_at_once_each_until_it_has_its_places() -> None:
    gate = Gate()
    with upstream(gate) as engine:
        talks = [f"talk {number}" for number in range(5 * AT_ONCE)]
        made, found = fetched([engine.url], talks, gate.check(engine))
        assert made.counts["faults"] == 0
        assert found == len(talks)


def test_who_shares_what_another_asks_takes_no_turn() -> None:
    gate = Gate()
    with upstream(gate) as engine:
        talks = ["the same"] * (2 * AT_ONCE) + [f"talk {number}" for number in range(AT_ONCE - 1)]
        made, found = fetched([engine.url], talks, gate.check(engine))
        assert made.counts["faults"] == 0
        assert sum(map(is_whole, engine.asked)) == AT_ONCE
        assert found == len(talks)
