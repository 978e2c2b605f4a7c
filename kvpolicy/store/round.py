"""One round: what a replica sends to the server in one batch, and what it does with the answers.

In order: that it is up, what is in force, its records, its questions, and last the streams, so that its own records
come back in the same round. Run by `link`; a fault in any answer but a question's makes the round fail.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

from kvpolicy.store import salts
from kvpolicy.store.ask import Ask
from kvpolicy.store.clock import ServerClock
from kvpolicy.store.contract import DAY_S
from kvpolicy.store.feed import Feed, Outgoing
from kvpolicy.store.force import Force
from kvpolicy.store.keys import BOARD_S, HEARTBEAT_S, LIVE_S, STREAM_S, Keys
from kvpolicy.store.log import KEY_WINDOW_S, MOST_KEYS
from kvpolicy.store.memory import MemoryStore
from kvpolicy.store.settings import Settings
from kvpolicy.store.wire import Command, Wire

MOST_SENT, MOST_READ = 512, 500  # records a round: all shards, one shard


class Refused(Exception):
    """The server may not be used as it is; the message says why."""


class Round:
    """What a replica has to tell and to ask."""

    def __init__(self, keys: Keys, replica: str, local: MemoryStore, clock: ServerClock, settings: Settings) -> None:
        self.keys, self.replica, self.local = keys, replica, local
        self.counters: Counter[str] = local.counters
        self.clock = clock
        self.feed = Feed(keys.shards, self.counters)
        self.force = Force(keys, local)
        self.replicas = 1
        self.quiet = 0  # rounds in a row in which nobody told or asked anything
        self.more = False  # there is more to read or to send than one round takes
        self._secret_given, self._kept = settings.secret is not None, settings.kept
        self._hello_at = 0.0

    def restart(self) -> None:
        """The next round is the first with this connection."""
        self._hello_at = 0.0
        self.clock.forget()
        self.force.forget()

    def run(self, wire: Wire, asks: Sequence[Ask[Any]]) -> None:
        """Send and take in. Raises Refused, an error of redis-py, or OSError; what was not answered is sent again."""
        if time.monotonic() >= self._hello_at:
            self._hello(wire)
        sent = self.feed.outgoing(MOST_SENT)
        appends = self._appends(sent)
        boards = self.force.commands()
        reads = [self._read(shard) for shard in range(self.keys.shards)] if self.feed.takes_more else []
        commands = [*boards, *(command for command, _ in appends), *(ask.command for ask in asks), *reads]
        asked = time.monotonic()
        try:
            answers = wire.send(commands)
        except BaseException:
            self.feed.unsent(sent)
            raise
        answered = time.monotonic()
        self.counters["rounds"] += 1
        of_boards, rest = answers[: len(boards)], answers[len(boards) :]
        of_appends, rest = rest[: len(appends)], rest[len(appends) :]
        of_asks, of_reads = rest[: len(asks)], rest[len(asks) :]
        for ask, answer in zip(asks, of_asks, strict=True):
            if not ask.future.done():
                ask.future.set_exception(answer) if isinstance(answer, Exception) else ask.future.set_result(answer)
        for (_, records), answer in zip(reversed(appends), reversed(of_appends), strict=True):
            if isinstance(answer, Exception):
                self.feed.unsent(records)
        self.more = self.feed.has_outgoing
        self.quiet = 0 if sent or asks else self.quiet + 1
        if of_reads and not isinstance(of_reads[0], Exception):  # before anybody asks what time it is
            seconds, micros = of_reads[0][0], of_reads[0][1]
            self.clock.heard(int(seconds) + int(micros) / 1e6, asked, answered)
        for stream, answer in zip(self.feed.streams, of_reads, strict=False):
            if not isinstance(answer, Exception):
                self.feed.arrived(list(stream.read(answer)), self.clock.now())
                self.more |= len(answer) >= 3 + 3 * MOST_READ
                self.quiet *= len(answer) <= 3
        faults = [answer for answer in (*of_boards, *of_appends, *of_reads) if isinstance(answer, Exception)]
        if faults:
            raise faults[0]
        if of_reads and not self.more:
            self.feed.give_up()
        self.force.answered(boards, of_boards)

    def _hello(self, wire: Wire) -> None:
        key = "" if self._secret_given else (self.local.secret or salts.mint_key()).hex()
        layout = f"1/{self.keys.shards}"
        arguments = (self.replica, int(LIVE_S * 1000), int(BOARD_S * 1000), layout, key)
        (answer,) = wire.send([Command("hello", self.keys.hello(), arguments)])
        if isinstance(answer, Exception):
            raise answer
        if answer[0] == b"layout":
            version, _, shards = answer[1].decode(errors="replace").partition("/")
            raise Refused(
                f"the keys under '{self.keys.prefix}' have layout {version} with {shards} shards, this replica has "
                f"{layout.replace('/', ' with ')}: all replicas of one prefix need the same"
            )
        self.replicas = max(1, int(answer[1]))
        if key and answer[2]:
            known = bytes.fromhex(answer[2].decode())
            if self.local.secret not in (None, known):
                self.counters["salt_keys_changed"] += 1
            self.local.know_key(known)
        self._hello_at = time.monotonic() + HEARTBEAT_S
        self.force.look_again()

    def bye(self, wire: Wire) -> None:
        """This replica goes."""
        wire.send([Command("bye", self.keys.hello(), (self.replica,))])

    def _appends(self, sent: list[Outgoing]) -> list[tuple[Command, list[Outgoing]]]:
        by_shard: dict[int, list[Outgoing]] = {}
        for record in sent:
            by_shard.setdefault(record.shard, []).append(record)
        epoch = uuid4().hex[:12]
        limits = (self._kept, int(DAY_S * 1000), int(STREAM_S * 1000), int(KEY_WINDOW_S * 1000), MOST_KEYS, epoch)
        return [
            (
                Command(
                    "append",
                    self.keys.stream(shard),
                    (*limits, *(part for record in records for part in (record.key, record.data))),
                ),
                records,
            )
            for shard, records in by_shard.items()
        ]

    def _read(self, shard: int) -> Command:
        return Command("read", self.keys.stream(shard)[:1], (self.feed.streams[shard].cursor, MOST_READ))
