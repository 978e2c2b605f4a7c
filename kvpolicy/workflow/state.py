"""Run state: what has happened to every owner, as rules read it. Fulfils `policy.model.State`.

Requests, their answers and events come in with their times; intervals, phases, distances and learned times come out.
The clock only moves by what is passed in, and never back. Nothing here raises on any order of events: what is late,
repeated or lost is settled by rules (see `phases`).
"""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Iterable, Sequence

from kvpolicy.policy.model import IntervalPattern, Opening, Subject
from kvpolicy.request import Owner, Request
from kvpolicy.workflow import signals
from kvpolicy.workflow.branches import Branches
from kvpolicy.workflow.durations import LearnedTimes
from kvpolicy.workflow.events import Event
from kvpolicy.workflow.graph import Graph
from kvpolicy.workflow.hold import Memoryfulness
from kvpolicy.workflow.intervals import GRACE_S, Patterns
from kvpolicy.workflow.owners import Life, Owners, agrees
from kvpolicy.workflow.phases import ENDED, HUMAN_PAUSE, IDLE, RUNNING, TOOL_PAUSE, Step
from kvpolicy.workflow.runs import Runs

ANSWER_GRACE_S = 2.0  # how long an answer may stay unclassified
LEAD_S = 3600.0  # how long an event that found nobody waits for its owner
_EARLY_KEPT = 256

ToolCall = str | tuple[str | None, str | None]  # a tool's name, or (name, call id)


