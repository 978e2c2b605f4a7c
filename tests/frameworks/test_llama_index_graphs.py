"""Every shape that a LlamaIndex workflow can have, read as ours: distances equal a count by hand, and the real run's.

The counts are steps to the next use before the run begins, and where `walked` is given, after those steps were done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import inf
from typing import Any

import pytest
from workflows import Workflow, step
from workflows.events import StartEvent, StopEvent

import kvpolicy
from kvpolicy.adapters.frameworks.llama_index import graph
from kvpolicy.adapters.frameworks.llama_index_graph import fanned
from kvpolicy.workflow.graph import Graph
from kvpolicy.workflow.position import Position
from tests.frameworks.llama_shapes import (
    A,
    a_person_is_asked,
    a_person_is_asked_again,
    alternatives,
    chain,
    declared_backwards,
    diamond_that_does_not_wait,
    diamond_that_waits,
    ending_early,
    errors_are_handled,
    flow,
    listed,
    listed_kinds,
    listed_kinds_of_which_one_counts,
    listed_of_which_one_counts,
    listed_or_one,
    lists_within_lists,
    loop_declared_backwards,
    loop_of_three,
    loop_to_itself,
    loops_within_loops,
    one,
    own_start_and_stop,
    sent,
    two_ways_in,
)
from tests.frameworks.llama_written import inherited, sent_as_written, subclasses, with_a_resource

END = "end"

SHAPES: list[tuple[Callable[[], Workflow], dict[str, float]]] = [
    (one, {"a": 0, END: 1}),
    (chain, {"a": 0, "b": 1, "c": 2, END: 3}),
    (declared_backwards, {"a": 0, "b": 1, "c": 2, END: 3}),
    (own_start_and_stop, {"a": 0, "b": 1, END: 2}),
    (alternatives, {"a": 0, "b": 1, "c": 1, END: 2}),
    (ending_early, {"a": 0, "b": 1, "c": 2, END: 1}),
    (loop_of_three, {"plan": 0, "act": 1, "judge": 2, END: 3}),
    (loop_declared_backwards, {"plan": 0, "act": 1, "judge": 2, END: 3}),
    (loop_to_itself, {"a": 0, "b": 1, END: 2}),
    (loops_within_loops, {"a": 0, "b": 1, "c": 2, "d": 3, END: 4}),
    (two_ways_in, {"a": 0, "b": 0, "c": 1, END: 2}),
    (diamond_that_waits, {"a": 0, "b": 1, "b2": 2, "c": 1, "d": 3, END: 4}),
    (diamond_that_does_not_wait, {"a": 0, "b": 1, "b2": 2, "c": 1, "d": 2, END: 3}),
    (listed, {"plan": 0, "search": 1, "judge": 2, END: 3}),
    (listed_of_which_one_counts, {"plan": 0, "search": 1, "judge": 2, END: 3}),
    (listed_kinds, {"a": 0, "b": 1, "c": 1, "c2": 2, "d": 3, END: 4}),
    (listed_kinds_of_which_one_counts, {"a": 0, "b": 1, "c": 1, "c2": 2, "d": 2, END: 3}),
    (lists_within_lists, {"a": 0, "b": 1, "c": 2, "d": 3, "e": 4, END: 5}),
    (listed_or_one, {"a": 0, "b": 1, "c": 1, "d": 2, "e": 1, END: 2}),
    (sent, {"a": 0, "b": 1, "c": 1, "d": 2, END: 3}),
    (sent_as_written, {"a": 0, "b": 1, "c": 1, END: 2}),
    (subclasses, {"a": 0, "b": 1, "c": 1, END: 2}),
    (inherited, {"a": 0, "b": 1, "c": 2, END: 3}),
    (with_a_resource, {"a": 0, "b": 1, END: 2}),
    (a_person_is_asked, {"a": 0, "b": 1, END: 2}),
    (a_person_is_asked_again, {"a": 0, "b": 1, END: 2}),
    (errors_are_handled, {"a": 0, "b": 1, "again": 2, "c": 3, "last": 1, END: 2}),
]
# The last step runs, those before it are done.
WALKED: list[tuple[Callable[[], Workflow], list[str], dict[str, float]]] = [
    (chain, ["a", "b"], {"a": inf, "b": 0, "c": 1, END: 2}),
    (alternatives, ["a", "b"], {"a": inf, "b": 0, "c": inf, END: 1}),
    (loop_of_three, ["plan", "act", "judge"], {"plan": 1, "act": 2, "judge": 0, END: 1}),
    (loop_to_itself, ["a"], {"a": 0, "b": 1, END: 2}),
    (diamond_that_waits, ["a", "c", "b"], {"a": inf, "b": 0, "b2": 1, "c": inf, "d": 2, END: 3}),
    (diamond_that_does_not_wait, ["a", "c"], {"a": inf, "b": 1, "b2": 2, "c": 0, "d": 1, END: 2}),
    (listed_kinds, ["a", "b"], {"a": inf, "b": 0, "c": 1, "c2": 2, "d": 3, END: 4}),
    (listed_or_one, ["a", "b"], {"a": inf, "b": 0, "c": 1, "d": 2, "e": inf, END: 3}),
    (listed_or_one, ["a", "e"], {"a": inf, "b": inf, "c": inf, "d": inf, "e": 0, END: 1}),
    (sent_as_written, ["a", "b"], {"a": inf, "b": 0, "c": 1, END: 1}),
    (sent, ["a", "b"], {"a": inf, "b": 0, "c": 1, "d": 1, END: 2}),
    (subclasses, ["a", "b"], {"a": inf, "b": 0, "c": inf, END: 1}),
    (a_person_is_asked_again, ["a", "b"], {"a": inf, "b": 0, END: 1}),
    (errors_are_handled, ["a", "b"], {"a": inf, "b": 0, "again": 1, "c": 2, "last": 3, END: 1}),
]


@pytest.mark.parametrize("make, steps", SHAPES, ids=[make.__name__ for make, _ in SHAPES])
def test_distances_equal_a_count_by_hand(make: Callable[[], Workflow], steps: dict[str, float]) -> None:
    made = make()
    read = Graph.sound(graph(made))
    assert Position(read).all_steps() == steps
    assert kvpolicy.Engine(blocks=8).run(workflow=made).workflow == read.name  # the framework's own graph is taken


@pytest.mark.parametrize("make, walked, steps", WALKED, ids=[f"{m.__name__}-{'-'.join(w)}" for m, w, _ in WALKED])
def test_distances_on_the_way(make: Callable[[], Workflow], walked: list[str], steps: dict[str, float]) -> None:
    position = Position(Graph.sound(graph(make())))
    for node in walked[:-1]:
        position.start(node)
        position.end(node)
    position.start(walked[-1])
    assert position.all_steps() == steps


RUNS = [
    one, chain, declared_backwards, own_start_and_stop, ending_early, loop_of_three, loop_declared_backwards,
    loop_to_itself, loops_within_loops, two_ways_in, diamond_that_waits, listed, listed_kinds, lists_within_lists,
]  # fmt: skip


@pytest.mark.parametrize("make", RUNS)
def test_a_run_of_the_real_workflow_agrees_with_the_distances(make: Callable[[], Workflow]) -> None:
    """Each event counts the steps that led to it: what a step is given the first time is how far it was."""
    made: Any = make()

    async def main() -> None:
        await made.run()

    asyncio.run(main())
    counted = Position(Graph.sound(graph(made))).all_steps()
    assert made.seen == {name: counted[name] for name in made.seen} and len(made.seen) > 0


def test_what_a_list_gives_work_to_is_known() -> None:
    assert fanned(listed()) == {"search"} and fanned(chain()) == set()
    assert fanned(lists_within_lists()) == {"b", "c"} and fanned(listed_kinds()) == {"b", "c"}
    assert (
        fanned(listed_or_one()) == {"b", "c"} and fanned(flow(a=(StartEvent, list[A]), b=(list[A], StopEvent))) == set()
    )


def test_nobody_expects_an_error_until_one_was_seen() -> None:
    read = Graph.sound(graph(errors_are_handled()))
    chances = read.ways.chances(read.number["b"], set(), [])
    assert {read.names[read.targets[e]]: p for p, edges in chances for e in edges} == {END: 1.0, "again": 0.0}


def test_a_name_that_was_given_is_the_graph_s() -> None:
    class Named(Workflow):
        @step
        async def a(self, ev: StartEvent) -> StopEvent:
            return StopEvent()

    assert graph(Named())["name"] == "Named"
    assert graph(Named(workflow_name="research"))["name"] == "research"
