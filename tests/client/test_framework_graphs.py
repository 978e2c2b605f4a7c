"""Graphs of frameworks as documents, and their runs at the service: the end of a run is no node that anybody named."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import openai
import pytest

import kvpolicy
from kvpolicy.adapters.frameworks.shape import END, closed
from kvpolicy.workflow.graph import Graph
from kvpolicy.workflow.position import Position
from tests.client.conftest import Stack


def chain(*nodes: str, **more: Any) -> dict[str, Any]:
    ways = [*pairwise(nodes), (nodes[-1], END)]
    return closed("chain", dict.fromkeys(nodes), ways, nodes[:1], **more)


@pytest.mark.parametrize(
    ("nodes", "end"), [(("a", "b"), "end"), (("a", "end"), "end 2"), (("a", "end", "end 2"), "end 3")]
)
def test_the_end_has_a_name_that_no_node_has(nodes: tuple[str, ...], end: str) -> None:
    document = chain(*nodes, sure=[(nodes[-1], END)], chances={(nodes[-1], END): 1.0})
    assert Position(Graph.sound(document)).all_steps() == {name: steps for steps, name in enumerate((*nodes, end))}
    assert document["edges"][-1] == {"from": nodes[-1], "to": end, "group": nodes[-1], "probability": 1.0}


def test_a_run_says_whether_it_ended_and_lists_no_end(stack: Callable[..., Stack]) -> None:
    served = stack("any { priority: 50 }\n")
    service = kvpolicy.Service(served.service)
    client = kvpolicy.annotate(openai.OpenAI(base_url=service.openai_url, api_key="none"))
    document = chain("plan", "write")
    document["nodes"].append({"name": "joined", "role": "barrier"})  # one that waits is its author's, and stays
    document["edges"].append({"from": "write", "to": "joined"})
    with service.run(document, session="ends", run="ends") as run, run.step("plan"):
        client.chat.completions.create(model="sim", messages=[{"role": "user", "content": "one two"}], max_tokens=1)
        assert service.flush()
        told = service._ask("GET", "/v1/runs/ends")
        assert not told["ended"]
        assert {row["name"]: row["steps_to_next_use"] for row in told["nodes"]} == {"plan": 0, "write": 1, "joined": 2}
    assert service.flush()
    told = service._ask("GET", "/v1/runs/ends")
    assert told["ended"] and {row["steps_to_next_use"] for row in told["nodes"]} == {"never"}
