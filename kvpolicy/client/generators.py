"""Decorated generators: their step, tool or branch lasts until they end, and is theirs alone.

A generator runs in its consumer's context, so what it entered would be seen by the consumer between two values. `_Kept`
takes the scope off while the generator waits and puts it on again when it goes on.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import AbstractContextManager
from functools import partial
from types import TracebackType
from typing import Any

from kvpolicy.client.scope import Scope, enter, placed


class _Kept(AbstractContextManager[None]):
    """In it, the scope is the generator's; behind it, the one of whoever asked for the next value."""

    _mine: Scope | None = None  # None: it has not begun
    _theirs: Scope

    def __enter__(self) -> None:
        self._theirs = placed()
        if self._mine is not None:
            enter(self._mine)

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._mine = placed()
        enter(self._theirs)


def within(
    stretch: AbstractContextManager[Any], make: Callable[[], Generator[Any, Any, Any]]
) -> Generator[Any, Any, Any]:
    """The generator that `make` gives, in the stretch from its first value to its end."""

    def told() -> Generator[Any, Any, Any]:
        with stretch:
            return (yield from make())

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


async def within_async(
    stretch: AbstractContextManager[Any], make: Callable[[], AsyncGenerator[Any, Any]]
) -> AsyncGenerator[Any, Any]:
    """The same for an asynchronous one."""
    inner, kept = make(), _Kept()
    resume: Callable[[], Awaitable[Any]] = inner.__anext__
    with kept:
        stretch.__enter__()
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
            stretch.__exit__(None, None, None)
