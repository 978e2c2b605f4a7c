"""Workflows and runs as resources: graphs put by name, a tenant's own, and where its runs stand.

Mounted by `app` before the proxy. A request that says `workflow=NAME` follows the graph of that name; a run that has
begun keeps its graph. Graphs are kept in the store, so that they outlive the process and replicas have the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from math import inf
from typing import Any

from fastapi import APIRouter, Request, Response

from kvpolicy.client.graphs import document as document_of
from kvpolicy.faults import ERROR, InputFault, KvpError
from kvpolicy.policy.policy import Policy
from kvpolicy.request import Owner
from kvpolicy.service.edge import Refusal
from kvpolicy.service.meaning.annotations import name_of
from kvpolicy.service.own_routes import Entrance, answer, described
from kvpolicy.store.awaited import AwaitedStore
from kvpolicy.workflow.graph import BARRIER, Graph
from kvpolicy.workflow.phases import ENDED
from kvpolicy.workflow.state import RunState

KIND = "workflow"
LARGEST = 1 << 20  # bytes of a graph
MOST_NODES = 10_000
AT_ONCE = 100  # nodes that are looked at in one step, while no request goes on
LOOK_S = 5.0
_KEYS = ("nodes", "edges", "joins", "loops", "loop", "name")
EXAMPLE = {"nodes": ["plan", "write", "judge"], "edges": [["plan", "write"], ["write", "judge"]]}


class Workflows:
    """state: whose runs follow the graphs. tenants: those whose graphs other replicas may have put."""

    def __init__(self, state: RunState, store: AwaitedStore, tenants: Callable[[], tuple[str, ...]]) -> None:
        self._state, self._store, self._tenants = state, store, tenants
        self._documents: dict[tuple[str, str], Mapping[str, Any]] = {}

    def of_policy(self, policy: Policy) -> None:
        """The workflows that a policy's own text declares, for all tenants."""
        for block in policy.workflows:
            with suppress(KvpError):
                self._state.runs.name(block.name, Graph.build(block, block.name))

    def get(self, tenant: str, name: str) -> Mapping[str, Any] | None:
        """The document of a name: as it was put, or what a policy in force declares, in the form in which it may be
        put."""
        put = self._documents.get((tenant, name))
        if put is not None:
            return put
        followed = self._state.runs.named.find(tenant, name)
        return None if followed is None else document_of(followed.graph)

    def names(self, tenant: str) -> tuple[str, ...]:
        """Those that requests may name."""
        return self._state.runs.named.names(tenant)

    async def put(self, tenant: str, name: str, document: object) -> tuple[bool, Graph]:
        """A graph under a name. Returns whether it is new. Raises InputFault for one that is wrong."""
        new, graph = await self._take(tenant, name, document)
        assert isinstance(document, Mapping)
        await self._store.keep(KIND, tenant, name, {"name": name, "graph": document})
        return new, graph

    async def drop(self, tenant: str, name: str) -> bool:
        """Forget one. Returns whether it was there."""
        self._documents.pop((tenant, name), None)
        there = self._state.runs.named.drop(tenant, name)
        if there:
            await self._store.keep(KIND, tenant, name, {"name": name, "graph": None})
        return there

    async def look(self) -> None:
        """Take up what is in the store."""
        for tenant in self._tenants():
            for document in await self._store.kept(KIND, tenant):
                name, graph = document.body.get("name"), document.body.get("graph")
                if not isinstance(name, str) or self._documents.get((tenant, name)) == graph:
                    continue
                if graph is None:
                    self._documents.pop((tenant, name), None)
                    self._state.runs.named.drop(tenant, name)
                else:
                    with suppress(InputFault):
                        await self._take(tenant, name, graph)

    async def run(self) -> None:
        """Look again and again."""
        while True:
            with suppress(Exception):
                await self.look()
            await asyncio.sleep(LOOK_S)

    async def runs(self, tenant: str, run: str) -> dict[str, Any] | None:
        """Where a run stands, None where nobody of it is known. A run without a name goes by its session's."""
        state = self._state
        nameless = (owner for owner in state.run_mates(Owner(tenant, session=run)) if owner.run is None)
        owners = [*state.run_mates(Owner(tenant, run=run)), *nameless]
        if not owners:
            return None
        standing = state.runs.standing(owners[0])
        position = None if standing is None else standing.position
        nodes = []
        if position is not None:
            for number, node in enumerate(position.graph.names, 1):
                if number % AT_ONCE == 0:
                    await asyncio.sleep(0)
                if _is_end(position.graph, number - 1):
                    continue
                steps = position.steps(node)
                nodes.append({"name": node, "steps_to_next_use": "never" if steps == inf else steps})
        running = [] if standing is None else [name for name in standing.started if name is not None]
        return {
            "run": run,
            "workflow": state.runs.workflow(owners[0]) or (None if position is None else position.graph.name),
            "ended": all(state.phase(owner) == ENDED for owner in owners),
            "running": running,
            "nodes": nodes,
            "owners": [
                {"session": o.session, "agent": o.agent, "branch": o.branch, "phase": state.phase(o)}
                for o in owners[:1000]
            ],
        }

    async def _take(self, tenant: str, name: str, document: object) -> tuple[bool, Graph]:
        if not isinstance(document, Mapping):
            raise InputFault("a workflow is a JSON object with nodes, edges, joins, loops")
        unknown = next((key for key in document if key not in _KEYS), None)
        if unknown is not None or not document.get("nodes"):
            said = "nodes: missing" if unknown is None else f"unknown key {unknown!r}"
            raise InputFault(f"{said}; a workflow has nodes, edges, joins, loops")
        graph = await asyncio.to_thread(Graph.sound, {**document, "name": name}, name)
        if len(graph.names) > MOST_NODES:
            raise InputFault(f"nodes: {len(graph.names)}; a workflow has {MOST_NODES} at most")
        new = self._state.runs.name(name, graph, tenant)
        self._documents[tenant, name] = document
        return new, graph


