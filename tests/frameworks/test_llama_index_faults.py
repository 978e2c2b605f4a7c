"""What goes wrong in a LlamaIndex workflow, or beside it: it ends as without us, and so does what was begun."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from llama_index.core.tools import FunctionTool
from llama_index_instrumentation import get_dispatcher
from workflows import Workflow, step
from workflows.errors import WorkflowTimeoutError
from workflows.events import StartEvent, StopEvent
from workflows.retry_policy import retry_policy, stop_after_attempt, wait_none

import kvpolicy
from kvpolicy.adapters.frameworks import llama_index
from kvpolicy.adapters.frameworks.at_work import AtWork
from kvpolicy.adapters.frameworks.llama_index import watch
from kvpolicy.client import once
from tests.frameworks.conftest import Stack
from tests.frameworks.llama_flows import Kept, Looping, model, nothing_is_left, phases, run, served
from tests.frameworks.scenes import LONG

__all__ = ["nothing_is_left", "served"]


class Fails(Workflow):
    """Its step does what it is told to."""

    def __init__(self, work: Callable[[], Any], **more: Any) -> None:
        super().__init__(**{"timeout": 30, **more})
        self.work = work

    @step
    async def first(self, ev: StartEvent) -> Kept:
        return Kept()

    @step(retry_policy=retry_policy(wait=wait_none(), stop=stop_after_attempt(2)))
    async def broken(self, ev: Kept) -> StopEvent:
        return StopEvent(result=await self.work())


def test_a_step_that_raises_raises_what_it_raised_and_is_tried_again_as_before(served: Stack) -> None:
    service, tries = kvpolicy.Service(served.service), []

    async def work() -> None:
        tries.append(kvpolicy.headers()["x-kvp-context"].partition("node=")[2])
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        run(watch(Fails(work), service))
    assert len(tries) == 2 and tries[0] == tries[1]  # at once they were never: no branch
    assert service.flush(30) and service.counts["sent"] == 8  # the run, a step, another one twice


def test_a_run_that_is_cancelled_in_a_tool_ends(served: Stack) -> None:
    service, llm = kvpolicy.Service(served.service), model(served)

    async def main() -> None:
        inside = asyncio.Event()

        async def sleep() -> str:
            """Wait."""
            inside.set()
            await asyncio.sleep(60)
            return "never"

        async def work() -> None:
            await llm.acomplete(f"cancelled {LONG}")
            await FunctionTool.from_defaults(async_fn=sleep).acall()

        handler = watch(Fails(work), service, session="cancelled").run()
        await inside.wait()
        assert await asyncio.to_thread(service.flush, 30)
        assert phases(served, "cancelled") == {("broken", "tool_pause")}
        await handler.cancel_run()

    asyncio.run(main())
    assert service.flush(30) and phases(served, "cancelled") == {("broken", "ended")}


def test_a_task_that_is_cancelled_around_a_run_leaves_nothing_open(served: Stack) -> None:
    service = kvpolicy.Service(served.service)

    async def main() -> None:
        inside = asyncio.Event()

        async def work() -> None:
            inside.set()
            await asyncio.sleep(60)

        handler = watch(Fails(work), service).run()
        waiting = asyncio.ensure_future(handler)
        await inside.wait()
        handler.cancel()  # the deprecated way, at once and without the framework's own end
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(main())
    assert service.flush(30) and service.counts["sent"] == 6


def test_a_thread_that_runs_on_after_its_run_timed_out_has_ended_with_it(served: Stack) -> None:
    service = kvpolicy.Service(served.service)

    class Slow(Workflow):
        @step
        def endless(self, ev: StartEvent) -> StopEvent:
            assert go_on.wait(30)
            return StopEvent()

    go_on = threading.Event()

    async def main() -> None:
        try:
            with pytest.raises(WorkflowTimeoutError):
                await watch(Slow(timeout=0.3), service).run()
            assert llama_index._open == {}
            assert await asyncio.to_thread(service.flush, 30)
            assert service.counts["sent"] == 4
        finally:
            go_on.set()

    asyncio.run(main())  # waits for the thread
    assert service.flush(30) and service.counts["sent"] == 4  # its end is not told twice


def test_spans_that_end_twice_or_never_began_are_nothing(served: Stack) -> None:
    service = kvpolicy.Service(served.service)
    flow = watch(watch(Looping(served, "twice"), service), service)  # and watched twice
    run(flow)
    for name in ("Looping.run-0", "unknown"):
        llama_index._HANDLER.span_exit(name)
        llama_index._HANDLER.span_drop(name, err=ValueError())
    assert service.flush(30) and service.counts["sent"] == 2 + 2 * 9


def test_without_a_service_everything_goes_on(served: Stack) -> None:
    flow = watch(Looping(served, "alone"), kvpolicy.Service("http://127.0.0.1:9"))
    assert len(run(flow)) == 6
    once.counts.clear()


def test_what_breaks_on_our_side_is_said_once_and_costs_events_only(
    served: Stack, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*given: Any, **more: Any) -> Any:
        raise OSError("ours")

    service = kvpolicy.Service(served.service)
    monkeypatch.setattr(service, "run", broken)
    flow = watch(Looping(served, "broken"), service)
    assert [len(run(Looping(served, "whole"))), len(run(flow)), len(run(flow))] == [6, 6, 6 + 2]
    assert len([r for r in caplog.records if "llama_index.span_enter failed" in r.message]) == 1
    once.counts.clear()


def test_what_is_no_workflow_is_left_alone(served: Stack) -> None:
    for thing in (object(), 7, Looping):
        assert watch(thing, kvpolicy.Service(served.service)) is thing
    assert once.counts
    once.counts.clear()


def test_a_dispatcher_whose_handlers_were_replaced_gets_ours_with_the_next_watch(served: Stack) -> None:
    service, root = kvpolicy.Service(served.service), get_dispatcher()
    kept = root.span_handlers
    flow = watch(Looping(served, "replaced"), service)
    try:
        root.span_handlers = []
        assert len(run(flow)) == 6 and service.counts.get("sent", 0) == 0
        flow.rounds = 2
        run(watch(flow, service))
        assert service.flush(30) and service.counts["sent"] == 2 + 2 * 3
    finally:
        root.span_handlers = kept


def test_an_unknown_version_is_said_once(
    served: Stack, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from kvpolicy.adapters.frameworks import quiet

    monkeypatch.setattr(quiet, "version", lambda package: "9.1.0rc1")
    for _ in range(2):
        flow = watch(Looping(served, "version"), kvpolicy.Service(served.service))
    assert len(run(flow)) == 6
    assert len([r for r in caplog.records if "9.1.0rc1 is not among the tested versions" in r.message]) == 1
    once.counts.clear()


def test_what_fails_at_an_end_keeps_no_other_end_away(served: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[str] = []

    class Heard(kvpolicy.Service):
        def event(self, event: str, **fields: Any) -> list[Any]:
            events.append(event)
            return super().event(event, **fields)

    def broken(self: AtWork, *keys: Any) -> None:
        raise RuntimeError("ours")

    class One(Workflow):
        @step
        async def first(self, event: StartEvent) -> StopEvent:
            return StopEvent(result="done")

    monkeypatch.setattr(AtWork, "ends", broken)

    async def main() -> None:
        assert await watch(One(timeout=30), Heard(served.service), session="broken").run() == "done"

    asyncio.run(main())
    assert events == ["workflow_start", "step_start", "step_end", "workflow_end"]
    assert len(once.counts) == 1
    once.counts.clear()
