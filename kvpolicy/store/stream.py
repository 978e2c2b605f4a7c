"""Reading one shard's stream without missing anything unnoticed.

Entries are numbered without a hole within an epoch (`scripts`, "append"). A number that does not follow the one before,
another epoch, a stream that is gone or ends before the place reached: each is a Gap. Reading then goes on with what is
kept; records known already are left out by their keys (`feed`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from kvpolicy.store.contract import Gap
from kvpolicy.store.record import Record, decode

START = "0-0"


class Stream:
    """Where a reader is in one shard's stream."""

    def __init__(self, shard: int) -> None:
        self.shard = shard
        self.cursor = START
        self.unreadable = 0
        self._epoch: str | None = None
        self._number = 0

    def read(self, answer: Sequence[Any]) -> Iterator[Record | Gap]:
        """What an answer of the script "read" tells. `at` is no later than the server took the record in: nobody's
        clock can push a run state into the future."""
        last = _text(answer[2])
        if not last:
            if self.cursor != START:
                yield self._lost("the stream is gone: the server was restarted empty, or evicted it")
            return
        if _order(last) < _order(self.cursor):
            yield self._lost("the stream ends before the place reached: another server took over, or it was restarted")
            return
        for place in range(3, len(answer), 3):
            identifier = _text(answer[place])
            epoch, _, number = _text(answer[place + 1]).rpartition(".")
            self.cursor = identifier
            if not number.isdigit():
                self.unreadable += 1  # nobody of ours wrote that
                continue
            gap = self._follows(epoch, int(number))
            if gap is not None:
                yield gap
            record = decode(answer[place + 2])
            if record is None or record.at is None:
                self.unreadable += 1
                continue
            taken = (_order(identifier)[0] + 1) / 1000
            yield record if record.at <= taken else replace(record, at=taken)

    def _follows(self, epoch: str, number: int) -> Gap | None:
        before, expected = self._epoch, self._number + 1
        self._epoch, self._number = epoch, number
        if before is None or (before == epoch and number == expected):
            return None  # who reads for the first time has missed nothing that was promised
        if before != epoch:
            return Gap(self.shard, None, "a new stream took the place of the one read so far")
        if number < expected:
            return Gap(self.shard, None, "the server lost records that had been read: another took over")
        return Gap(self.shard, number - expected, "records were trimmed before this replica read them")

    def _lost(self, reason: str) -> Gap:
        self.cursor, self._epoch, self._number = START, None, 0
        return Gap(self.shard, None, reason)


def _order(identifier: str) -> tuple[int, int]:
    ms, _, sequence = identifier.partition("-")
    return int(ms), int(sequence or 0)


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
