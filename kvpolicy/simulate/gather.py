"""What every reader does with a call before it hands it on: check it against the trace so far, and count it.

Checks: one block size, time that does not run backwards, prefix-chained ids. Fills `Call.seen` and `Facts`.
"""

from __future__ import annotations

from pathlib import Path

from kvpolicy.faults import InputFault, Notice
from kvpolicy.simulate.chain import Prefixes
from kvpolicy.simulate.trace import Call, Facts

# Offered load that no trace of one service has: a clock in the wrong unit.
FASTEST_TOKENS_PER_S = 20e6
SLOWEST_CALLS_PER_S = 1 / 600
ENOUGH_CALLS = 200


class Gather:
    """One reading of one trace."""

    def __init__(self, path: Path, facts: Facts, unit: str, unit_stated: bool) -> None:
        self._path = path
        self._facts = facts
        self._unit = unit
        self._unit_stated = unit_stated
        self._prefixes = Prefixes()
        self._sessions: set[tuple[str, str]] = set()
        self._backwards = 0
        self._latest = 0.0

    def call(self, line: int, call: Call) -> Call:
        """Check, count and complete one call; its time never lies before the previous one's."""
        facts, request, path = self._facts, call.request, self._path
        if request.block_size != facts.block_size:
            if facts.block_size:
                raise InputFault(
                    f"{path}:{line}: block_size is {request.block_size} here and {facts.block_size} before; a "
                    "trace has one"
                )
            facts.block_size = request.block_size
        call.seen = self._prefixes.add(path, line, call.hashes)
        if call.at < self._latest:
            self._backwards += 1
            call.at = self._latest
        self._latest = call.at
        facts.count(call)
        facts.unique_blocks = len(self._prefixes)
        if request.owner.session is not None:
            self._sessions.add((request.owner.tenant, request.owner.session))
            facts.sessions = len(self._sessions)
        if facts.requests == ENOUGH_CALLS:
            self._check_unit(line)
        return call

    def end(self) -> None:
        """The trace is read: what was odd about it becomes a notice."""
        if self._facts.requests == 0:
            raise InputFault(f"{self._path}: no calls in it; a trace has one request a line")
        if self._backwards:
            message = (
                f"{self._backwards} calls are stamped earlier than the one before them; they were replayed in "
                "file order"
            )
            self._facts.notices.append(Notice("TRACE_UNITS_MISSING", message))

    def _check_unit(self, line: int) -> None:
        facts = self._facts
        if self._unit_stated or facts.last_at <= 0:
            return
        tokens_per_s = facts.prompt_tokens / facts.last_at
        slow = facts.requests / facts.last_at < SLOWEST_CALLS_PER_S
        if tokens_per_s > FASTEST_TOKENS_PER_S or slow:
            raise InputFault(
                f"{self._path}:{line}: {facts.requests} calls in {facts.last_at:g} s if times are in {self._unit} "
                f"as this form has them; that is the wrong unit: convert, or state "
                '"time_unit": "s", "ms" or "us" in the first row'
            )
