"""The real publisher's events: what the residency says is what the server finds, also for who comes late."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.engines.vllm.live.serving import Server, prompt
from tests.engines.vllm.live.watching import Watch


@pytest.fixture
def watch(steered: Server) -> Iterator[Watch]:
    with closing(Watch(steered)) as made:
        yield made


def test_what_events_tell_is_what_the_server_finds(steered: Server, watch: Watch) -> None:
    prompts = [prompt(3000 + n, 40 + 37 * (n % 7)) for n in range(30)]
    for ids in prompts:
        steered.complete(ids)
    told, found = [], []
    for ids in reversed(prompts[-14:]):
        watch.quiet()
        told.append(watch.cached(ids))
        found.append(steered.complete(ids).cached)
    assert told == found
    assert 0 in found and max(found) > 0
    assert watch.feed.counts["removed"] > 0 and watch.feed.counts["malformed"] == 0


def test_a_reset_is_told(steered: Server, watch: Watch) -> None:
    ids = prompt(3100, 100)
    steered.complete(ids)
    watch.until(lambda: watch.cached(ids) == 96)
    steered.post("/reset_prefix_cache")
    steered.complete(prompt(3101, 40))  # vLLM tells of the reset with its next step
    watch.until(lambda: watch.cached(ids) == 0)
    assert watch.feed.counts["cleared"] >= 1


def test_who_comes_late_is_told_all_by_replay(steered: Server, watch: Watch) -> None:
    for n in range(10):
        steered.complete(prompt(3200 + n, 100))
    watch.quiet()
    with closing(Watch(steered)) as late:
        late.quiet()
        assert late.feed.counts["replayed"] > 0
        known = set(watch.residency.source("w", 0).present())
        assert set(late.residency.source("w", 0).present()) == known and known
