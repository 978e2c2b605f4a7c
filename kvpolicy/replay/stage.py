"""What the steps of a timeline act on: the engine under a policy, names of blocks, workers, earlier prompts."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kvpolicy.claims.answers import Answer
from kvpolicy.history import History
from kvpolicy.pool import Pool
from kvpolicy.replay.names import Names
from kvpolicy.request import Owner, OwnerKey, Request
from kvpolicy.residency import Residency
from kvpolicy.steering import Steering

OWNERS = 10_000  # whose newest request is remembered

Row = dict[str, Any]


@dataclass(slots=True)
class Flow:
    """A running request. tokens: its prompt and what it has generated, None where only hashes were given. length: in
    tokens. extra: what its hashes are salted with. given: its hashes were stated. certain: the token from
    which no block can be named, as a picture of unknown length stands there. preempted: its blocks are let go."""

    request: Request
    tokens: list[int] | None
    length: int
    extra: Mapping[str, object]
    given: bool
    certain: int | None = None
    preempted: bool = False


@dataclass(slots=True)
class Stage:
    """One replay's world. flows: the requests that run. newest: each owner's newest request. saturated: whether it was
    said that every block has the highest priority."""

    steering: Steering
    pool: Pool
    names: Names
    residency: Residency = field(default_factory=Residency)
    history: History = field(default_factory=History)
    flows: dict[str, Flow] = field(default_factory=dict)
    newest: OrderedDict[OwnerKey, str] = field(default_factory=OrderedDict)
    saturated: bool = False

    def came(self, request: Request) -> None:
        """Remember an owner's newest request."""
        key = request.owner.key
        self.newest[key] = request.id
        self.newest.move_to_end(key)
        while len(self.newest) > OWNERS:
            self.newest.popitem(last=False)

    def reap(self) -> None:
        """Forget the requests that steering itself has ended: an event can cancel them."""
        for id in self.names.running():
            if id not in self.steering.running:
                self.flows.pop(id, None)
                self.names.end(id)

    def prompts_of(self, fields: Mapping[str, object]) -> list[list[Hashable]]:
        """The blocks of the newest request of every owner that has all of these owner fields."""
        places = {"tenant": 0, "session": 1, "run": 2, "agent": 3, "branch": 4}
        wanted = [(places[name], value) for name, value in fields.items() if name in places]
        if "tenant" not in fields:
            wanted.append((0, Owner().tenant))
        found = [id for key, id in self.newest.items() if all(key[place] == value for place, value in wanted)]
        return [self.names.last_prompt(id) for id in found]


def hints(answers: list[Answer]) -> list[dict[str, object]]:
    """Answers as rows."""
    return [answer.as_json() for answer in answers]


def unheard(what: str) -> Row:
    """The answer to a step about a request that does not run: no effect, and never silence (law 11)."""
    answer = Answer("unknown", reason=f"no request '{what}' runs")
    return {"status": "unknown", "reason": answer.reason, "hints": hints([answer])}
