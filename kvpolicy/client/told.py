"""A stretch of a run as a context: what is told when it is entered, and when it is left.

Every one works with `with` and with `async with`; leaving by an exception or a cancelled task tells the end all the
same, so a failed step holds nothing. Made by runs (`kvpolicy.runs`), whose steps, tools and branches they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from contextvars import Token
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from kvpolicy.client.once import warn_once
from kvpolicy.client.scope import Scope, inside, leave

if TYPE_CHECKING:
    from kvpolicy.claims.answers import Answer
    from kvpolicy.runs import Run


class Told(AbstractContextManager["Told"], AbstractAsyncContextManager["Told"]):
    """A stretch of a run: `opens` is told when it is entered, `closes` when it is left. answers: to both, in order.

    within: what an LLM call in it says besides, fields of a `Scope`. It is good for one stretch: entered again while it
    is open, or left twice, it tells nothing and warns once.
    """

    def __init__(self, run: Run, opens: str, closes: str, within: Mapping[str, Any], **attributes: object) -> None:
        self.run = run
        self.answers: list[Answer] = []
        self._opens, self._closes = opens, closes
        self._within, self._attributes = within, attributes
        self._told: Mapping[str, object] = {}
        self._place: Token[Scope] | None = None
        self._open = False

    def __enter__(self) -> Self:
        if self._open:
            warn_once(f"open {self._opens}", f"a stretch that told {self._opens} was entered again while it is open")
            return self
        self._told = {**self.run._where(), **self._attributes}
        self.answers += self.run.event(self._opens, **self._told)
        self._open, self._place = True, inside(**self._within)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._open or self._place is None:
            warn_once(f"closed {self._closes}", f"a stretch was closed twice: {self._closes} is told once")
            return
        self._open = False
        leave(self._place)
        told = dict(self._told)
        if self._closes == "branch_done":  # of everybody in it, whatever agent began it
            told.pop("agent", None)
        try:
            self.answers += self.run.event(self._closes, **told)
        except Exception as failed:  # what the application raised, or did, counts; not our slip
            warn_once(f"end {self._closes}", f"{self._closes} was not told: {failed!r}")

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.__exit__(kind, fault, trace)
