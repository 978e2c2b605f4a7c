"""Where each run of a workflow stands, found by its owners; and which runs nothing is heard of any more.

`state` passes on the events of steps and the requests of owners; `signals` asks for distances. A run is named by the
tenant and the run's id, or the session where there is none. Requests imply steps (a request of node n begins n's step,
the end of its answer ends it) until somebody sends step events for the run.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from kvpolicy.request import Owner
from kvpolicy.workflow.chance import Chances
from kvpolicy.workflow.events import Event
from kvpolicy.workflow.followed import Described
from kvpolicy.workflow.graph import Graph
from kvpolicy.workflow.held import HeldRuns
from kvpolicy.workflow.named import NamedGraphs
from kvpolicy.workflow.position import Position
from kvpolicy.workflow.run import Run
from kvpolicy.workflow.run_keys import RunKey, key_of, key_stated, keys_of, text_of
from kvpolicy.workflow.standing import Standing, Told

SILENT_S = 3600.0  # a run of which nothing was heard for so long says nothing any more, until something is heard again

_TOLD = ("step_start", "step_end", "barrier", "branch_pruned", "branch_start", "resume")
_ABOUT_BRANCHES = ("branch_start", "resume")  # they matter for a branch that was given up


class Runs:
    """All runs; `graph`: of those that name no workflow of `named`; None: only the times of steps are known."""

    def __init__(self, graph: Graph | None) -> None:
        self.fresh = Standing(graph)  # where every run begins that names no workflow
        self.named = NamedGraphs()
        self.held = HeldRuns()
        self._described = Described()
        self._followed = None if graph is None else self._described.take(None, graph)

    @property
    def graph(self) -> Graph | None:
        """The graph of runs that begin from now on, but for those that name their workflow."""
        return None if self._followed is None else self._followed.graph

    def describe(self, graph: Graph, tenant: str | None = None) -> None:
        """The workflow of runs that begin from now on. The same graph again is the same, whose earlier runs count.
        tenant: whose graph it is, where that is known."""
        before = self.graph
        self._followed = self._described.take(tenant, graph)
        if self._followed.graph is not before:
            self.fresh = Standing(self._followed.graph)

    def name(self, name: str, graph: Graph, tenant: str | None = None) -> bool:
        """The workflow of runs that begin under this name (of a tenant, None: of all) from now on: `NamedGraphs`."""
        return self.named.put(tenant, name, graph)

    # --- what happens -------------------------------------------------------------------------------------

    def observe(self, event: Event, owners: Iterable[Owner]) -> list[tuple[str | None, str | None, float]]:
        """Take an event. Returns the steps that ended by it: (tenant or None, node or None, seconds)."""
        name, attributes, workflow = event.name, event.attributes, event.attributes.get("workflow")
        over = name == "workflow_end"
        branch = text_of(attributes.get("branch"))
        idle = not over and (name not in _TOLD or (name in _ABOUT_BRANCHES and branch is None))
        keys: dict[RunKey, Owner | None] = {key_of(owner): owner for owner in owners}
        if not keys:
            keys = {key_stated(attributes): None}
        node = text_of(attributes.get("node")) or text_of(attributes.get("agent"))
        count = attributes.get("count")
        behind = count if isinstance(count, int) and not isinstance(count, bool) and count >= 0 else None
        ended = []
        for key, owner in keys.items():
            run = self.held.get(key)
            named = None if run is not None else self.named.find(key[0], workflow)
            followed = named or self._followed if run is None else run.followed
            counts = {} if followed is None else followed.counts(attributes)
            if idle and not counts:
                if run is not None:
                    self._take(key, event.at, owner)  # it goes on
                continue
            if run is None and (over or name in _ABOUT_BRANCHES):
                continue
            if named is not None:
                self.held.hold(key, Run(named, event.at, str(workflow)))
            run = self._take(key, event.at, owner)
            if over:
                _count(key, run)
                run.finish(event.at)
                continue
            told = Told(event.at, name, node, branch, counts or None, behind)
            ended += [(key[0], of, seconds) for of, seconds in run.tell(told)]
        return ended

    def arrived(self, owner: Owner, node: str | None, now: float, workflow: object = None) -> None:
        """A request of `node` arrived, whose run follows `workflow`, where a graph of that name is known."""
        key = key_of(owner)
        known = self.held.get(key)
        named = self.named.find(owner.tenant, workflow) if known is None or known.untold else None
        if named is not None:
            known = Run(named, now, str(workflow))
            self.held.hold(key, known)
        graph = self.graph if known is None else known.graph
        if graph is None or node is None or graph.find(node) is None:
            if known is not None:
                self._take(key, now, owner)
            return
        run = self._take(key, now, owner)
        if not run.explicit and node not in run.standing.started:
            run.tell(Told(now, "step_start", node, guessed=True))

    def answered(self, owner: Owner, node: str | None, now: float) -> float | None:
        """An answer for `node` is done, no tool follows. Seconds of the step that this ended, or None."""
        run = self._find(owner)
        if run is None or run.explicit or node not in run.standing.started:
            return None
        self._take(key_of(owner), now, owner)
        return next((seconds for _, seconds in run.tell(Told(now, "step_end", node, guessed=True))), None)

    def heard(self, owner: Owner, now: float) -> None:
        """The owner's run goes on, as something else of it shows; one that is not known begins nowhere."""
        key = key_of(owner)
        if key in self.held:
            self._take(key, now, owner)

    def fallen_silent(self, now: float, most: int | None = None) -> list[Owner]:
        """Runs of which nothing was heard for `SILENT_S` up to now, each once: an owner of each, where one is known.
        most: in one step; the others are told the next time."""
        owners = []
        for key, run in list(islice(self._due(now), most)):
            self.held.silence(key)
            _count(key, run)
            run.rest()
            if run.owner is not None:
                owners.append(run.owner)
        return owners

    def forget(self, owner: Owner, others: bool) -> None:
        """The owner is no more; its run is over if no `others` of it are known."""
        if not others:
            key = key_of(owner)
            run = self.held.drop(key)
            if run is not None:
                _count(key, run)

    def reap(self, now: float, idle_for: float) -> None:
        """Forget the runs of which nothing was heard for `idle_for` seconds."""
        for key in [key for key, run in self.held.silent.items() if now - run.heard >= idle_for]:
            self.held.drop(key)

    # --- what is asked ------------------------------------------------------------------------------------

    def standing(self, owner: Owner) -> Standing | None:
        """Where the owner's run stands, where every run begins if it has not begun; None if nothing has been heard of
        it for long."""
        run = self._find(owner)
        if run is not None:
            return run.standing
        return None if self._is_silent(owner) else self.fresh

    def workflow(self, owner: Owner) -> str | None:
        """By which name the graph of the owner's run was found, where somebody stated one."""
        run = self._find(owner)
        return None if run is None else run.workflow

    def steps(self, owner: Owner, node: str | None) -> float | None:
        """Steps until `node` may run in the owner's run; None without a graph that has this node."""
        standing = self.standing(owner)
        if standing is None or standing.position is None or node is None:
            return None
        return standing.position.steps(node)

    def chance(self, owner: Owner, node: str | None) -> float | None:
        """P(`node` starts once more in the owner's run); None without a graph that has this node, or where that would
        take too long to work out."""
        run, standing = self._find(owner), self.standing(owner)
        followed = self._followed if run is None else run.followed
        position = None if standing is None else standing.position
        index = None if position is None or node is None else position.graph.find(node)
        if standing is None or position is None or index is None or followed is None:
            return None
        taken = followed.history.taken(owner.tenant)
        kept = standing.chances
        if kept is None or kept.taken is not taken:  # a history that has grown is another list
            kept = standing.chances = Chances(position, taken)
        return kept.of(index)

    def fan_out(self, owner: Owner, node: str | None) -> int | None:
        """How many instances of `node` the graph or the run tells of."""
        standing = self.standing(owner)
        if standing is None or standing.position is None or node is None:
            return None
        return standing.position.instances(node)

    def latest_start(self, owner: Owner) -> float | None:
        """When the step began that began last, among those that run."""
        run = self._find(owner)
        return None if run is None else run.standing.latest_start()

    def latest(self) -> Position | None:
        """Where the run stands that was heard of last; the beginning, where none has begun."""
        run = next(reversed(self.held.active.values()), None)
        return self.fresh.position if run is None else run.standing.position

    # --- inside -------------------------------------------------------------------------------------------

    def _due(self, now: float) -> Iterable[tuple[RunKey, Run]]:
        for key, run in self.held.active.items():
            if run.heard + SILENT_S > now:
                return
            yield key, run

    def _take(self, key: RunKey, at: float, owner: Owner | None) -> Run:
        """The run of a key, from now on the latest; others leave where there are too many."""
        run = self.held.hear(key)
        if run is None:
            run = Run(self._followed, at)
            self.held.hold(key, run)
        run.heard, run.owner = max(run.heard, at), owner or run.owner
        if self.held.is_crowded:
            for gone, left in self.held.crowded_out(key):
                _count(gone, left)
        return run

    def _find(self, owner: Owner) -> Run | None:
        return next((run for key in keys_of(owner) if (run := self.held.active.get(key)) is not None), None)

    def _is_silent(self, owner: Owner) -> bool:
        silent = self.held.silent
        return bool(silent) and any(key in silent for key in keys_of(owner))


def _count(key: RunKey, run: Run) -> None:
    if run.followed is not None:
        run.followed.history.add(key[0], run.newly_taken())
