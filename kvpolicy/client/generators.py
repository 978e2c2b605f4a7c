"""Decorated generators: their step, tool or branch lasts until they end, and is theirs alone.

A generator runs in its consumer's context, so what it entered would be seen by the consumer between two values. `_Kept`
takes its scope and its run off while the generator waits and puts them on again when it goes on.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import AbstractContextManager
from functools import partial
from types import TracebackType
from typing import Any

from kvpolicy.client.scope import Scope, enter, placed
from kvpolicy.runs import Run, current_run, resume_run

Stretch = Callable[[], AbstractContextManager[Any]]


def decorated(function: Callable[..., Any], stretch: Stretch) -> Callable[..., Any]:
    """A generator function of the same kind, whose every generator is in a stretch of its own, from its first value to
    its end."""
    return _async(function, stretch) if inspect.isasyncgenfunction(function) else _sync(function, stretch)


class _Kept(AbstractContextManager[None]):
    """In it, scope and run are the generator's; behind it, those of whoever asked for the next value."""

    _mine: tuple[Scope, Run | None] | None = None  # None: it has not begun
    _theirs: tuple[Scope, Run | None]

    def __enter__(self) -> None:
        self._theirs = placed(), current_run()
        if self._mine is not None:
            _be(*self._mine)

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._mine = placed(), current_run()
        _be(*self._theirs)


def _be(scope: Scope, run: Run | None) -> None:
    enter(scope)
    resume_run(run)


def _sync(function: Callable[..., Any], stretch: Stretch) -> Callable[..., Any]:
    @functools.wraps(function)
    def generated(*args: Any, **named: Any) -> Generator[Any, Any, Any]:
        def told() -> Generator[Any, Any, Any]:
            with stretch():
                return (yield from function(*args, **named))

        inner, kept = told(), _Kept()
        resume: Callable[[], Any] = partial(next, inner)
        while True:
            try:
                with kept:
                    value = resume()
            except StopIteration as end:
                return end.value
            try:
                sent = yield value
            except GeneratorExit:
                with kept:
                    inner.close()
                raise
            except BaseException as fault:
                resume = partial(inner.throw, fault)
            else:
                resume = partial(inner.send, sent)

    return generated


def _async(function: Callable[..., Any], stretch: Stretch) -> Callable[..., Any]:
    @functools.wraps(function)
    async def generated(*args: Any, **named: Any) -> AsyncGenerator[Any, Any]:
        inner, kept, told = function(*args, **named), _Kept(), stretch()
        resume: Callable[[], Awaitable[Any]] = inner.__anext__
        with kept:
            told.__enter__()
        try:
            while True:
                try:
                    with kept:
                        value = await resume()
                except StopAsyncIteration:
                    return
                try:
                    sent = yield value
                except GeneratorExit:
                    with kept:
                        await inner.aclose()
                    raise
                except BaseException as fault:
                    resume = partial(inner.athrow, fault)
                else:
                    resume = partial(inner.asend, sent)
        finally:
            with kept:
                told.__exit__(None, None, None)

    return generated
