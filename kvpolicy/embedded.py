"""`kvpolicy.Engine`: an engine under a policy, from Python (`awaited` has `kvpolicy.AsyncEngine`).

It comes from an adapter (`memory` is the embedded one); requests, answers and events go to it, with the time as an
argument or from the engine's clock. One lock an engine: agent frameworks call from many threads. What callers hand
over is read and checked in `calling`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from os import PathLike
from threading import RLock
from typing import Any, Protocol, cast

from kvpolicy.adapter import find_adapter
from kvpolicy.calling import (
    asked_graph,
    asked_request,
    check_hashes,
    check_owner,
    check_tokens,
    check_tool_calls,
)
from kvpolicy.claims.answers import Answer
from kvpolicy.claims.ledger import BUDGET
from kvpolicy.directive import Plan
from kvpolicy.faults import InputFault
from kvpolicy.hashes import block_hashes
from kvpolicy.loading import Source, load
from kvpolicy.plan import plan as make_plan
from kvpolicy.policy.policy import Policy
from kvpolicy.request import Owner, Request, Span
from kvpolicy.runs import Run
from kvpolicy.steering import Outcome, Steering
from kvpolicy.steering.scope import salt
from kvpolicy.workflow.events import Event, check_fields, event_from_row
from kvpolicy.workflow.state import ToolCall


class _Opens(Protocol):
    """An adapter whose engine runs in this process."""

    def open(
        self,
        policy: Policy | None,
        *,
        blocks: int,
        block_size: int,
        cpu_blocks: int,
        disk_blocks: int,
        budget: float,
    ) -> Steering: ...


class Engine:
    """An engine under a policy.

    policy: a Policy, whatever `load` takes, or None for the engine alone. adapter: the name of one whose engine runs
    in this process. blocks, cpu_blocks, disk_blocks: sizes of the tiers, in blocks; block_size: tokens of a block.
    budget: the share of `blocks` that may be protected where the policy states none. clock: seconds, for calls that
    state no `now`; by default those since the engine began. prior: learned times that a new tenant begins with (see
    `export_learned`); by default with none. Raises PolicyFault and InputFault as `load` does, and InputFault for an
    adapter that is not there, or that only carries plans to an engine elsewhere.
    """

    def __init__(
        self,
        policy: Policy | Source | None = None,
        adapter: str = "memory",
        *,
        blocks: int = 4096,
        block_size: int = 16,
        cpu_blocks: int = 0,
        disk_blocks: int = 0,
        budget: float = BUDGET,
        clock: Callable[[], float] | None = None,
        prior: Mapping[str, Any] | None = None,
    ) -> None:
        self.policy = load(policy) if isinstance(policy, str | PathLike) else policy
        found = find_adapter(adapter)
        if not hasattr(found, "open"):
            raise InputFault(f"adapter '{adapter}' carries plans to an engine elsewhere; it starts none here")
        if block_size < 1:
            raise InputFault(f"a block has at least one token, not {block_size}")
        self.adapter = found
        self.steering = cast(_Opens, found).open(
            self.policy,
            blocks=blocks,
            block_size=block_size,
            cpu_blocks=cpu_blocks,
            disk_blocks=disk_blocks,
            budget=budget,
        )
        self.steering.state.learned.begin_with(prior)
        self.block_size = block_size
        began = time.monotonic()
        self._clock = clock if clock is not None else lambda: time.monotonic() - began
        self._lock = RLock()

    # --- planning -----------------------------------------------------------------------------------------

    def plan(self, request: Request | Mapping[str, Any], now: float | None = None) -> Plan:
        """What the policy wants for a request at `now` (seconds), in the state of its owner. Nothing is done.

        request: a Request, or its JSON form (see `kvp plan`). Raises InputFault where that cannot be read.
        """
        asked = asked_request(request, self.block_size)
        with self._lock:
            at = self._at(now)
            self.steering.advance(at)
            return make_plan(self.policy, asked, self.steering.state, at)

    # --- requests -----------------------------------------------------------------------------------------

    def request(
        self,
        request: Request | Mapping[str, Any],
        tokens: Sequence[int] | None = None,
        *,
        hashes: Sequence[Hashable] | None = None,
        now: float | None = None,
    ) -> Outcome:
        """A request starts: it is planned, claimed, and its blocks are looked up and stored.

        tokens: its token ids; or hashes: those of its blocks, prefix-chained, where an engine tells them. Returns how
        many blocks were cached, what was stored and evicted, the plan, and one answer for each hint. Raises InputFault
        for a request that cannot be read.
        """
        check_tokens(tokens)
        asked = asked_request(request, self.block_size)
        if hashes is None:
            if tokens is None:
                raise InputFault("a request needs its token ids, or the hashes of its blocks")
            if len(tokens) != asked.tokens:
                raise InputFault(f"request {asked.id} states {asked.tokens} tokens, and {len(tokens)} were given")
        else:
            check_hashes(hashes, asked)
        with self._lock:
            at = self._at(now)
            if hashes is None:
                scope = salt(self.policy, asked, self.steering.state, at)
                extra = {**asked.extra, "model": asked.model, "salt": scope}
                hashes = block_hashes(tokens or (), asked.block_size, extra)
            return self.steering.request(asked, hashes, at)

    def finish(
        self,
        request_id: str,
        *,
        tool_calls: Sequence[ToolCall] = (),
        finished: bool | None = None,
        parts: Sequence[Span] = (),
        now: float | None = None,
    ) -> bool:
        """An answer is done. tool_calls: the tools it asked for, as names or (name, call id). finished True: a human
        is next; False: it was cut short; None: not known yet. parts: spans that tell its output apart (reasoning,
        text), in tokens of the prompt with the answer behind it. False for a request that does not run. Raises
        InputFault for parts that do not lie in the output, and for tool calls that are no list of them."""
        check_tool_calls(tool_calls)
        with self._lock:
            at = self._at(now)
            return self.steering.finish(request_id, at, tool_calls=tool_calls, finished=finished, parts=parts)

    def cancel(self, request_id: str, *, now: float | None = None) -> bool:
        """A request is withdrawn. False for one that does not run."""
        with self._lock:
            return self.steering.cancel(request_id, self._at(now))

    # --- events and time ----------------------------------------------------------------------------------

    def event(self, event: str | Event, *, now: float | None = None, **attributes: object) -> list[Answer]:
        """Something happened: an event's name with the owner fields and facts it states (`session="s1"`,
        `tool="grep"`), or an Event. Returns the answers. Raises InputFault for a name that is no event, or a field that
        no event has."""
        if isinstance(event, Event):
            check_fields(event.name, event.attributes)
        with self._lock:
            at = self._at(now)
            told = event if isinstance(event, Event) else event_from_row({**attributes, "event": event}, at)
            return self.steering.event(told, at)

    def advance(self, now: float | None = None) -> None:
        """Time passes: what lapses until `now` (seconds) lapses."""
        with self._lock:
            self.steering.advance(self._at(now))

    def run(
        self,
        workflow: object = None,
        *,
        session: str | None = None,
        run: str | None = None,
        agent: str | None = None,
        tenant: str = "default",
    ) -> Run:
        """One run of a workflow, as a context: `with engine.run(workflow=graph, session="s1") as run`.

        workflow: the name of one that the policy describes, a networkx graph, a dictionary (nodes, edges, joins,
        loops), a Graph, a framework's own (where its adapter is there), or None. Raises InputFault for anything else,
        for a name that the policy does not have, and for a graph with a loop without an exit.
        The run's steps and tools are contexts of their own, see `Run`.
        """
        name = graph = None
        if workflow is not None:
            graph = asked_graph(workflow, self.policy)
            name = graph.name
            with self._lock:
                self.steering.describe(graph, tenant)
        owner = Owner(tenant=tenant, session=session, run=run, agent=agent)
        check_owner(owner)
        return Run(self, owner, name, None if graph is None else lambda node: graph.find(node) is not None)

    # --- looks and operators ------------------------------------------------------------------------------

    def stats(self) -> dict[str, Any]:
        """Owners, claims, protected blocks, requests that run, and counters of what was done and what failed."""
        with self._lock:
            return self.steering.stats()

    def release_all(self, *, now: float | None = None) -> int:
        """Take all protection back at once; requests that run are not hurt. Returns how many prompts lost some."""
        with self._lock:
            return self.steering.release_all(self._at(now))

    # --- learned times --------------------------------------------------------------------------------------

    def export_learned(self, tenant: str = "default") -> dict[str, Any]:
        """What was learned of a tenant's tools, steps and humans, as a JSON document (see `kvpolicy.workflow.keep`)."""
        with self._lock:
            return self.steering.state.learned.export(tenant)

    def load_learned(self, document: Mapping[str, Any], tenant: str | None = None) -> None:
        """Take a document of `export_learned` in place of what was learned of its tenant, or of `tenant`. Raises
        InputFault, changing nothing, for one that does not fit."""
        with self._lock:
            self.steering.state.learned.load(document, tenant)

    def reset_learned(self, tenant: str = "default") -> None:
        """Forget what was learned of a tenant: it begins as a new one does."""
        with self._lock:
            self.steering.state.learned.reset(tenant)

    # --- inside -------------------------------------------------------------------------------------------

    def _at(self, now: float | None) -> float:
        """The time of a call; the clock never goes back."""
        return max(self.steering.now, self._clock() if now is None else now)
