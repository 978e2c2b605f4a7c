"""A history that is played on two sides, step by step, and compared at rest.

At rest is more than the 2 s after an answer in which a served engine keeps what it protected, as it is not told at once
what comes next.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, Protocol, runtime_checkable

from tests.service.same import Ask, Embedded
from tests.service.same_talk import Message, said

REST_S = 3.7


class Side(Protocol):
    """See `same`."""

    def begin(self, ask: Ask) -> None: ...
    def end(self, ask: Ask) -> None: ...
    def event(self, name: str, **fields: Any) -> None: ...
    def wait(self, seconds: float) -> None: ...
    def strengths(self, name: str) -> list[int | None]: ...


@runtime_checkable
class Withdrawing(Protocol):
    """A side on which a request can be withdrawn while it runs."""

    def cancel(self, ask: Ask) -> None: ...


class Both:
    """Two sides of one history. settled: what is seen of a prompt on the second side, once it is what is wanted there
    or will not be."""

    def __init__(
        self,
        embedded: Embedded,
        served: Side,
        settled: Callable[[str, list[int | None]], list[int | None]] | None = None,
    ) -> None:
        self.embedded, self.served = embedded, served
        self._settled = settled or (lambda name, wanted: served.strengths(name))
        self._sides: tuple[Side, Side] = (embedded, served)
        self._numbers = count(1)
        self._ended: list[str] = []

    def begin(self, who: str | Mapping[str, Any], messages: Sequence[Message], reply: Any = None, **more: Any) -> Ask:
        """A request comes. who: a session's name, or a context."""
        context = {"session": who} if isinstance(who, str) else who
        ask = Ask(f"r{next(self._numbers)}", context, list(messages), reply or said("answer", 30), **more)
        for side in self._sides:
            side.begin(ask)
        return ask

    def end(self, ask: Ask) -> list[Message]:
        """Its answer is done. Returns the conversation with it."""
        for side in self._sides:
            side.end(ask)
        self._ended.append(ask.id)
        return [*ask.messages, {"role": "assistant", **ask.reply}]

    def cancel(self, ask: Ask) -> None:
        """Its client has gone."""
        for side in self._sides:
            assert isinstance(side, Withdrawing), "a history of processes withdraws nothing"
            side.cancel(ask)
        self._ended.append(ask.id)

    def ask(self, *args: Any, **more: Any) -> list[Message]:
        """A request and its answer, and then a rest."""
        ask = self.begin(*args, **more)
        self.wait(0.1)
        told = self.end(ask)
        self.check(f"after {ask.id}")
        return told

    def event(self, name: str, **fields: Any) -> None:
        """Something happened, and then a rest."""
        self.happens(name, **fields)
        self.check(f"after {name}")

    def happens(self, name: str, **fields: Any) -> None:
        """Something happened."""
        for side in self._sides:
            side.event(name, **fields)

    def wait(self, seconds: float) -> None:
        """Time passes."""
        for side in self._sides:
            side.wait(seconds)

    def check(self, when: str) -> None:
        """After a rest both keep every prompt alike."""
        self.wait(REST_S)
        for name in self._ended:
            wanted = self.embedded.strengths(name)
            seen = self._settled(name, wanted)
            assert seen == wanted, f"{when}, {name}: {seen} served, {wanted} embedded"

    def kept(self, name: str) -> list[int | None]:
        """How strongly the embedded engine keeps a prompt's blocks: by it a history shows what it is about."""
        return self.embedded.strengths(name)


@dataclass(frozen=True)
class History:
    """fact: what a served engine has to know. processes: whether it goes through processes, too: no short clock rules
    it, and nothing in it happens while a request runs."""

    name: str
    fact: str
    policy: str
    play: Callable[[Both], None]
    processes: bool = True
