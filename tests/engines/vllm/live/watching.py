"""A listener to a live server's events, and what it makes of them."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

from kvpolicy.adapters.vllm.events import Feed
from kvpolicy.residency import LIVE, Residency
from tests.engines.vllm.live.serving import BLOCK, Server


class Watch:
    """A feed and what it tells."""

    def __init__(self, server: Server) -> None:
        found = re.search(r"KV events (\S+), replay (\S+)", server.log)
        assert found is not None
        self.residency = Residency()
        self.feed = Feed("w", found[1], found[2])

    def until(self, true: Callable[[], bool]) -> None:
        ends = time.monotonic() + 60
        while not true():
            assert time.monotonic() < ends, self.feed.row(self.residency, time.monotonic())
            self.feed.take(self.residency, time.monotonic(), 0.05)

    def quiet(self) -> None:
        """Read on until nothing has come for a while."""
        self.until(lambda: self.state() == LIVE)
        last, since = -1, time.monotonic()
        while time.monotonic() - since < 0.7:
            self.feed.take(self.residency, time.monotonic(), 0.05)
            number = self.residency.source("w", 0).last
            if number != last:
                last, since = number, time.monotonic()

    def state(self) -> str:
        return self.residency.state("w", 0, time.monotonic())

    def cached(self, ids: list[int]) -> int:
        """Tokens of a prompt that are cached, as the events tell; the server computes at least the last one."""
        names = self.residency.blocks_of("w", 0, ids[: (len(ids) - 1) // BLOCK * BLOCK])
        count = 0
        for name in names:
            if name is None or self.residency.lookup("w", 0, [name], time.monotonic())[0].state != "present":
                break
            count += 1
        return count * BLOCK

    def close(self) -> None:
        self.feed.close()
