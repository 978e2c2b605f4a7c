"""Every shape that a LlamaIndex workflow can have, as a workflow each: `test_llama_index_graphs` counts in them."""

from __future__ import annotations

import inspect
from typing import Annotated, Any

from workflows import Workflow, catch_error, step
from workflows.collect import Collect, Take
from workflows.events import (
    Event,
    HumanResponseEvent,
    InputRequiredEvent,
    StartEvent,
    StepFailedEvent,
    StopEvent,
)


class Deep(Event):
    """depth: of the step that gave it."""

    depth: int = -1


class A(Deep): ...


class B(Deep): ...


class C(Deep): ...


class D(Deep): ...


class Again(Deep): ...


class Inner(Deep): ...


class Special(A): ...


class Begin(StartEvent): ...


class Over(StopEvent): ...


class Ask(InputRequiredEvent): ...


class Reply(HumanResponseEvent): ...


def flow(**steps: tuple[Any, Any]) -> Workflow:
    """A workflow of steps, each with what it takes (a tuple: several parameters) and what it gives. A step gives the
    first of its alternatives the first time, and the last one from then on."""
    seen: dict[str, int] = {}
    kind: Any = type("Flow", (Workflow,), {"seen": seen})

    def make(name: str, takes: Any, gives: Any) -> None:
        async def call(**given: Any) -> Any:
            taken = [e for one in given.values() for e in (one if isinstance(one, list) else [one])]
            depth = max((getattr(e, "depth", -1) for e in taken), default=-1) + 1
            first = name not in seen
            seen.setdefault(name, depth)
            if getattr(gives, "__origin__", None) is list:
                return [k(depth=depth) for k in getattr(gives.__args__[0], "__args__", gives.__args__)]
            kinds = getattr(gives, "__args__", (gives,))
            last = kinds[0 if first else -1]
            return last() if issubclass(last, StopEvent) else last(depth=depth)

        params = {f"e{n}": one for n, one in enumerate(takes if isinstance(takes, tuple) else (takes,))}
        positional = inspect.Parameter.POSITIONAL_OR_KEYWORD
        listed = [inspect.Parameter(key, positional, annotation=one) for key, one in params.items()]
        call.__name__ = call.__qualname__ = name
        call.__annotations__ = {**params, "return": gives}
        call.__signature__ = inspect.Signature(listed, return_annotation=gives)  # type: ignore[attr-defined]
        step(workflow=kind)(call)

    for name, (takes, gives) in steps.items():
        make(name, takes, gives)
    return kind(timeout=10)


def one() -> Workflow:
    return flow(a=(StartEvent, StopEvent))


def chain() -> Workflow:
    return flow(a=(StartEvent, A), b=(A, B), c=(B, StopEvent))


def declared_backwards() -> Workflow:
    return flow(c=(B, StopEvent), b=(A, B), a=(StartEvent, A))


def own_start_and_stop() -> Workflow:
    return flow(a=(Begin, A), b=(A, Over))


def alternatives() -> Workflow:
    return flow(a=(StartEvent, A | B), b=(A, StopEvent), c=(B, StopEvent))


def ending_early() -> Workflow:
    return flow(a=(StartEvent, A | StopEvent), b=(A, B), c=(B, StopEvent))


def loop_of_three() -> Workflow:
    return flow(plan=(StartEvent | Again, A), act=(A, B), judge=(B, Again | StopEvent))


def loop_declared_backwards() -> Workflow:
    return flow(judge=(B, Again | StopEvent), act=(A, B), plan=(StartEvent | Again, A))


def loop_to_itself() -> Workflow:
    return flow(a=(StartEvent | Again, B | Again), b=(B, StopEvent))


def loops_within_loops() -> Workflow:
    return flow(a=(StartEvent | Again, A), b=(A | Inner, B), c=(B, C | Inner), d=(C, StopEvent | Again))


def two_ways_in() -> Workflow:
    return flow(a=(StartEvent, A), b=(StartEvent, B), c=((A, B), StopEvent))


def diamond_that_waits() -> Workflow:
    return flow(a=(StartEvent, A), b=(A, B), b2=(B, C), c=(A, D), d=((C, D), StopEvent))


def diamond_that_does_not_wait() -> Workflow:
    return flow(a=(StartEvent, A), b=(A, B), b2=(B, C), c=(A, D), d=(C | D, StopEvent))


def listed() -> Workflow:
    return flow(plan=(StartEvent, list[A]), search=(A, B), judge=(list[B], StopEvent))


def listed_of_which_one_counts() -> Workflow:
    return flow(plan=(StartEvent, list[A]), search=(A, B), judge=(Annotated[list[B], Collect(Take(1))], StopEvent))


def listed_kinds() -> Workflow:
    return flow(a=(StartEvent, list[A | B]), b=(A, C), c=(B, D), c2=(D, Again), d=(list[C | Again], StopEvent))


def listed_kinds_of_which_one_counts() -> Workflow:
    first = Annotated[list[C | Again], Collect(Take(1))]
    return flow(a=(StartEvent, list[A | B]), b=(A, C), c=(B, D), c2=(D, Again), d=(first, StopEvent))


def lists_within_lists() -> Workflow:
    return flow(a=(StartEvent, list[A]), b=(A, list[B]), c=(B, C), d=(list[C], D), e=(list[D], StopEvent))


def listed_or_one() -> Workflow:
    return flow(a=(StartEvent, list[A | B] | C), b=(A, D), c=(B, D), d=(list[D], StopEvent), e=(C, StopEvent))


def sent() -> Workflow:
    return flow(a=(StartEvent, A | B | None), b=(A, C), c=(B, C), d=(C, StopEvent | None))


def a_person_is_asked() -> Workflow:
    return flow(a=(StartEvent, Ask), b=(Reply, StopEvent))


def a_person_is_asked_again() -> Workflow:
    return flow(a=(StartEvent | Reply, Ask | A), b=(A, StopEvent))


def errors_are_handled() -> Workflow:
    class Flow(Workflow):
        @step
        async def a(self, ev: StartEvent) -> A:
            return A()

        @step
        async def b(self, ev: A) -> StopEvent:
            return StopEvent()

        @catch_error(for_steps=["b"])
        async def again(self, ev: StepFailedEvent) -> C:
            return C()

        @step
        async def c(self, ev: C) -> StopEvent:
            return StopEvent()

        @catch_error
        async def last(self, ev: StepFailedEvent) -> StopEvent:
            return StopEvent()

    return Flow()
