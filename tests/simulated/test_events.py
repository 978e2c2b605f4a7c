"""KV events of the simulated engine, read by what reads a real vLLM's: they say what the engine then finds."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import httpx
import pytest

from kvpolicy.residency import LIVE, Residency
from kvpolicy.residency.holdings import root_key, token_key
from tests.simulated.running import started

pytest.importorskip("zmq")
from kvpolicy.adapters.vllm.events import Feed

SIZE = 16


class Watch:
    """A feed and what it tells."""

    def __init__(self, told: dict[str, Any]) -> None:
        self.residency = Residency()
        self.feed = Feed("w", told["events"], told["replay"])

    def until(self, true: Callable[[], bool]) -> None:
        ends = time.monotonic() + 30
        while not true():
            assert time.monotonic() < ends, self.feed.row(self.residency, time.monotonic())
            self.feed.take(self.residency, time.monotonic(), 0.02)

    def quiet(self) -> None:
        """Read on until nothing has come for a while."""
        self.until(lambda: self.residency.state("w", 0, time.monotonic()) == LIVE)
        last, since = -1, time.monotonic()
        while time.monotonic() - since < 0.15:
            self.feed.take(self.residency, time.monotonic(), 0.02)
            if self.residency.source("w", 0).last != last:
                last, since = self.residency.source("w", 0).last, time.monotonic()

    def cached(self, prompt: list[int], salt: str | None = None) -> int:
        """Tokens that are cached as the events tell; the engine computes at least the last one."""
        count = 0
        key = root_key(salt)
        for start in range(0, (len(prompt) - 1) // SIZE * SIZE, SIZE):
            key = token_key(key, prompt[start : start + SIZE])
            name = self.residency.source("w", 0).named(key)
            if name is None or self.residency.lookup("w", 0, [name], time.monotonic())[0].state != "present":
                break
            count += 1
        return count * SIZE

    def close(self) -> None:
        self.feed.close()


@pytest.fixture(scope="module")
def engine() -> Iterator[dict[str, Any]]:
    addresses = ("--events", "tcp://127.0.0.1:0", "--replay", "tcp://127.0.0.1:0")
    with started("engine", "--blocks", "60", "--cpu-blocks", "20", "--decode-s", "0", *addresses) as told:
        yield told


def complete(engine: dict[str, Any], prompt: list[int], most: int = 1, **more: Any) -> int:
    body = {"model": "sim", "prompt": prompt, "max_tokens": most, "ignore_eos": True, **more}
    answer = httpx.post(f"{engine['url']}/v1/completions", json=body, timeout=30)
    return answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"]


def ids(seed: int, count: int) -> list[int]:
    dice = random.Random(seed)
    return [dice.randrange(5, 30_000) for _ in range(count)]


def test_what_events_tell_is_what_the_engine_finds(engine: dict[str, Any]) -> None:
    dice, heads = random.Random(3), [ids(n, 70) for n in range(4)]
    complete(engine, heads[0])
    with closing(Watch(engine)) as watch:
        told, found = [], []
        for _ in range(60):
            prompt = dice.choice(heads)[: dice.randrange(1, 71)] + ids(100 + dice.randrange(8), dice.randrange(1, 200))
            watch.quiet()
            told.append(watch.cached(prompt))
            found.append(complete(engine, prompt, dice.randrange(1, 40)))
        assert told == found
        assert 0 in found and max(found) >= 64
        assert watch.feed.counts["removed"] > 0 and watch.feed.counts["malformed"] == 0


def test_a_salt_is_told_apart(engine: dict[str, Any]) -> None:
    prompt = ids(500, 50)
    complete(engine, prompt, cache_salt="a")
    with closing(Watch(engine)) as watch:
        watch.quiet()
        assert (watch.cached(prompt), watch.cached(prompt, "a"), watch.cached(prompt, "b")) == (0, 48, 0)
    assert complete(engine, prompt, cache_salt="b") == 0


def test_who_comes_late_is_told_all_by_replay(engine: dict[str, Any]) -> None:
    with closing(Watch(engine)) as watch, closing(Watch(engine)) as late:
        watch.quiet()
        complete(engine, ids(600, 100))
        watch.quiet()
        late.quiet()
        assert late.feed.counts["replayed"] > 0
        known = set(watch.residency.source("w", 0).present())
        assert known and set(late.residency.source("w", 0).present()) == known


def test_a_reset_is_told(engine: dict[str, Any]) -> None:
    prompt = ids(700, 100)
    complete(engine, prompt)
    with closing(Watch(engine)) as watch:
        watch.until(lambda: watch.cached(prompt) == 96)
        assert httpx.post(f"{engine['url']}/reset_prefix_cache").status_code == 200
        watch.until(lambda: watch.cached(prompt) == 0)
        assert watch.feed.counts["cleared"] >= 1
