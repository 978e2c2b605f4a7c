"""Runs of OpenAI's Agents SDK that fail, are cancelled or left: nobody stays at work, and the next is no branch."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from agents import Runner, function_tool

import kvpolicy
from kvpolicy.adapters.frameworks.at_work import at_work
from kvpolicy.adapters.frameworks.openai_agents import watch
from kvpolicy.client import once
from tests.frameworks.conftest import Stack
from tests.frameworks.openai_agents_models import WITHIN_S, Model, agent, served
from tests.frameworks.scenes import owners

__all__ = ["served"]


def test_a_run_within_that_fails_or_is_given_what_are_no_hooks(served: Stack) -> None:
    service, outer = kvpolicy.Service(served.service), Model(served, "ask")

    class Broken(Model):
        async def get_response(self, **named: Any) -> Any:
            raise ZeroDivisionError("mine")

    boss = agent("boss", outer, agent("broken", Broken(served)).as_tool("ask", "Asks."))
    wrong: Any = object()

    async def main() -> dict[Any, Any]:
        async with watch(boss, service, session="fails") as hooks:
            await Runner.run(boss, "Go.", hooks=hooks)  # the SDK tells the model
            with pytest.raises(TypeError, match="RunHooks"):
                await Runner.run(boss, "Go.", hooks=wrong)
            return dict(at_work(hooks.run).keys)

    assert asyncio.run(main()) == {}
    assert service.flush(WITHIN_S) and once.counts == {}
    assert {row["phase"] for row in owners(served.service, session="fails")} == {"ended"}


@pytest.mark.parametrize("way", ["cancelled", "broken"])
def test_a_stream_within_that_nobody_reads_to_its_end(served: Stack, way: str) -> None:
    """It is over when the SDK is done with it: the next of its name is the same owner, no branch beside it."""
    service, quick = kvpolicy.Service(served.service), Model(served)

    class Slow(Model):
        async def stream_response(self, *given: Any, **named: Any) -> Any:
            async for event in super().stream_response(*given, **named):
                yield event
                await asyncio.sleep(WITHIN_S if way == "cancelled" else 0)
                raise ZeroDivisionError("mine")

    async def main() -> dict[Any, Any]:
        boss = agent("boss", Model(served, "ask"), ask)
        async with watch(boss, service, session=f"unread-{way}") as hooks:
            await Runner.run(boss, "Go.", hooks=hooks)
            return dict(at_work(hooks.run).keys)

    @function_tool
    async def ask(input: str) -> str:
        """Streams an agent, and reads its beginning."""
        stream = Runner.run_streamed(agent("inner", Slow(served)), "Go.")
        async for event in stream.stream_events():
            if event.type == "raw_response_event":
                break
        if way == "cancelled":
            stream.cancel()
        assert stream.run_loop_task is not None
        await asyncio.wait([stream.run_loop_task], timeout=WITHIN_S)
        return str((await Runner.run(agent("inner", quick), "Go.")).final_output)

    assert asyncio.run(main()) == {}
    assert quick.said == [("inner", None)]
    assert service.flush(WITHIN_S) and once.counts == {}
    rows = owners(served.service, session=f"unread-{way}")
    assert {(row["agent"], row["branch"], row["phase"]) for row in rows} == {
        ("boss", None, "ended"),
        ("inner", None, "ended"),
    }


@pytest.mark.parametrize("way", ["failed", "cancelled"])
def test_a_watched_run_that_is_tried_again(served: Stack, way: str) -> None:
    service, quick, reached = kvpolicy.Service(served.service), Model(served), asyncio.Event()

    class Broken(Model):
        async def get_response(self, **named: Any) -> Any:
            raise ZeroDivisionError("mine")

        async def stream_response(self, *given: Any, **named: Any) -> Any:
            reached.set()
            await asyncio.sleep(WITHIN_S)
            yield None

    first = agent("again", Broken(served))

    async def main() -> None:
        async with watch(first, service, session=f"again-{way}") as hooks:
            if way == "failed":
                with pytest.raises(ZeroDivisionError):
                    await Runner.run(first, "Go.", hooks=hooks)
            else:
                stream = Runner.run_streamed(first, "Go.", hooks=hooks)
                await asyncio.wait_for(reached.wait(), WITHIN_S)
                stream.cancel()
                assert [event async for event in stream.stream_events()] == []
            await Runner.run(agent("again", quick), "Go.", hooks=hooks)

    asyncio.run(main())
    assert quick.said == [("again", None)]
    assert service.flush(WITHIN_S) and once.counts == {}
