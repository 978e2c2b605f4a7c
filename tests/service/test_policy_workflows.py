"""A workflow that the policy in force declares is shown by its name, in the form in which it may be put."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from kvpolicy.policy.checked import open_policy
from kvpolicy.workflow.graph import Graph
from tests.service.through import Through, through

POLICY = """policy office
workflow support {
  agent planner, writer, editor, critic of writer
  barrier all
  planner -> writer 0.7
  planner -> editor 0.3
  writer -> editor
  editor -> all
  loop all -> planner at most 3
}
head: system { priority: 80 }
"""


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Through]:
    file = tmp_path_factory.mktemp("policy") / "office.kvp"
    file.write_text(POLICY, encoding="utf-8")
    with through("--policy", str(file)) as made:
        made.policy = str(file)  # type: ignore[attr-defined]
        yield made


def test_a_policys_own_workflow_is_shown_as_it_may_be_put(gateway: Through) -> None:
    assert gateway.get("/v1/workflows") == {"workflows": ["support"]}
    shown = gateway.get("/v1/workflows/support")
    (block,) = open_policy([gateway.policy]).workflows  # type: ignore[attr-defined]
    assert Graph.sound(shown, "support").shape() == Graph.build(block, "support").shape()
    put = httpx.put(f"{gateway.url}/v1/workflows/copy", json=shown, timeout=30)
    assert put.status_code == 201, put.text
    assert put.json()["nodes"] == [node["name"] for node in shown["nodes"]]


def test_a_tenants_own_of_that_name_comes_before_it(gateway: Through) -> None:
    own, at = {"nodes": ["a", "b"], "edges": [["a", "b"]]}, f"{gateway.url}/v1/workflows/support"
    before = gateway.get("/v1/workflows/support")
    assert httpx.put(at, json=own, timeout=30).status_code == 201
    assert gateway.get("/v1/workflows/support") == own
    assert httpx.delete(at, timeout=30).status_code == 204
    assert gateway.get("/v1/workflows/support") == before
    assert httpx.delete(at, timeout=30).status_code == 404  # the policy's is the operator's
    assert httpx.get(f"{gateway.url}/v1/workflows/nosuch", timeout=30).status_code == 404
