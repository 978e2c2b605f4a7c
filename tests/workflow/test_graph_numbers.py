"""Numbers in a graph that a caller brings: refused where they stand, whatever they are."""

from __future__ import annotations

import json
from typing import Any

import networkx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvpolicy.faults import InputFault
from kvpolicy.language.parse import parse
from kvpolicy.request import Owner
from kvpolicy.workflow.events import Event
from kvpolicy.workflow.graph import Graph
from kvpolicy.workflow.state import RunState

HUGE = 10**5000
NO_COUNT = ["²", "9" * 5000, HUGE, -HUGE, -3, "-3", 0, "0", True, False, 2.5, "2.5", 3.0, float("nan"), "", " ", [], {}]
NO_BOUND = [HUGE, -HUGE, -1, True, False, 2.5, 3.0, float("nan"), "3", "²", "n", [], {}]
NO_PROBABILITY = [HUGE, -HUGE, -0.1, 1.1, True, False, float("nan"), float("inf"), "0.5", "50%", [], {}]


def edge(**told: object) -> dict[str, Any]:
    return {"nodes": ["a", "b", "c"], "edges": [["a", "c"], {"from": "a", "to": "b", **told}, ["b", "c"]]}


def loop(**told: object) -> dict[str, Any]:
    return {"nodes": ["a", "b", "c"], "edges": [["a", "b"], ["b", "c"]], "loops": [{"from": "b", "to": "a", **told}]}


def rounds(value: object) -> dict[str, Any]:
    return {"nodes": ["a", "b"], "loop": {"nodes": ["a", "b"], "max_rounds": value}}


def drawn(**told: object) -> networkx.DiGraph:
    made = networkx.DiGraph([("a", "b"), ("b", "c")], name="w")
    made.add_edge("a", "b", **told)
    return made


def refusal(document: object) -> str:
    with pytest.raises(InputFault) as fault:
        Graph.build(document, "w")
    assert len(str(fault.value)) < 400
    return str(fault.value)


@pytest.mark.parametrize("value", NO_COUNT, ids=range(len(NO_COUNT)))
def test_what_is_no_count_of_branches_is_refused_with_its_place(value: object) -> None:
    assert refusal(edge(times=value)).startswith("workflow w: edges[1] (a -> b): times: ")
    assert "(b -> a): times: " in refusal(loop(times=value))
    assert "(a -> b): times: " in refusal(drawn(times=value))


@pytest.mark.parametrize("value", NO_BOUND, ids=range(len(NO_BOUND)))
def test_what_is_no_bound_is_refused_with_its_place(value: object) -> None:
    assert refusal(loop(at_most=value)).startswith("workflow w: loops[0] (b -> a): at_most: ")
    assert refusal(edge(at_most=value)).startswith("workflow w: edges[1] (a -> b): at_most: ")
    assert refusal(rounds(value)).startswith("workflow w: loops[0]: max_rounds: ")
    assert "(a -> b): at_most: " in refusal(drawn(at_most=value, loop=True))


@pytest.mark.parametrize("value", NO_PROBABILITY, ids=range(len(NO_PROBABILITY)))
def test_what_is_no_probability_is_refused_with_its_place(value: object) -> None:
    assert refusal(edge(probability=value)).startswith("workflow w: edges[1] (a -> b): probability: ")
    assert "(b -> a): probability: " in refusal(loop(probability=value))
    assert "(a -> b): probability: " in refusal(drawn(probability=value))


def test_one_within_a_nested_workflow_is_named_by_it() -> None:
    nested = {"nodes": ["plan", {"name": "research", "workflow": edge(times=-3)}], "edges": [["plan", "research"]]}
    assert refusal(nested).startswith("workflow research: edges[1] (a -> b): times: -3 is no count")


def test_what_has_no_text_is_refused_all_the_same() -> None:
    """Of a number of thousands of digits Python makes none."""
    for document in (
        {"nodes": [HUGE]},
        {"nodes": [{"name": "a", "parent": HUGE}]},
        {"nodes": ["a"], "edges": [HUGE]},
        {"nodes": ["a"], "edges": [{"from": "a", "to": "a", "group": HUGE}]},
        {"nodes": ["a"], "name": HUGE},
    ):
        assert "too long to show" in refusal(document)


@pytest.mark.parametrize(("value", "kept"), [(3, "3"), ("3", "3"), ("03", "3"), ("n", "n"), ("_n", "_n"), (None, None)])
def test_counts_and_names_of_counts(value: object, kept: str | None) -> None:
    for graph in (Graph.build(edge(times=value)), Graph.build(drawn(times=value))):
        assert next(e.times for e in graph.edges if (e.source, e.target) == ("a", "b")) == kept


def test_numbers_of_numpy_are_numbers() -> None:
    numpy = pytest.importorskip("numpy")
    told = {"times": numpy.int64(3), "at_most": numpy.int32(2), "probability": numpy.float32(0.5)}
    graph = Graph.build(drawn(**told))
    (found,) = (e for e in graph.edges if e.source == "a")
    assert (found.times, found.at_most, found.probability) == ("3", 2, 0.5)
    json.dumps([found.at_most, found.probability])  # and no longer numpy's


@pytest.mark.parametrize("count", ["0", '"²"', '"-3"', '""', "9" * 5000])
def test_a_count_of_a_block_is_a_fault_where_it_stands(count: str) -> None:
    file = parse(f"workflow w {{\n  agent a, b\n  a -> b * {count}\n}}\n", "w.kvp").file
    assert file is not None
    graph = Graph.build(file.workflows[0])
    (fault,) = graph.check()
    assert (fault.name, fault.place.line, fault.place.column) == ("out-of-range", 3, 12)
    assert "is no count of branches" in fault.message and len(fault.message) < 70
    assert fault.fix is not None and "a whole number from 1 to 999,999,999" in fault.fix
    assert graph.times == [None, None]


numbers = st.one_of(st.integers(-5, 5), st.floats(), st.booleans(), st.text(max_size=3), st.just(HUGE), st.none())


@given(numbers, numbers, numbers, st.lists(st.sampled_from(("+a", "-a", "+b", "-b")), max_size=6))
def test_what_is_taken_breaks_nothing_later(
    times: object, at_most: object, probability: object, steps: list[str]
) -> None:
    document = edge(times=times, at_most=at_most, probability=probability)
    try:
        graph = Graph.build(document)
    except InputFault as fault:
        assert "workflow: edges[1] (a -> b): " in str(fault)
        return
    state = RunState(graph=graph)
    for at, told in enumerate(steps):
        name = "step_start" if told[0] == "+" else "step_end"
        state.observe(Event(float(at), name, {"tenant": "t", "run": "r", "node": told[1:]}))
    for node in graph.names:
        owner = Owner("t", None, "r", node)
        state.runs.steps(owner, node)
        state.runs.chance(owner, node)
        state.runs.fan_out(owner, node)
