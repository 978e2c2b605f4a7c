"""Sessions of LlamaIndex workflows, the real package: what is said, a memory, and a `Context` that goes on."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

from llama_index.core.memory import Memory
from workflows import Context, Workflow, step
from workflows.events import StartEvent, StopEvent

import kvpolicy
from kvpolicy.adapters.frameworks import llama_index_sessions
from kvpolicy.adapters.frameworks.llama_index import watch
from tests.frameworks.conftest import Stack
from tests.frameworks.llama_flows import agent, cached_of, model, nothing_is_left, phases, served
from tests.frameworks.scenes import LONG, owners

__all__ = ["nothing_is_left", "served"]


class Counts(Workflow):
    """Its result: the session that a call in it would say, and how many runs its `Context` has seen."""

    @step
    async def only(self, ctx: Context, ev: StartEvent) -> StopEvent:
        seen = await ctx.store.get("seen", default=0) + 1
        await ctx.store.set("seen", seen)
        return StopEvent(result=(kvpolicy.headers()["x-kvp-context"].partition(",")[0], seen))


def test_a_context_is_a_session(served: Stack) -> None:
    flow = watch(Counts(timeout=30), kvpolicy.Service(served.service))

    async def main() -> list[Any]:
        first, other = Context(flow), Context(flow)
        told = [await flow.run(ctx=each) for each in (first, other, first, first)]
        handler = flow.run()  # the framework makes one, which the handler has
        told += [await handler, await flow.run(ctx=handler.ctx), await flow.run()]
        with kvpolicy.said(session="said"):
            told.append(await flow.run(ctx=first))  # what is said counts
        told.append(await flow.run(ctx=first))  # and stays
        restored = Context.from_dict(flow, first.to_dict())
        return [*told, await flow.run(ctx=restored)]

    told = asyncio.run(main())
    assert [seen for _, seen in told] == [1, 1, 2, 3, 1, 2, 1, 4, 5, 6]
    names = [session for session, _ in told]
    assert names[0] == names[2] == names[3]
    assert names[4] == names[5]
    assert names[7] == names[8] == 'session="said"'
    assert len({names[0], names[1], names[4], names[6], names[7], names[9]}) == 6


def test_contexts_at_once_do_not_mix(served: Stack) -> None:
    flow = watch(Counts(timeout=60), kvpolicy.Service(served.service))

    async def talk() -> set[str]:
        mine = Context(flow)
        return {(await flow.run(ctx=mine))[0] for _ in range(4)}

    async def main() -> list[set[str]]:
        return await asyncio.gather(*(talk() for _ in range(10)))

    told = asyncio.run(main())
    assert [len(each) for each in told] == [1] * 10 and len(set.union(*told)) == 10


def test_an_agent_that_goes_on_in_its_context_finds_its_prompt_again(served: Stack) -> None:
    service = kvpolicy.Service(served.service)

    async def main() -> tuple[int, set[str]]:
        talker = watch(agent("goes-on", model(served), streaming=False), service)
        context = Context(talker)
        await talker.run(user_msg="one " + LONG, ctx=context)
        found = cached_of(await talker.run(user_msg="two", ctx=context))
        assert await asyncio.to_thread(service.flush, 30)
        return found, {row["session"] for row in owners(served.service) if row["agent"] == "goes-on"}

    found, sessions = asyncio.run(main())
    assert found > 100 and len(sessions) == 1


def test_a_memory_is_a_session(served: Stack) -> None:
    service = kvpolicy.Service(served.service)

    async def main() -> int:
        talker = watch(agent("talker", model(served), streaming=False), service)
        memory = Memory.from_defaults(session_id="remembered", token_limit=40000)
        await talker.run(user_msg="one " + LONG, memory=memory)
        return cached_of(await talker.run(user_msg="two", memory=memory))

    assert asyncio.run(main()) > 100
    assert phases(served, "remembered") == {("talker", "ended")}


def test_a_context_that_is_gone_is_forgotten(served: Stack) -> None:
    flow = watch(Counts(timeout=30), kvpolicy.Service(served.service))

    async def main() -> None:
        await flow.run(ctx=Context(flow))

    tables = llama_index_sessions._contexts, llama_index_sessions._sessions
    gc.collect()
    before = [len(table) for table in tables]
    for _ in range(3):
        asyncio.run(main())
    gc.collect()
    assert all(len(table) <= known for table, known in zip(tables, before, strict=True))


def test_watching_again_follows_once(served: Stack) -> None:
    watch(Counts(timeout=30), kvpolicy.Service(served.service))
    followed = Workflow.run
    watch(Counts(timeout=30), kvpolicy.Service(served.service))
    assert Workflow.run is followed