def _is_end(graph: Graph, node: int) -> bool:
    """Whether it is no step but the end itself: any way reaches it, nothing leads on, and no prompt is kept for it."""
    is_barrier = graph.nodes[graph.names[node]] == BARRIER
    return is_barrier and not graph.waits_for_all[node] and not graph.out_of[node]


def make_workflows(workflows: Workflows, entrance: Entrance) -> APIRouter:
    """The routes. entrance: who may ask."""
    routes = APIRouter()

    @routes.get("/v1/workflows", summary="Names that requests may give as their workflow")
    async def get_names(request: Request) -> Response:
        with entrance.of(request) as tenant:
            return answer({"workflows": list(workflows.names(tenant.name))})

    @routes.put("/v1/workflows/{name}", summary="A workflow's graph, for the runs that begin from now on",
                openapi_extra=described({"a chain": EXAMPLE}))  # fmt: skip
    async def put_workflow(request: Request, name: str) -> Response:
        with entrance.of(request) as tenant:
            document = await entrance.document(request, LARGEST)
            new, graph = await workflows.put(tenant.name, _name(name), document)
            found = await asyncio.to_thread(lambda: list(graph.check()))
            notices = [d.as_json() for d in found if d.severity != ERROR]
            return answer({"name": name, "nodes": list(graph.names), "notices": notices}, 201 if new else 200)

    @routes.get("/v1/workflows/{name}", summary="A workflow's graph as it was put, or as the policy has it")
    async def get_workflow(request: Request, name: str) -> Response:
        with entrance.of(request) as tenant:
            found = workflows.get(tenant.name, name)
            if found is None:
                raise Refusal(404, "not_found_error", f"there is no workflow {name!r} of this tenant")
            return answer(found)

    @routes.delete("/v1/workflows/{name}", summary="Forget a workflow; runs that follow it keep it", status_code=204)
    async def delete_workflow(request: Request, name: str) -> Response:
        with entrance.of(request) as tenant:
            if not await workflows.drop(tenant.name, name):
                raise Refusal(404, "not_found_error", f"there is no workflow {name!r} of this tenant")
            return Response(status_code=204)

    @routes.get("/v1/runs/{run}", summary="Where a run stands")
    async def get_run(request: Request, run: str) -> Response:
        with entrance.of(request) as tenant:
            found = await workflows.runs(tenant.name, run)
            if found is None:
                raise Refusal(404, "not_found_error", f"nothing is known of a run or a session {run!r}")
            return answer(found)

    return routes


def _name(text: str) -> str:
    name = name_of(text)
    if name is None:
        raise Refusal(400, "invalid_request_error", "name: 1 to 256 printable characters are needed")
    return name
