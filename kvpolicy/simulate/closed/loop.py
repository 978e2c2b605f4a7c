"""The clock: calls arrive, the engine steps, answers end, and what waited for them comes its pause later.

One run of one policy over one schedule. Between two events the engine's steps are taken one by one, or as many alike
at once as come before anything else can happen. A policy sees a call's answer and what follows only when it is over.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from functools import partial
from heapq import heappop, heappush
from math import inf
from time import perf_counter

from kvpolicy.policy.policy import Policy
from kvpolicy.pool import Pool
from kvpolicy.request import Owner
from kvpolicy.simulate.closed.demand import Schedule
from kvpolicy.simulate.closed.engine import Engine
from kvpolicy.simulate.closed.links import Links
from kvpolicy.simulate.closed.models import EngineModel
from kvpolicy.simulate.closed.order import Fcfs
from kvpolicy.simulate.closed.tally import ClosedTally
from kvpolicy.simulate.closed.task import Task
from kvpolicy.simulate.trace import END_TURN, Progress
from kvpolicy.steering import Steering
from kvpolicy.steering.begin import begin
from kvpolicy.steering.requests import RESUMES
from kvpolicy.workflow.events import Event
from kvpolicy.workflow.gauges import CostModel
from kvpolicy.workflow.graph import Graph

_MOST_CALLS = 64  # open tool calls of an owner that an arrival ends
_OWNER = ("tenant", "session", "run", "agent", "branch")


class ClosedLoop:
    """policy: None for the engine's own order. capacity: blocks on the GPU. order: who goes first.
    workflow: the graph of the trace's runs, as JSON. Raises InputFault for a bad one."""

    def __init__(
        self,
        schedule: Schedule,
        policy: Policy | None,
        capacity: int,
        model: EngineModel,
        tally: ClosedTally,
        *,
        order: Fcfs | None = None,
        workflow: Mapping[str, object] | None = None,
        cpu_blocks: int = 0,
        disk_blocks: int = 0,
    ) -> None:
        self.schedule, self.model, self.tally = schedule, model, tally
        size = schedule.demands[0].call.request.block_size
        links = Links(model, size) if cpu_blocks or disk_blocks else None
        pool = Pool(capacity, block_size=size, cpu_blocks=cpu_blocks, disk_blocks=disk_blocks, transfer=links)
        if links is not None:
            links.pool = pool
        self.steering: Steering = begin(policy, pool)
        if workflow is not None:
            self.steering.describe(Graph.sound(workflow))
        self.steering.measure(
            CostModel(
                bytes_per_token=model.token_bytes,
                prefill_tokens_per_s=model.chunk / model.step_s(model.chunk),
                reload_bytes_per_s=model.link if cpu_blocks else None,
            )
        )
        self.engine = Engine(self.steering, model, order or Fcfs(), links)
        self.links = links
        self._events: list[tuple[float, int, Callable[[float], None]]] = []
        self._tickets = 0
        self._waits = [demand.waits for demand in schedule.demands]
        self._ready = [0.0] * len(schedule.demands)
        self._numbers: dict[str, int] = {}
        self._began: list[float | None] = [None] * schedule.sessions
        self._ended = [0.0] * schedule.sessions
        self._cut: set[int] = set()
        self._known: set[Hashable] = set()  # blocks that some call has computed
        self._inside, self._since = 0, 0.0

    def run(self, progress: Progress | None = None) -> ClosedTally:
        """To the end of the last call."""
        began, tally, engine, events = perf_counter(), self.tally, self.engine, self._events
        for index, demand in enumerate(self.schedule.demands):
            if not demand.waits:
                self._at(demand.at, partial(self._arrive, index))
        for time, row in self.schedule.events:
            self._at(time, partial(self._tell, row))
        tally.first_s = events[0][0] if events else 0.0
        now, total = 0.0, len(self.schedule.demands)
        while True:
            self._due(now)
            plan = engine.schedule(now)
            self._count_admitted(now)
            soon = min(events[0][0] if events else inf, engine.wakes_at)
            if not plan:
                if engine.changed:
                    continue
                if soon == inf:
                    break
                now = max(now, soon)
                continue
            steps = engine.steps_at_once(plan, soon, now)
            tokens = sum(new for _, new in plan)
            each = self.model.step_s(tokens)
            end = now + steps * each
            tally.busy_s += steps * each
            tally.computed_tokens += steps * tokens
            engine.go_on(plan, steps, end - each)
            self._due(end)
            for task in engine.complete(plan, end):
                self._finish(task, end)
            now = end
            if progress is not None:
                progress((tally.requests + tally.refused) / total)
        tally.preemptions, tally.late_prefetches, tally.steps = engine.preemptions, engine.late, engine.steps
        tally.evictions = engine.evictions
        tally.moved_bytes = 0 if self.links is None else self.links.moved
        tally.failures = self.steering.counters["failures"]
        for number, start in enumerate(self._began):
            if start is not None and number not in self._cut:
                tally.session_s.append(self._ended[number] - start)
        tally.wall_s = perf_counter() - began
        return tally

    # --- inside -----------------------------------------------------------------------------------------------------

    def _at(self, time: float, what: Callable[[float], None]) -> None:
        self._tickets += 1
        heappush(self._events, (time, self._tickets, what))

    def _due(self, now: float) -> None:
        """Everything up to now, each at its own time."""
        events = self._events
        while events and events[0][0] <= now:
            time, _, what = heappop(events)
            what(time)

    def _arrive(self, index: int, now: float) -> None:
        demand = self.schedule.demands[index]
        number, tally = demand.session, self.tally
        start = self._began[number]
        if start is None:
            self._began[number] = start = now
        task = Task(demand, now, start)
        if not self.engine.fits(task):
            tally.refused += 1
            self._cut.add(number)
            self._follow(index, now)
            return
        self._numbers[task.id] = index
        self._count_inside(1, now)
        self._resume(demand.call.request.owner, now)
        self.engine.add(task, now)

    def _resume(self, owner: Owner, now: float) -> None:
        """The service sees a call when it comes, not when the engine admits it: its owner's pause is over."""
        steering = self.steering
        if steering.policy is None:
            return
        fields = {name: getattr(owner, name) for name in _OWNER}
        for _ in range(_MOST_CALLS):
            phase = steering.state.phase(owner)
            event = RESUMES.get(phase) if phase is not None else None
            if event is None:
                return
            steering.event(Event(now, event, fields), now)

    def _count_admitted(self, now: float) -> None:
        """Hits of the requests that the step admitted for the first time."""
        tally = self.tally
        for task in self.engine.admitted:
            call, names = task.demand.call, task.demand.names
            own = task.prompt // call.request.block_size
            seen = _leading(names, min(own, (task.prompt - 1) // call.request.block_size), self._known)
            hits = task.hits // call.request.block_size
            tally.count(len(call.hashes), hits, max(seen, hits), task.prompt, call.request.block_size)
            tally.waits.append(now - task.arrived)
            if hits < seen:
                self.steering.state.gauges.record_queue_delay(now - task.arrived)
        for task in self.engine.admitted:
            self._known.update(task.demand.names[: task.prompt // task.demand.call.request.block_size])
        self.engine.admitted.clear()

    def _finish(self, task: Task, now: float) -> None:
        demand = task.demand
        index = self._numbers.pop(task.id)
        self._count_inside(-1, now)
        self.tally.ended(task)
        self._known.update(demand.names)
        release = partial(self._release, task, now)
        if not self.engine.order.keeps(task, now, release):
            release()
        self._ended[demand.session] = max(self._ended[demand.session], now)
        for delay, row in demand.after:
            if delay:
                self._at(now + delay, partial(self._tell, row))
            else:
                self._tell(row, now)
        self._follow(index, now)

    def _release(self, task: Task, now: float) -> None:
        # INVARIANT: nothing of `answer` or `after` is read before the call is done.
        answer = task.demand.call.answer
        self.steering.finish(
            task.id,
            max(now, self.steering.now),
            tool_calls=[(tool, None) for tool in answer.tool_calls],
            finished=answer.stop == END_TURN or None,
            output_tokens=answer.output_tokens or None,
        )

    def _follow(self, index: int, now: float) -> None:
        """What waits for a call that ended."""
        demands = self.schedule.demands
        for other in demands[index].followers:
            self._waits[other] -= 1
            self._ready[other] = max(self._ready[other], now)
            if not self._waits[other]:
                self._at(self._ready[other] + demands[other].pause, partial(self._arrive, other))

    def _tell(self, row: Mapping[str, object], now: float) -> None:
        if self.steering.policy is None:
            return
        attributes = {key: value for key, value in row.items() if key not in ("at", "event")}
        self.steering.event(Event(now, str(row["event"]), attributes), now)

    def _count_inside(self, change: int, now: float) -> None:
        self.tally.occupancy_s += self._inside * (now - self._since)
        self._inside, self._since = self._inside + change, now


def _leading(names: list[Hashable], count: int, known: set[Hashable]) -> int:
    """How many of the first `count` names are known: names are chained, so a known one has all before it known."""
    low, high = 0, count
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if names[middle - 1] in known else (low, middle - 1)
    return low