class RunState:
    """The state of all runs. `intervals`: those of the policy in force. `graph`: the workflow, if one is known."""

    def __init__(self, intervals: Iterable[IntervalPattern] = (), graph: Graph | None = None) -> None:
        self._now = 0.0
        self._patterns = Patterns(intervals)
        self._owners = Owners()
        self._requests: dict[str, Life] = {}
        self._branches = Branches()
        self._times: dict[str, LearnedTimes] = {}
        self._deadlines: list[tuple[float, int, Life]] = []
        self._ticket = itertools.count()
        self._early: deque[Event] = deque(maxlen=_EARLY_KEPT)
        self.runs = Runs(graph)
        self.gauges: signals.Gauges = signals.Gauges()
        self.memoryfulness = Memoryfulness()

    # --- what rules read ----------------------------------------------------------------------------------

    @property
    def now(self) -> float:
        """Seconds on the caller's clock."""
        return self._now

    def opening(self, interval: IntervalPattern, subject: Subject) -> Opening | None:
        """The innermost opening of `interval` for the subject's owner; one in its grace only where none is open."""
        life = self._owners.lives.get(subject.owner)
        if life is None:
            return None
        return life.openings.innermost(self._patterns.number(interval))

    def read(self, function: str, argument: object, subject: Subject) -> float | None:
        """A function of the language, see `policy.model.State.read`."""
        return signals.read(self, self._owners.lives.get(subject.owner), function, argument, subject)

    def times(self, tenant: str) -> LearnedTimes:
        """The learned times of a tenant."""
        times = self._times.get(tenant)
        if times is None:
            times = self._times[tenant] = LearnedTimes()
        return times

    def attributes(self, owner: Owner, branch: str | None = None) -> dict[str, object]:
        """State attributes (branch, rank, score, status) of the owner's branch, or of the span's own `branch` label."""
        label = branch if branch is not None else owner.branch
        return {} if label is None else self._branches.attributes(owner, label)

    def phase(self, owner: Owner) -> str:
        """idle, running, tool_pause, human_pause or ended; an unknown owner is idle."""
        life = self._owners.get(owner)
        return IDLE if life is None else life.phases.phase

    def idle_since(self, owner: Owner) -> float | None:
        """When the owner's last answer ended; None while a request of it runs, or before its first."""
        life = self._owners.get(owner)
        return None if life is None or life.running else life.idle_since

    def owners(self) -> tuple[Owner, ...]:
        """Every owner known, oldest first."""
        return tuple(self._owners.lives)

    def live_branches(self, life: Life) -> int:
        """How many owners forked from this one have not ended."""
        return sum(child.phases.phase != ENDED for child in self._owners.children(life))

    # --- what happens -------------------------------------------------------------------------------------

    def watch(self, intervals: Iterable[IntervalPattern]) -> None:
        """Watch the intervals of a policy that came into force now; they open by events from now on."""
        for interval in intervals:
            self._patterns.number(interval)

    def advance(self, now: float) -> tuple[Owner, ...]:
        """Move the clock. Returns the owners for whom a grace or a bound ended: they have to be planned again."""
        self._now = max(self._now, now)
        changed: dict[Owner, None] = {}
        while self._deadlines and self._deadlines[0][0] <= self._now:
            at, _, life = heapq.heappop(self._deadlines)
            if life.deadline != at:
                continue  # an earlier one took its place
            life.deadline = None
            changed[life.owner] = None
            self._lapse(life, at)
        return tuple(changed)

    def know(self, owner: Owner) -> None:
        """Let events address an owner of whom no request has come yet."""
        self._known(owner)

    def arrive(self, request: Request, now: float, results: Sequence[str] | None = None) -> tuple[Owner, ...]:
        """A request arrives: its owner runs.

        It ends the owner's tool pause (as `tool_result`) or human pause (as `turn_start`), and begins a new life where
        the old one had ended. `results`: ids or names of the tools whose results it carries; None: of all that run. A
        side request that carries none of them (`results=()`) leaves the pause as it is.
        """
        changed = self.advance(now)
        life = self._known(request.owner)
        life.attributes, life.model = request.attributes, request.model
        node = request.attributes.get("node")
        if isinstance(node, str) and node != life.node:
            self._owners.move(life, node)
        life.running[request.id] = None
        self._requests[request.id] = life
        life.turns += 1
        life.unclassified_until = None
        phases = life.phases
        at = self._now
        if phases.phase == TOOL_PAUSE:
            for call in list(phases.calls):
                if results is None or call.id in results or call.tool in results:
                    self._apply(life, Event(at, "tool_result", {"tool": call.tool, "call": call.id}))
        elif phases.phase == HUMAN_PAUSE:
            self._apply(life, Event(at, "turn_start"))
        elif phases.phase != RUNNING:
            if phases.phase == ENDED:
                life.openings.end_graces()
                life.turns = 1
            if phases.enter(RUNNING, at).moved:
                life.openings.leave_phase(at)
        self.runs.arrived(life.owner, life.place(), at)
        return changed

    def touched(self, request_id: str, now: float) -> tuple[Owner, ...]:
        """The request has touched its blocks: its owner's graces end. Returns the owner if there were any."""
        changed = self.advance(now)
        life = self._requests.get(request_id)
        if life is None:
            return changed
        life.lingering_calls = []
        if life.openings.end_graces():
            return tuple(dict.fromkeys((*changed, life.owner)))
        return changed

    def answer(
        self, request: Request, now: float, *, tool_calls: Sequence[ToolCall] = (), finished: bool | None = None
    ) -> tuple[Owner, ...]:
        """The answer of a request is done.

        `tool_calls`: what it asked for. `finished` True: a human is next; False: it was cut short; None: nobody knows
        yet, and 2 s are given to find out. While other requests of the owner run, only tool calls move its phase.
        """
        changed = self.advance(now)
        life = self._requests.pop(request.id, None) or self._known(request.owner)
        life.running.pop(request.id, None)
        at = self._now
        if not life.running:
            life.idle_since = at
        for tool_call in tool_calls:
            tool, call = (tool_call, None) if isinstance(tool_call, str) else tool_call
            self._apply(life, Event(at, "tool_call", {"tool": tool, "call": call}))
        if tool_calls or life.running:
            return changed
        if finished:
            seconds = self.runs.answered(life.owner, life.place(), at)
            if seconds is not None:
                self.times(life.owner.tenant).step.add(seconds)
            self._apply(life, Event(at, "turn_end"))
        elif life.phases.phase == RUNNING:
            life.unclassified_until = at + ANSWER_GRACE_S
            self._schedule(life, at + ANSWER_GRACE_S)
        return changed

    def cancel(self, request_id: str, now: float) -> None:
        """A request was withdrawn: no answer of it will come."""
        self.advance(now)
        life = self._requests.pop(request_id, None)
        if life is None or life.running.pop(request_id, ...) is ...:
            return
        if not life.running:
            life.idle_since = self._now
            if life.phases.phase == RUNNING:
                life.unclassified_until = self._now + ANSWER_GRACE_S
                self._schedule(life, self._now + ANSWER_GRACE_S)

    def observe(self, event: Event, owner: Owner | None = None) -> tuple[Owner, ...]:
        """Take an event. `owner`: it was read from this owner's request or answer and addresses it alone.

        Without `owner` it addresses every owner that agrees with the owner fields it states. One that finds nobody
        waits up to an hour for its owner. Returns the owners addressed (and those whose graces had ended by then).
        """
        changed = self.advance(event.at)
        if owner is not None:
            lives = [self._known(owner)]
        else:
            lives = self._owners.addressed(event)
            if not lives:
                self._keep_early(event)
        branch = event.attributes.get("branch")
        if branch is not None and owner is None:
            self._branches.observe(event, branch)
        for life in lives:
            if life.owner.branch is not None and (owner is not None or life.owner.branch != branch):
                self._branches.observe(event, life.owner.branch, life.owner)
            self._apply(life, event)
        for tenant, seconds in self.runs.observe(event, [life.owner for life in lives]):
            self.times(tenant or "default").step.add(seconds)
        if not changed:
            return tuple(life.owner for life in lives)
        return tuple(dict.fromkeys((*changed, *(life.owner for life in lives))))

    def record_hit(self, owner: Owner, kind: str) -> None:
        """A span of this kind was found cached by a request of its owner."""
        life = self._owners.get(owner)
        if life is not None:
            life.hits[kind] = life.hits.get(kind, 0) + 1

    def forget(self, owner: Owner) -> None:
        """Nothing of the owner is kept but what was learned; an open pause counts as one that never ended."""
        life = self._owners.get(owner)
        if life is None:
            return
        life.phases.ended_calls = life.phases.calls
        self._never_returned(life, life.phases.phase, life.phases.at)
        life.phases.calls = []
        for request in life.running:
            self._requests.pop(request, None)
        self._owners.remove(life)
        self._branches.forget(owner)
        life.deadline = None
        if not self._owners.lives:
            self._deadlines.clear()

    def reap(self, idle_for: float = 86400.0) -> tuple[Owner, ...]:
        """Forget the owners of whom nothing was heard for `idle_for` seconds and of whom no request runs."""
        gone = [
            life.owner
            for life in self._owners.lives.values()
            if not life.running and self._now - max(life.phases.at, life.idle_since or life.first_seen) >= idle_for
        ]
        for owner in gone:
            self.forget(owner)
        return tuple(gone)

    # --- inside -------------------------------------------------------------------------------------------

    def _known(self, owner: Owner) -> Life:
        life = self._owners.get(owner)
        if life is None:
            life = self._owners.add(owner, self._now)
            if self._early:
                self._take_early(life)
        return life

    def _keep_early(self, event: Event) -> None:
        fields = event.attributes
        names_call = fields.get("call") is not None and event.name != "tool_call"
        if not names_call and any(fields.get(f) is not None for f in ("session", "run", "agent", "branch", "node")):
            self._early.append(event)

    def _take_early(self, life: Life) -> None:
        for event in list(self._early):
            if event.at + LEAD_S < self._now:
                self._early.remove(event)
            elif agrees(life, event):
                life.phases.at = min(life.phases.at, event.at)
                self._apply(life, event)

    def _apply(self, life: Life, event: Event) -> None:
        """Move one owner by one event."""
        attributes = event.attributes
        name = event.name
        node = attributes.get("node")
        tool, call, eta = attributes.get("tool"), attributes.get("call"), attributes.get("eta")
        step = life.phases.observe(
            name,
            event.at,
            tool=tool if isinstance(tool, str) else None,
            call=call if isinstance(call, str) else None,
            eta=float(eta) if isinstance(eta, int | float) else None,
            node=node if isinstance(node, str) else None,
        )
        if step is None:
            return
        if name == "step_start" and isinstance(node, str) and node != life.place():
            self._owners.move(life, node)
        if name == "branch_start":
            parent = attributes.get("parent")
            if isinstance(parent, str):
                self._owners.adopt(life, parent)
        self._learn(life, event.at, step)
        if step.moved:
            life.unclassified_until = None

        def attribute(key: str) -> object:
            value = attributes.get(key)
            if value is None and step.closed is not None:
                value = step.closed.tool if key == "tool" else step.closed.id if key == "call" else None
            return life.attribute(key) if value is None else value

        soonest = life.openings.observe(self._patterns, name, event.at, step, attribute)
        if life.phases.phase == ENDED:
            life.openings.end_graces()
            life.lingering_calls = []
        elif soonest is not None:
            self._schedule(life, soonest)

    def _learn(self, life: Life, at: float, step: Step) -> None:
        times = self.times(life.owner.tenant)
        if step.opened is not None:
            self._owners.call_opened(life, step.opened)
        if step.closed is not None:
            self._owners.call_closed(life, step.closed)
            times.called(step.closed.tool, max(0.0, at - step.closed.at))
            life.lingering_calls = [*life.lingering_calls, step.closed][-16:]
            self._schedule(life, at + GRACE_S)
        if not step.moved:
            return
        if life.phases.phase == ENDED:
            self._never_returned(life, step.left, step.since)
        elif step.left == HUMAN_PAUSE and life.phases.phase == RUNNING:
            times.human.add(max(0.0, at - step.since))

    def _never_returned(self, life: Life, phase: str, since: float) -> None:
        """The owner is gone: its open pause never ended by a return."""
        times = self.times(life.owner.tenant)
        if phase == HUMAN_PAUSE:
            times.human.add_never(max(0.0, self._now - since))
        for call in life.phases.ended_calls:
            self._owners.call_closed(life, call)
            times.called(call.tool, max(0.0, self._now - call.at), returned=False)
        life.phases.ended_calls = []
        if life.turns:
            self.memoryfulness.ended(life.turns)
            life.turns = 0

    def _lapse(self, life: Life, at: float) -> None:
        now = self._now
        life.openings.lapse(now)
        if life.lingering_calls and not life.openings.lingering:
            life.lingering_calls = []
        if life.unclassified_until is not None and life.unclassified_until <= now:
            ended = life.unclassified_until
            life.unclassified_until = None
            if life.phases.phase == RUNNING and not life.running:
                life.phases.enter(IDLE, ended)
                life.openings.leave_phase(ended)
        ends = [end for end in life.openings.ends() if end > now]
        if life.unclassified_until is not None:
            ends.append(life.unclassified_until)
        if ends:
            self._schedule(life, min(ends))

    def _schedule(self, life: Life, at: float) -> None:
        """One deadline an owner: the earliest. Later ones are found again when it has passed."""
        if life.deadline is not None and life.deadline <= at:
            return
        life.deadline = at
        heapq.heappush(self._deadlines, (at, next(self._ticket), life))
        if len(self._deadlines) > 2 * len(self._owners.lives) + 64:
            kept = [row for row in self._deadlines if row[2].deadline == row[0]]
            self._deadlines = list({id(row[2]): row for row in kept}.values())
            heapq.heapify(self._deadlines)
