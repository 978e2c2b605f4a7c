"""`kvpolicy.step`, `tool`, `branch`, `barrier`, `event`, `spans`: of the run that this thread or task is in.

So code deep inside an application needs no `run` handed down. Outside of any run a step and a branch still say where
LLM calls come from, and events go nowhere. `step`, `tool` and `branch` may also decorate a function: plain or async, a
generator of either kind.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager
from contextvars import Token
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast

from kvpolicy.client.generators import decorated
from kvpolicy.client.scope import Mark, Scope, current, inside, leave
from kvpolicy.client.told import Told
from kvpolicy.client.wire import base_url as _base_url
from kvpolicy.client.wire import body as _body
from kvpolicy.client.wire import headers as _headers
from kvpolicy.request import Owner
from kvpolicy.runs import Run, current_run

if TYPE_CHECKING:
    from kvpolicy.claims.answers import Answer

Function = TypeVar("Function", bound=Callable[..., Any])


class Stretch(AbstractContextManager["Stretch"], AbstractAsyncContextManager["Stretch"]):
    """A step, tool or branch of whichever run it is entered in. A new one for each `with`; as a decorator, a new one a
    call; of a generator, from its first value to its end."""

    def __init__(self, make: Callable[[Run], Told], within: Mapping[str, Any]) -> None:
        self._make, self._within = make, within
        self._told: Told | None = None
        self._place: Token[Scope] | None = None

    def __enter__(self) -> Self:
        run = current_run()
        if run is None:
            self._place = inside(**self._within)
        else:
            self._told = self._make(run)
            self._told.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._told is not None:
            self._told.__exit__(kind, fault, trace)
        elif self._place is not None:
            leave(self._place)
            self._place = None

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.__exit__(kind, fault, trace)

    def __call__(self, function: Function) -> Function:
        def stretch() -> Stretch:
            return Stretch(self._make, self._within)

        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            return cast(Function, decorated(function, stretch))

        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def awaited(*args: Any, **named: Any) -> Any:
                with stretch():
                    return await function(*args, **named)

            return cast(Function, awaited)

        @functools.wraps(function)
        def called(*args: Any, **named: Any) -> Any:
            with stretch():
                return function(*args, **named)

        return cast(Function, called)


class _Nobody:
    """Hears events, and does nothing: of a run that only says where its LLM calls come from."""

    def event(self, event: str, *, now: float | None = None, **attributes: object) -> list[Answer]:
        return []


def run(
    workflow: str | None = None,
    *,
    session: str | None = None,
    run: str | None = None,
    agent: str | None = None,
) -> Run:
    """A run that only says where its LLM calls come from, as a context; what happens is told to nobody. For one whose
    events count, see `Service.run` and `Engine.run`. workflow: the name of one that the service knows."""
    return Run(_Nobody(), Owner(session=session, run=run, agent=agent), workflow)


def step(node: str, *, agent: str | None = None) -> Stretch:
    """A step at a node of the workflow; see `Run.step`."""
    return Stretch(lambda run: run.step(node, agent=agent), {"node": node, "agent": node if agent is None else agent})


def tool(name: str, *, call: str | None = None, eta: float | None = None) -> Stretch:
    """A tool's call; see `Run.tool`. eta: seconds."""
    return Stretch(lambda run: run.tool(name, call=call, eta=eta), {})


def branch(name: str, *, parent: str | None = None) -> Stretch:
    """A branch; see `Run.branch`."""
    return Stretch(lambda run: run.branch(name, parent=parent), {"branch": name, "parent": parent})


def barrier(node: str) -> list[Answer]:
    """An AND join was reached; see `Run.barrier`. Outside of a run: nothing."""
    run = current_run()
    return [] if run is None else run.barrier(node)


def event(name: str, **attributes: object) -> list[Answer]:
    """Any event, of where this thread or task is; see `Run.event`. Outside of a run: nothing. Raises InputFault for a
    name that is no event."""
    run = current_run()
    return [] if run is None else run.event(name, **{**run._where(), **attributes})


@contextmanager
def spans(*marks: Mark) -> Iterator[None]:
    """LLM calls in here say what runs of their prompt are, as `kvpolicy.mark` makes them."""
    place = inside(marks=marks)
    try:
        yield
    finally:
        leave(place)


@contextmanager
def said(**fields: Any) -> Iterator[None]:
    """LLM calls in here say these fields of a `client.scope.Scope`: `said(session="s1", turn=3)`. Raises TypeError for
    a field that there is none of."""
    place = inside(**fields)
    try:
        yield
    finally:
        leave(place)


def headers() -> dict[str, str]:
    """The headers that say where this thread or task is: `extra_headers=kvpolicy.headers()`."""
    return dict(_headers(current()))


def body() -> dict[str, Any]:
    """The same as a body field: `extra_body={"kvp": kvpolicy.body()}`."""
    return _body(current())


def base_url(url: str) -> str:
    """The service's address that says where this thread or task is, for clients that take nothing but an address."""
    return _base_url(url, current())
