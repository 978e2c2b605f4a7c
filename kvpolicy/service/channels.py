"""The engines' control channels, as the gateway talks through them: found by entry point, never waited for.

`holding` sends through it; what an engine answers is counted by its status. An engine without a channel is told nothing
between requests.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Protocol

from kvpolicy.faults import InputFault
from kvpolicy.service.config import Upstream

GROUP = "kvpolicy.channels"
MOST_UNANSWERED = 128  # messages to one engine, which has room for a thousand of everybody
OPEN, DOWN, NONE = "open", "channel_down", "no_channel"  # the last two as clients are told them
_STATUSES = frozenset({"accepted", "clipped", "deferred", "ignored", "rejected", "unknown"})


class Channel(Protocol):
    """One engine's."""

    def send(self, message: dict[str, Any]) -> int:
        """Queue a message. Never waits."""
        ...

    def close(self) -> None:
        """End it."""
        ...


class Channels:
    """By the address of the upstream. counts: sent, faults, and answers by status."""

    def __init__(self, upstreams: Sequence[Upstream], engine: str) -> None:
        self.counts: Counter[str] = Counter()
        self._channels: dict[str, Channel] = {}
        self._asked: dict[tuple[str, int], asyncio.Future[Mapping[str, Any]]] = {}
        self._asking = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        wanted = [each for each in upstreams if each.channel is not None]
        if not wanted:
            return
        found = next((point for point in entry_points(group=GROUP) if point.name == engine), None)
        if found is None:
            raise InputFault(f"no control channel for engine '{engine}' is installed")
        make = found.load()
        for each in wanted:
            token = None
            if each.channel_token_file is not None:
                try:
                    token = Path(each.channel_token_file).read_text(encoding="utf-8").strip()
                except OSError as fault:
                    raise InputFault(f"channel_token_file: {each.channel_token_file}: {fault.strerror}") from None
            self._channels[each.url] = make(each.channel, token=token, on_answer=partial(self._answered, each.url))

    def state(self, url: str) -> str:
        """Whether the engine at an address hears what is sent: OPEN, DOWN (it has a channel that nobody listens at), or
        NONE."""
        channel = self._channels.get(url)
        if channel is None:
            return NONE
        return OPEN if getattr(channel, "connected", True) else DOWN

    def states(self) -> Iterator[tuple[str, bool]]:
        """Every engine with a channel, and whether it listens."""
        for url in self._channels:
            yield url, self.state(url) == OPEN

    def has_room(self, url: str) -> bool:
        """Whether a message to the engine at an address goes on at once. What nobody can be told needs no room; where
        nobody listens for now, a few messages wait in the channel itself."""
        channel = self._channels.get(url)
        return channel is None or getattr(channel, "backlog", 0) < MOST_UNANSWERED

    def send(self, url: str, message: Mapping[str, Any]) -> None:
        """A message to the engine at an address."""
        channel = self._channels.get(url)
        if channel is None:
            self.counts["no_channel"] += 1
            return
        try:
            channel.send(dict(message))
            self.counts["sent"] += 1
        except InputFault:
            self.counts["faults"] += 1

    async def ask(self, url: str, message: Mapping[str, Any], within_s: float) -> Mapping[str, Any] | None:
        """A question to the engine at an address; None where it has no channel or does not answer in time. No request
        waits for it."""
        channel = self._channels.get(url)
        if channel is None:
            return None
        self._loop = asyncio.get_running_loop()
        self._asking += 1  # before it is sent: its answer may come before its number is noted
        answer: asyncio.Future[Mapping[str, Any]] = self._loop.create_future()
        try:
            number = channel.send(dict(message))
        except InputFault:
            self.counts["faults"] += 1
            self._asking -= 1
            return None
        self._asked[url, number] = answer
        try:
            return await asyncio.wait_for(answer, within_s)
        except TimeoutError:
            self.counts["unanswered"] += 1
            return None
        finally:
            self._asking -= 1
            self._asked.pop((url, number), None)

    def release_all(self) -> int:
        """Take back all protection everywhere. Returns how many engines were told."""
        for url in self._channels:
            self.send(url, {"do": "release_all"})
        return len(self._channels)

    def close(self) -> None:
        """End all of them."""
        for channel in self._channels.values():
            with suppress(Exception):
                channel.close()

    def _answered(self, url: str, row: Mapping[str, Any]) -> None:
        """In the channel's own thread."""
        status = row.get("status")
        self.counts[f"answer_{status if status in _STATUSES else 'unknown'}"] += 1
        if self._asking and self._loop is not None and status != "deferred":
            with suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._settle, url, row)

    def _settle(self, url: str, row: Mapping[str, Any]) -> None:
        """In the loop's thread."""
        number = row.get("id")
        waiting = self._asked.get((url, number)) if isinstance(number, int) else None
        if waiting is not None and not waiting.done():
            waiting.set_result(row)
