"""`kvpolicy.step` and its kin around functions and generators: each is in its step to its end, its caller is not."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import AsyncGenerator, Callable, Iterator
from typing import Any

import pytest

import kvpolicy
from kvpolicy.client import once
from tests.client.conftest import Stack


@pytest.fixture(scope="module")
def served(stack: Callable[..., Stack]) -> Stack:
    return stack("any { priority: 50 }\n")


def test_a_generator_closed_in_another_thread_leaves_its_run_there() -> None:
    def numbers() -> Iterator[int]:
        with kvpolicy.run(session="generator"), kvpolicy.step("writer"):
            yield 1

    generator = numbers()
    contextvars.copy_context().run(next, generator)  # what a generator sets holds for whoever drives it
    thread = threading.Thread(target=generator.close)
    thread.start()
    thread.join()
    assert once.counts == {}


def test_functions_as_steps_and_tools() -> None:
    @kvpolicy.step("writer")
    def write() -> str:
        return kvpolicy.headers()["x-kvp-context"]

    @kvpolicy.tool("fetch")
    async def fetch() -> str:
        return kvpolicy.headers().get("x-kvp-context", "")

    with kvpolicy.run(session="s"):
        assert write() == write() == 'session="s", node="writer", agent="writer"'
        assert asyncio.run(fetch()) == 'session="s"'
    assert write() == 'node="writer", agent="writer"'


def here() -> str:
    return kvpolicy.headers().get("x-kvp-context", "")


OUTER = 'session="s", run="r"'
INNER = f'{OUTER}, node="writer", agent="writer"'


def test_a_generator_is_in_its_step_to_its_end_and_its_consumer_is_not(served: Stack) -> None:
    service = kvpolicy.Service(served.service)

    @kvpolicy.step("writer")
    def write(count: int) -> Iterator[str]:
        for _ in range(count):
            told = yield here()
            if told:
                yield told
        return "done"

    with service.run(session="s", run="r") as run:
        numbers = write(2)
        assert run.steps == []
        assert next(numbers) == INNER and here() == OUTER
        assert [step.node for step in run.steps] == ["writer"]
        with kvpolicy.branch("b"):
            assert numbers.send("sent") == "sent" and here() == f'{OUTER}, branch="b"'  # type: ignore[attr-defined]
            assert next(numbers) == INNER
        with pytest.raises(StopIteration) as end:
            next(numbers)
        assert end.value.value == "done" and run.steps == [] and here() == OUTER
        numbers = write(2)
        next(numbers)
        with pytest.raises(ZeroDivisionError):
            numbers.throw(ZeroDivisionError)  # type: ignore[attr-defined]
        assert run.steps == []
        numbers = write(2)
        next(numbers)
        numbers.close()  # type: ignore[attr-defined]
        assert run.steps == []
    assert service.flush() and service.counts["sent"] == 10 and once.counts == {}


def test_an_async_generator_is_in_its_step_to_its_end_and_its_consumer_is_not(served: Stack) -> None:
    service = kvpolicy.Service(served.service)
    caught: list[str] = []

    @kvpolicy.step("writer")
    async def write(count: int) -> AsyncGenerator[str, str]:
        for _ in range(count):
            await asyncio.sleep(0)
            try:
                told = yield here()
            except KeyError:
                told = "caught"
            if told:
                caught.append(told)

    async def main() -> None:
        async with service.run(session="s", run="r") as run:
            async for context in write(3):
                assert context == INNER and here() == OUTER
                assert [step.node for step in run.steps] == ["writer"]
            assert run.steps == []
            numbers = write(5)
            assert await anext(numbers) == INNER
            assert await asyncio.create_task(numbers.asend("sent")) == INNER  # another task drives it on
            assert await numbers.athrow(KeyError) == INNER
            assert caught == ["sent", "caught"] and here() == OUTER
            await numbers.aclose()
            assert run.steps == []
            numbers = write(5)
            await anext(numbers)
            with pytest.raises(ZeroDivisionError):
                await numbers.athrow(ZeroDivisionError)
            assert run.steps == [] and here() == OUTER

    asyncio.run(main())
    assert service.flush() and service.counts["sent"] == 8 and once.counts == {}


def test_decorators_of_a_generator_stand_around_one_another(served: Stack) -> None:
    events: list[str] = []

    class Heard(kvpolicy.Service):
        def event(self, event: str, **fields: Any) -> list[Any]:
            events.append(event)
            return super().event(event, **fields)

    service = Heard(served.service)

    @kvpolicy.step("writer")
    @kvpolicy.tool("fetch")
    def write() -> Iterator[str]:
        yield here()

    @kvpolicy.step("writer")
    @kvpolicy.tool("fetch")
    async def write_async() -> AsyncGenerator[str, None]:
        yield here()

    async def main() -> list[str]:
        return [context async for context in write_async()]

    stretches = ["step_start", "tool_call", "tool_result", "step_end"]
    with service.run(session="s", run="r"):
        assert list(write()) == [INNER] and events == ["workflow_start", *stretches]
        assert asyncio.run(main()) == [INNER] and events == ["workflow_start", *stretches, *stretches]


def test_a_run_within_a_generator_is_not_its_consumer_s(served: Stack) -> None:
    service = kvpolicy.Service(served.service)

    @kvpolicy.step("writer")
    def inner() -> Iterator[kvpolicy.Run | None]:
        with service.run(session="s", run="r2"):
            yield kvpolicy.current_run()
            yield kvpolicy.current_run()

    with service.run(session="s", run="r") as run:
        runs = inner()
        assert next(runs).owner.run == "r2"  # type: ignore[union-attr]
        assert kvpolicy.current_run() is run and here() == OUTER
        with service.run(session="s", run="r3") as other:
            assert next(runs).owner.run == "r2"  # type: ignore[union-attr]
            assert kvpolicy.current_run() is other
        assert list(runs) == [] and kvpolicy.current_run() is run
    assert once.counts == {}
