"""The engine: continuous batches of prompt chunks and decodes over one pool, scheduled as vLLM v1 does.

A step takes the running requests in order, each as many tokens as it lacks and the step still takes; where blocks are
missing, a running request is preempted: its blocks go, it waits at the front. If none had to be, waiting requests are
admitted: what is resident of the prompt is used, at most all full blocks before the last token; the whole prompt has
to fit among blocks that nobody holds. Blocks are stored when they are scheduled, as vLLM caches them. What lies below
the GPU is reloaded where that is sooner than computing it, and its request waits for it holding its blocks.

All blocks go through `steering`, so a policy's ranks, clocks and tiers are those of every other use. Unlike vLLM, two
requests that compute one block share a copy. Called by `loop`, which turns the clock.
"""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import count
from math import ceil, inf

from kvpolicy.simulate.closed.links import Links
from kvpolicy.simulate.closed.models import EngineModel
from kvpolicy.simulate.closed.order import Fcfs
from kvpolicy.simulate.closed.task import Task
from kvpolicy.steering import Steering

Plan = list[tuple[Task, int]]  # who computes how many tokens in a step
LOOK_S = 0.25  # under a policy and with memory full, steps taken at once take no longer: ranks change with time


class Engine:
    """waiting: in order of arrival, preempted ones in front. loading: those whose blocks travel, by arrival.

    preemptions, late: requests that waited for blocks already on their way up (a prefetch that came late).
    """

    def __init__(self, steering: Steering, model: EngineModel, order: Fcfs, links: Links | None = None) -> None:
        self.steering, self.model, self.order, self.links = steering, model, order, links
        self.pool = steering.pool
        self.size = self.pool.block_size
        self.waiting: list[Task] = []
        self.running: list[Task] = []
        self.loading: list[tuple[float, int, Task]] = []
        self.preemptions = self.late = self.steps = self.evictions = 0
        self.admitted: list[Task] = []  # for the first time, since the list was last emptied
        self._tickets = count()
        self.changed = (
            False  # a request was preempted in the step scheduled last; one that leaves it empty takes no time
        )
        self._wake: float | None = None

    def fits(self, task: Task) -> bool:
        """Whether it could run alone."""
        return -(-(task.total - 1) // self.size) <= self.pool.capacity

    def add(self, task: Task, now: float) -> None:
        """A request comes."""
        self.order.arrived(task, now)
        self.waiting.append(task)

    @property
    def wakes_at(self) -> float:
        """When something happens here without a step: blocks arrive, or a pin ends."""
        return min(self.loading[0][0] if self.loading else inf, inf if self._wake is None else self._wake)

    def schedule(self, now: float) -> Plan:
        """The step that begins now; empty where there is nothing to do."""
        self._wake = self.order.tidy(self.waiting, now)
        while self.loading and self.loading[0][0] <= now:
            self.running.append(heappop(self.loading)[2])
        plan, left = self._continue(now)
        if not self.changed:
            self._admit(plan, left, now)
        while not plan and self.waiting and not self.running and not self.loading and self.order.relieve():
            self._admit(plan, self.model.chunk, now)
        return plan

    def steps_at_once(self, plan: Plan, until: float, now: float) -> int:
        """How many steps just like this one come before anything else can happen. 1 where the plan is not all decodes.

        INVARIANT: nobody ends, comes, is admitted or preempted within them, so what they do together is what they do
        one by one.
        """
        if self.changed or len(plan) != len(self.running):
            return 1
        room = inf
        for task, new in plan:
            if new != 1 or task.computed < task.tokens or task.tokens == task.prompt:
                return 1
            room = min(room, task.total - task.tokens)
        each = self.model.step_s(len(plan))
        if until < inf:
            room = min(room, ceil((until - now) / each))
        if self.steering.policy is not None and self.pool.used >= self.pool.capacity:
            room = min(room, ceil(LOOK_S / each))
        most = max(int(room), 1)
        if self._missing(plan, most) > self.pool.available:
            low = 1
            while most - low > 1:
                middle = (low + most) // 2
                low, most = (middle, most) if self._missing(plan, middle) <= self.pool.available else (low, middle)
            return low
        return most

    def go_on(self, plan: Plan, steps: int, began: float) -> None:
        """The plan's step is taken `steps` times, the last at `began`: blocks for those behind the first."""
        self.steps += steps
        if steps > 1:
            for task, _ in plan:
                self._compute(task, steps - 1, began)
                task.tokens += steps - 1

    def complete(self, plan: Plan, now: float) -> list[Task]:
        """The step is over now. Returns the requests whose answers are done, in order."""
        done = []
        for task, _ in plan:
            if task.computed < task.tokens:
                continue
            task.tokens += 1
            if task.tokens == task.prompt + 1:
                task.first_at = now
            if task.tokens >= task.total:
                task.ended_at = now
                self.evictions += len(task.lease.evicted) if task.lease is not None else 0
                done.append(task)
        if done:
            self.running = [task for task in self.running if task.tokens < task.total]
        return done

    # --- inside -----------------------------------------------------------------------------------------------------

    def _continue(self, now: float) -> tuple[Plan, int]:
        """Running requests first. Returns their plan and the tokens left of the step."""
        plan: Plan = []
        left, self.changed, place = self.model.chunk, False, 0
        running = self.running
        while place < len(running) and left > 0:
            task = running[place]
            new = min(task.tokens - task.computed, left)
            gone = False
            while -(-(task.computed + new) // self.size) - task.held > self.pool.available:
                at = self.order.victim(running, now)
                if at is None:
                    continue
                victim = running.pop(at)
                self._preempt(victim, now)
                if victim is task:
                    gone = True
                    break
                if at < place:
                    place -= 1
                    for index, (other, tokens) in enumerate(plan):
                        if other is victim:
                            left += tokens
                            del plan[index]
                            break
            if gone:
                break
            self._compute(task, new, now)
            plan.append((task, new))
            left -= new
            place += 1
        return plan, left

    def _admit(self, plan: Plan, left: int, now: float) -> None:
        """Waiting requests, as far as tokens, places and blocks allow. The first that does not fit ends it."""
        while left > 0 and self.waiting and len(self.running) < self.model.seqs:
            at = self.order.first(self.waiting)
            task = self.waiting[at]
            names = task.demand.names
            resident, held, on_gpu = self.pool.survey(names, (task.tokens - 1) // self.size)
            # What of the hits nobody holds stops being free, too.
            if -(-task.tokens // self.size) - held > self.pool.available:
                return
            del self.waiting[at]
            hits, reload, task.anew = on_gpu, False, False
            if resident > on_gpu:
                assert self.links is not None
                reload = self.links.pays(resident - on_gpu, self.size, now)
                task.anew = not reload
                hits = resident if reload else on_gpu
            new = min(task.tokens - hits * self.size, left)
            ready = self._start(task, hits, 0 if reload else new, now)
            if ready > now:
                self.late += not reload
                heappush(self.loading, (ready, next(self._tickets), task))
                continue
            self.running.append(task)
            if reload:
                self._compute(task, new, now)
            plan.append((task, new))
            left -= new

    def _start(self, task: Task, hits: int, new: int, now: float) -> float:
        """Takes hold of the hits and of blocks for `new` tokens more. Returns when all of it has arrived."""
        task.computed = hits * self.size + new
        blocks = min(task.computed // self.size, len(task.demand.names))
        self._quiet(task)
        if task.started:
            if blocks > task.given:
                self.steering.running[task.id].hashes += task.demand.names[task.given : blocks]
                task.given = blocks
            self.steering.resume(task.id, now, blocks=blocks)
            task.recomputed += max(task.was - hits * self.size, 0)
        else:
            call = task.demand.call
            task.given = task.prompt // self.size
            task.started, task.hits = True, hits * self.size
            self.steering.request(call.request, task.demand.names[: task.given], now, blocks=blocks)
            self.admitted.append(task)
        task.lease = lease = self.steering.running[task.id].lease
        task.full = blocks
        self._fill(task, now)
        if self.links is not None:
            self.links.silent = False
        return lease.ready_at

    def _compute(self, task: Task, new: int, now: float) -> None:
        """Blocks for `new` tokens more of a running request; full ones are stored."""
        task.computed += new
        full = min(task.computed // self.size, len(task.demand.names))
        if full > task.full:
            self._quiet(task)
            fresh = task.demand.names[task.given : full]
            task.given = max(task.given, full)
            self.steering.progress(task.id, now, blocks=full, hashes=fresh)
            task.full = full
            if self.links is not None:
                self.links.silent = False
        self._fill(task, now)

    def _fill(self, task: Task, now: float) -> None:
        """A block that is not full yet has no name."""
        lease = task.lease
        assert lease is not None
        task.held = -(-task.computed // self.size)
        missing = task.held - task.full - len(lease.private)
        if missing > 0:
            self.pool.private(lease, missing, now)

    def _quiet(self, task: Task) -> None:
        if self.links is not None:
            self.links.silent = task.anew

    def _preempt(self, task: Task, now: float) -> None:
        self.steering.preempt(task.id, now)
        self.evictions += len(task.lease.evicted) if task.lease is not None else 0
        task.lease, task.was = None, task.computed
        task.computed = task.full = task.held = 0
        task.preempted += 1
        self.preemptions += 1
        self.changed = True
        self.waiting.insert(0, task)

    def _missing(self, plan: Plan, steps: int) -> int:
        """Blocks that these steps, the first of them scheduled already, take beyond those held."""
        size = self.size
        return sum(-(-(task.computed + steps - 1) // size) - task.held for task, _ in plan)
