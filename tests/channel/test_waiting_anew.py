"""A plan for a request that waits for its first block: as if it had said this from the beginning, and only once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from kvpolicy.channel import running as running_module
from kvpolicy.channel.payload import read
from kvpolicy.channel.replans import Awaited, replan
from kvpolicy.channel.running import Running, arrive
from kvpolicy.claims.ledger import Ledger
from kvpolicy.request import Owner
from tests.laws.world import SIZE, World, chain, spans

S = Owner(session="s")
HASHES = chain("T", "x", "y")


class Waiting:
    """An engine of which one request waits."""

    def __init__(self, ledger: Ledger, waits: Running) -> None:
        self.ledger, self.awaited, self._waits = ledger, Awaited(), waits

    def requests(self) -> Iterable[Running]:
        return [self._waits]

    def hashes_of(self, running: Running) -> Sequence[Any]:
        return HASHES


@pytest.mark.parametrize("head", [None, "another"])
def test_what_had_happened_by_its_coming_happens_once(head: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World("policy p\nturn { priority: 60 }\n")
    world.ask(S, "Sab", spans(("turn", 3)))
    ledger, told_of = world.steering.ledger, []
    monkeypatch.setattr(running_module, "happened", lambda ledger, holder, event, now: told_of.append(event))
    said = {"owner": "s", "request": "r", "spans": [], "events": ["turn_start"]}
    told = read(said, "r", 3 * SIZE, SIZE, 1.0)
    waits = Running(object(), told, arrive(ledger, told, HASHES, 1.0))
    rows = [{"kind": "turn", "start": 0, "end": 3 * SIZE, "priority": 90}]
    message = {"request": "r", "payload": {**said, "spans": rows, "head": head}}
    assert replan(Waiting(ledger, waits), message, S, 1.0) is None
    assert told_of == ["turn_start"]
    assert waits.arrival.request.spans and [d.priority for d in waits.told.directives.values()] == [90]
