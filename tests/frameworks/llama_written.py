"""Shapes of LlamaIndex workflows that their own classes decide: events sent, subclasses, inherited steps, resources."""

from __future__ import annotations

from typing import Annotated

from workflows import Workflow, step
from workflows.events import StartEvent, StopEvent
from workflows.resource import Resource

from tests.frameworks.llama_shapes import A, B, Special


def sent_as_written() -> Workflow:
    class Flow(Workflow):
        @step
        async def a(self, ev: StartEvent) -> A | B | None:
            return None

        @step
        async def b(self, ev: A) -> StopEvent | None:
            return None

        @step
        async def c(self, ev: B) -> StopEvent | None:
            return None

    return Flow()


def subclasses() -> Workflow:
    class Flow(Workflow):
        @step
        async def a(self, ev: StartEvent) -> Special | B:
            return Special()

        @step(accept_event_subclasses=True)
        async def b(self, ev: A) -> StopEvent:
            return StopEvent()

        @step
        async def c(self, ev: B) -> StopEvent:
            return StopEvent()

    return Flow()


def inherited() -> Workflow:
    class Base(Workflow):
        @step
        async def a(self, ev: StartEvent) -> A:
            return A()

        @step
        async def b(self, ev: A) -> B:
            return B()

    class Flow(Base):
        @step
        async def c(self, ev: B) -> StopEvent:
            return StopEvent()

    return Flow()


def with_a_resource() -> Workflow:
    class Flow(Workflow):
        @step
        async def a(self, ev: StartEvent, tool: Annotated[dict, Resource(dict)]) -> A:
            return A()

        @step
        async def b(self, ev: A, tool: Annotated[dict, Resource(dict)]) -> StopEvent:
            return StopEvent()

    return Flow()
