"""Where each run of a workflow stands: its running steps, and with a graph the distances from them.

`state` passes on the events of steps and the requests of owners; `signals` asks for distances. A run is named by the
tenant and the run's id, or the session where there is none. Requests imply steps (a request of node n begins n's step,
the end of its answer ends it) until somebody sends step events for the run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kvpolicy.request import Owner
from kvpolicy.workflow.events import Event
from kvpolicy.workflow.graph import Graph
from kvpolicy.workflow.position import Position

_Key = tuple[str | None, str | None]
_MOST_RUNS, _MOST_NODES = 100_000, 4096
_TOLD = ("step_start", "step_end", "barrier", "branch_pruned")  # a pruned instance of a fan-out will not arrive


class Run:
    """One run: its position in the graph, and when its running steps began."""

    __slots__ = ("_latest", "explicit", "position", "started")

    def __init__(self, graph: Graph | None) -> None:
        self.position = Position(graph) if graph is not None else None
        self.started: dict[str | None, list[float]] = {}
        self.explicit = False  # step events are sent for it
        self._latest: dict[str | None, tuple[float, str]] = {}

    def news(self, name: str, node: str | None, at: float) -> bool:
        """Whether a step event is neither late nor a repeat; instances of a fan-out may begin and end together."""
        latest = self._latest.get(node)
        if latest is not None and (at < latest[0] or ((at, name) == latest and not self._fans(node))):
            return False
        self._latest[node] = (at, name)
        if len(self._latest) > _MOST_NODES:  # names of nodes are what callers say
            forgotten = next(iter(self._latest))
            del self._latest[forgotten]
            self.started.pop(forgotten, None)
        return True

    def _fans(self, node: str | None) -> bool:
        return self.position is None or node is None or self.position.fans(node)


class Runs:
    """All runs; `graph` None: only the times of steps are known."""

    def __init__(self, graph: Graph | None) -> None:
        self.graph = graph
        self.fresh = Position(graph) if graph is not None else None  # where every run begins
        self._runs: dict[_Key, Run] = {}

    def describe(self, graph: Graph) -> None:
        """The workflow of the runs that begin from now on; those that run keep theirs."""
        if graph is not self.graph:
            self.graph = graph
            self.fresh = Position(graph)

    def observe(self, event: Event, owners: Iterable[Owner]) -> list[tuple[str | None, str | None, float]]:
        """Take an event. Returns the steps that ended by it: (tenant or None, node or None, seconds)."""
        name = event.name
        node = event.attributes.get("node")
        counts = self._counts(event.attributes)
        if name not in _TOLD and not counts:
            return []
        keys = list(dict.fromkeys(map(_key_of, owners))) or [_key_stated(event.attributes)]
        if not isinstance(node, str):
            agent = event.attributes.get("agent")
            node = agent if isinstance(agent, str) else None
        ended = []
        for key in keys:
            run = self._take(key)
            seconds = self._tell(run, name, node, event.at, counts)
            if seconds is not None:
                ended.append((key[0], node, seconds))
        return ended

    def _tell(self, run: Run, name: str, node: str | None, at: float, counts: Mapping[str, int]) -> float | None:
        if name in ("step_start", "step_end") and not run.explicit:
            # From now on the run is told, not guessed; what was guessed so far gives way.
            run.explicit, run.started = True, {}
            run.position = Position(self.graph) if self.graph is not None else None
        if name in ("step_start", "step_end") and not run.news(name, node, at):
            return None
        if run.position is not None:
            for times, count in counts.items():
                run.position.fan_out(times, count)
        if name == "step_start":
            self._begin(run, node, at)
        elif name == "step_end":
            return _end(run, node, at)
        elif run.position is not None and node is not None:
            if name == "barrier":
                run.position.barrier(node)
            elif name == "branch_pruned":
                run.position.lost(node)
        return None

    def arrived(self, owner: Owner, node: str | None, now: float) -> None:
        """A request of `node` arrived."""
        if self.graph is None or node is None or node not in self.graph.nodes:
            return
        run = self._find(owner)
        if run is None:
            run = self._take(_key_of(owner))
        if not run.explicit and node not in run.started:
            self._begin(run, node, now)

    def answered(self, owner: Owner, node: str | None, now: float) -> float | None:
        """An answer for `node` is done, no tool follows. Seconds of the step that this ended, or None."""
        run = self._find(owner)
        if run is None or run.explicit or node not in run.started:
            return None
        return _end(run, node, now)

    def steps(self, owner: Owner, node: str | None) -> float | None:
        """Steps until `node` may run in the owner's run; None without a graph that has this node."""
        if self.graph is None or node is None or node not in self.graph.nodes:
            return None
        run = self._find(owner)
        position = self.fresh if run is None else run.position
        return None if position is None else position.steps(node)

    def fan_out(self, owner: Owner, node: str | None) -> int | None:
        """How many instances of `node` the graph or the run tells of."""
        if self.graph is None or node is None:
            return None
        run = self._find(owner)
        position = self.fresh if run is None else run.position
        return None if position is None else position.instances(node)

    def latest_start(self, owner: Owner) -> float | None:
        """When the step began that began last, among those that run."""
        run = self._find(owner)
        if run is None:
            return None
        return max((at for starts in run.started.values() for at in starts), default=None)

    def forget(self, owner: Owner, others: bool) -> None:
        """The owner is no more; its run is over if no `others` of it are known."""
        if not others:
            self._runs.pop(_key_of(owner), None)

    def latest(self) -> Position | None:
        """Where the run stands that began last; the beginning, where none has begun."""
        run = next(reversed(self._runs.values()), None)
        return self.fresh if run is None else run.position

    def _begin(self, run: Run, node: str | None, at: float) -> None:
        run.started.setdefault(node, []).append(at)
        if run.position is not None and node is not None:
            run.position.start(node)

    def _counts(self, attributes: Mapping[str, object]) -> dict[str, int]:
        """Counts of fan-outs that the event tells, by the name after `*`."""
        if self.graph is None or not self.graph.counts:
            return {}
        told = {name: attributes.get(name) for name in self.graph.counts}
        return {n: v for n, v in told.items() if isinstance(v, int) and not isinstance(v, bool) and v >= 0}

    def _take(self, key: _Key) -> Run:
        """The run of a key, from now on the latest; the longest unspoken-of leaves where there are too many."""
        run = self._runs.pop(key, None) or Run(self.graph)
        self._runs[key] = run
        if len(self._runs) > _MOST_RUNS:
            del self._runs[next(iter(self._runs))]
        return run

    def _find(self, owner: Owner) -> Run | None:
        for tenant in (owner.tenant, None):
            for name in dict.fromkeys((owner.run, owner.session, None)):
                run = self._runs.get((tenant, name))
                if run is not None:
                    return run
        return None


def _end(run: Run, node: str | None, at: float) -> float | None:
    starts = run.started.get(node)
    seconds = None
    if starts:
        seconds = max(0.0, at - starts.pop(0))
        if not starts:
            del run.started[node]
    if run.position is not None and node is not None:
        run.position.end(node)
    return seconds


def _key_of(owner: Owner) -> _Key:
    return owner.tenant, owner.run if owner.run is not None else owner.session


def _key_stated(attributes: Mapping[str, object]) -> _Key:
    tenant, run, session = (attributes.get(field) for field in ("tenant", "run", "session"))
    name = run if isinstance(run, str) else session if isinstance(session, str) else None
    return tenant if isinstance(tenant, str) else None, name
