"""A made trace: sessions that run side by side, merged by time into calls with the events between them.

A workload gives the sessions; here they become a `Trace` like any file. The same settings give the same calls. What is
stamped as time: a call is answered after `TOKEN_S` for each token of its answer (an assumption that only spaces the
calls out), then comes the pause of the tool or the human, which stands by itself in `Call.pause`, for a replay in which
answers take their own time. Memory: one pending call a session, and one entry a unique block for the prefix rule.
"""

from __future__ import annotations

import hashlib
import heapq
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from kvpolicy.request import Owner, Request
from kvpolicy.simulate.chain import Prefixes
from kvpolicy.simulate.trace import END_TURN, TOOL_USE, Answer, Call, Facts, Progress
from kvpolicy.simulate.workloads.prompt import Blocks, Prompt

TOKEN_S = 0.02  # fifty tokens a second
Item = tuple[float, Call | Mapping[str, object]]  # a call, or an event between calls, at its time
Session = Iterator[Item]


@dataclass(frozen=True, slots=True)
class MadeTrace:
    """make(settings, seed, blocks) gives the sessions. settings: the numbers that shape it. workflow: its graph, as
    JSON of `kvp graph`, where the workload has one."""

    name: str
    source: str
    make: Callable[[Mapping[str, float], int, Blocks], Iterable[Session]]
    settings: Mapping[str, float]
    seed: int = 7
    block_size: int = 16
    workflow: Mapping[str, object] | None = None

    def calls(self, facts: Facts, progress: Progress | None = None) -> Iterator[Call]:
        """Calls in order of time; fills `facts`."""
        facts.form = "made"
        facts.block_size = self.block_size
        facts.label = self.label
        facts.workflow = self.workflow
        facts.sha256 = hashlib.sha256(f"{self.label}, blocks of {self.block_size}".encode()).hexdigest()
        seen, names, events = Prefixes(), set[str](), list[Mapping[str, object]]()
        sessions = list(self.make(self.settings, self.seed, Blocks(self.block_size)))
        left = len(sessions)
        for at, item in heapq.merge(*(_counted(one) for one in sessions), key=lambda item: item[0]):
            if item is None:
                left -= 1
                if progress is not None:
                    progress(1 - left / len(sessions))
            elif isinstance(item, Call):
                item.before = tuple(events)
                events.clear()
                item.at = at
                item.seen = seen.add(Path(self.name), facts.requests + 1, item.hashes)
                facts.count(item)
                facts.unique_blocks = len(seen)
                names.add(item.request.owner.session or item.request.id)
                facts.sessions = len(names)
                yield item
            else:
                events.append({**item, "at": at})

    @property
    def label(self) -> str:
        """Where it comes from: it is never taken for real traffic."""
        said = ", ".join(f"{key}={value:g}" for key, value in self.settings.items())
        return f"MADE from published figures ({self.source}), no real traffic: {self.name}, seed {self.seed}, {said}"

    def with_settings(self, **changed: float) -> MadeTrace:
        """The same workload with other numbers."""
        return replace(self, settings={**self.settings, **changed})


def _counted(session: Session) -> Iterator[tuple[float, Call | Mapping[str, object] | None]]:
    last = 0.0
    for at, item in session:
        last = at
        yield at, item
    yield last, None


@dataclass(slots=True)
class Talk:
    """One owner's calls, one after the other: keeps the clock, the call's number and the id."""

    owner: Owner
    now: float
    attributes: Mapping[str, object] = field(default_factory=dict)
    number: int = 0
    pause: float | None = None  # before the next call
    last: str | None = None  # id of the latest call

    def call(
        self,
        prompt: Prompt,
        output: int,
        tools: tuple[str | None, ...] = (),
        waits_for: Sequence[str | None] | None = None,
    ) -> Item:
        """The owner's next call, now; the clock then stands where its answer is done. tools: those it asks for.
        waits_for: ids of the calls of others that have to end first."""
        owner = self.owner
        name = "/".join(part for part in (owner.session, owner.branch, owner.agent) if part)
        attributes = {"turn": self.number + 1, **self.attributes}
        request = Request(
            f"{name}#{self.number}", owner, prompt.tokens, prompt.block_size, prompt.spans, None, attributes
        )
        answer = Answer(TOOL_USE if tools else END_TURN, tools, output)
        others = None if waits_for is None else tuple(each for each in waits_for if each is not None)
        took = output * TOKEN_S
        made = Call(
            request, list(prompt.hashes), self.now, answer, took=took, pause=self.pause, waits_for=others or None
        )
        at, self.last = self.now, request.id
        self.now += output * TOKEN_S
        self.number += 1
        self.pause = 0.0
        return at, made

    def wait(self, seconds: float) -> None:
        """The tool or the human takes so long."""
        self.now += seconds
        self.pause = (self.pause or 0.0) + seconds

    def tell(self, event: str, **fields: object) -> Item:
        """An event of this owner, now."""
        stated = {key: getattr(self.owner, key) for key in ("session", "run", "agent", "branch")}
        return self.now, {"event": event, **{k: v for k, v in stated.items() if v is not None}, **fields}


def arrivals(draw: random.Random, count: int, per_s: float) -> Iterator[float]:
    """`count` times of a Poisson process."""
    at = 0.0
    for _ in range(count):
        at += draw.expovariate(per_s)
        yield at
