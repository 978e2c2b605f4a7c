"""The decision log: JSON lines that say what was decided for a request and what came of it, and no word of a prompt.

A stage that watches: identifiers stand as keyed hashes, messages as counts. Written by a thread of its own; what does
not fit into its queue is dropped and counted.
"""

from __future__ import annotations

import queue
import sys
import threading
import time
from collections.abc import Callable, Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any, TextIO

import orjson

from kvpolicy.faults import InputFault
from kvpolicy.service.exchange import Exchange
from kvpolicy.service.isolation import hashed
from kvpolicy.service.seen import Seen

QUEUE = 10_000


class Journal:
    """path: a file, or `-` for stderr. sample: the part of requests that is written, the same for one session in every
    replica. secret: of the hashes."""

    name = "journal"

    def __init__(self, path: str, sample: float, secret: bytes, clock: Callable[[], float]) -> None:
        self._sample, self._secret, self._clock = sample, secret, clock
        self.counts = {"written": 0, "dropped": 0, "faults": 0}
        try:
            self._file: TextIO = sys.stderr if path == "-" else Path(path).open("a", encoding="utf-8")  # noqa: SIM115
        except OSError as fault:
            raise InputFault(f"log.decisions: {path}: {fault.strerror}") from None
        self._rows: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._write, name="kvpolicy-journal", daemon=True)
        self._thread.start()

    async def enter(self, exchange: Exchange) -> None:
        """Nothing yet."""

    def chunk(self, exchange: Exchange, data: bytes) -> None:
        """Nothing of it is kept."""

    def leave(self, exchange: Exchange, how: str) -> None:
        """Write the exchange's row."""
        seen: Seen | None = exchange.notes.get("decisions")
        if seen is None or not self._chosen(seen):
            return
        if self._rows.qsize() >= QUEUE:
            self.counts["dropped"] += 1
            return
        self._rows.put(orjson.dumps(self.row(exchange, seen, how)))

    def row(self, exchange: Exchange, seen: Seen, how: str) -> dict[str, Any]:
        """What is said of an exchange."""
        owner, reader = seen.arrived.owner, seen.reader
        directives = () if seen.plan is None else seen.plan.directives
        return {
            "at": time.time(),
            "id": exchange.id,
            "tenant": owner.tenant,
            "owner": self.hashed(owner.session),
            "run": self.hashed(owner.run),
            "named": not (owner.session or "").startswith("~"),
            "model": seen.conversation.model,
            "dialect": exchange.dialect,
            "policy": seen.chosen.version.name,
            "version": seen.chosen.version.number,
            "digest": seen.chosen.version.digest[:16],
            "mode": seen.chosen.mode,
            "units": len(seen.conversation.units),
            "prefix": [unit.digest[:8].hex() for unit in seen.conversation.units],  # keyed and chained: no text
            "spans": [_span(d) for d in directives],
            "warned": _codes(exchange.answer_headers.get("x-kvp-warn")),
            "upstream": exchange.upstream,
            "status": exchange.status,
            "outcome": how,
            "seconds": round(self._clock() - exchange.arrived, 6),
            "prompt_tokens": None if reader is None else reader.prompt,
            "cached_tokens": None if reader is None else reader.cached,
            "output_tokens": None if reader is None else reader.output,
            "tool_calls": 0 if reader is None else len(reader.calls),
        }

    def hashed(self, name: str | None) -> str | None:
        """An identifier as it stands in the log: keyed, so that no one can look names up."""
        return hashed(self._secret, name)

    def close(self) -> None:
        """Write what waits, and end."""
        self._rows.put(None)
        self._thread.join(timeout=5)

    def _chosen(self, seen: Seen) -> bool:
        if self._sample >= 1:
            return True
        digest = blake2b((seen.arrived.owner.session or "").encode("utf-8", "surrogatepass"), digest_size=8)
        return int.from_bytes(digest.digest(), "big") / 2**64 < self._sample

    def _write(self) -> None:
        while (row := self._rows.get()) is not None:
            try:
                self._file.write(row.decode() + "\n")
                self._file.flush()
                self.counts["written"] += 1
            except (OSError, ValueError):
                self.counts["faults"] += 1
        if self._file is not sys.stderr:
            self._file.close()


def _codes(told: str | None) -> list[str]:
    """The codes alone: what they are about is said in the client's own words, which are written nowhere."""
    return [] if told is None else list(dict.fromkeys(each.partition(";")[0] for each in told.split(", ")))


def _span(directive: Any) -> Mapping[str, Any]:
    return {
        "kind": directive.kind,
        "tokens": None if directive.end is None else directive.end - directive.start,
        "priority": directive.priority,
        "retention": directive.retention.mode,
        "ttl": directive.ttl,
    }
