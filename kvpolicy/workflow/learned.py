"""What the moves of owners teach: durations of tools, humans and steps per tenant, and how sessions grow.

`state` reports every move here; `signals` reads; `keep` makes a document of it and takes one. Nothing of an owner
itself is kept, and nothing that one tenant teaches is read for another.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvpolicy.faults import InputFault
from kvpolicy.request import Owner
from kvpolicy.workflow import keep
from kvpolicy.workflow.classes import Classes
from kvpolicy.workflow.durations import ENDED, HALF_LIFE_S, RETURNED, UNKNOWN
from kvpolicy.workflow.hold import Memoryfulness
from kvpolicy.workflow.learned_times import HUMAN, TOOL, LearnedTimes
from kvpolicy.workflow.life import Life
from kvpolicy.workflow.pauses import Pauses
from kvpolicy.workflow.phases import ENDED as LIFE_ENDED
from kvpolicy.workflow.phases import HUMAN_PAUSE, IDLE, RUNNING, Step

_MOST_AGENTS = 4096  # agents are named by callers


class Learned:
    """Learned times by tenant.

    half_life: seconds after which a duration weighs half. prior: the document of one tenant (see `export`) that every
    new tenant begins with; without one it begins with nothing. Raises InputFault for a prior that does not fit.
    """

    def __init__(self, half_life: float = HALF_LIFE_S, prior: Mapping[str, Any] | None = None) -> None:
        self.half_life = half_life
        self._prior: Mapping[str, Any] | None = None
        self.wanted = True  # whether anybody asks how long things take; if not, that is not learned
        self.pauses = Pauses(self._fresh_classes)
        self._times: dict[str, LearnedTimes] = {}
        self._memory: dict[str, Memoryfulness] = {}
        self.found_stamp = object()  # another whenever `cached` may answer otherwise
        self._found: dict[tuple[str, str | None], dict[str, int]] = {}  # by tenant and agent, the longest unused first
        if prior is not None:
            self.begin_with(prior)

    def begin_with(self, prior: Mapping[str, Any] | None) -> None:
        """Tenants of whom nothing is known yet begin with this document of one tenant from now on; None: with nothing.
        Raises InputFault, changing nothing, for one that does not fit."""
        if prior is not None:
            keep.times_of(prior)
            keep.classes_of(prior)
        self._prior = prior

    # --- what is kept of a tenant ---------------------------------------------------------------------------

    def tenants(self) -> tuple[str, ...]:
        """Those of whom anything was learned."""
        return tuple(dict.fromkeys((*self._times, *self._memory, *self.pauses.tenants())))

    def times(self, tenant: str) -> LearnedTimes:
        """The learned times of a tenant."""
        times = self._times.get(tenant)
        if times is None:
            times = self._times[tenant] = self._fresh_times()
        return times

    def memoryfulness(self, tenant: str) -> Memoryfulness:
        """How much a tenant's sessions say about the turns that are left by those that are done."""
        memory = self._memory.get(tenant)
        if memory is None:
            memory = self._memory[tenant] = Memoryfulness()
        return memory

    def known(self, tenant: str) -> tuple[LearnedTimes, Memoryfulness, Classes]:
        """What was learned of a tenant, to be read only; of one of whom nothing is known, what it would begin with."""
        times, memory = self._times.get(tenant), self._memory.get(tenant)
        return times or self._fresh_times(), memory or Memoryfulness(), self.pauses.known(tenant)

    def replace(self, tenant: str, times: LearnedTimes, memory: Memoryfulness, classes: Classes) -> None:
        """Take these in place of what was learned of a tenant; what is open stays so."""
        if tenant in self._times:
            times.go_on_with(self._times[tenant])
        self._times[tenant], self._memory[tenant] = times, memory
        self.pauses.replace(tenant, classes)

    def reset(self, tenant: str) -> None:
        """Forget how long the tenant's tools, humans and steps took, and its classes of pauses: as a new tenant."""
        before = self._times.pop(tenant, None)
        self._memory.pop(tenant, None)
        self.pauses.replace(tenant, None)
        if before is not None:
            self.times(tenant).go_on_with(before)

    def export(self, tenant: str) -> dict[str, Any]:
        """What was learned of one tenant, as a JSON document (see `keep`); of one of whom nothing is known, what it
        would begin with."""
        return keep.write(tenant, *self.known(tenant))

    def load(self, document: Mapping[str, Any], tenant: str | None = None) -> None:
        """Take a document in place of what was learned of its tenant (or of `tenant`); see `keep`. Raises InputFault,
        changing nothing, for one that does not fit."""
        name = document.get("tenant") if tenant is None and isinstance(document, Mapping) else tenant
        if not isinstance(name, str):
            raise InputFault("learned times without a tenant")
        self.replace(name, *keep.read(document, self.half_life))

    def _fresh_times(self) -> LearnedTimes:
        if self._prior is None:
            return LearnedTimes(self.half_life)
        return keep.times_of(self._prior, self.half_life)

    def _fresh_classes(self) -> Classes:
        if self._prior is None:
            return Classes()
        return keep.classes_of(self._prior)

    # --- what happens ---------------------------------------------------------------------------------------

    def stepped(self, tenant: str, node: str | None, seconds: float, at: float) -> None:
        """A step of a workflow's node ended at `at` after `seconds`."""
        if self.wanted:
            self.times(tenant).stepped(node, seconds, at)

    def found_cached(self, owner: Owner, kind: str) -> None:
        """An owner found a span of this kind cached that others had left there."""
        self.found_stamp = object()
        key = (owner.tenant, owner.agent)
        found = self._found.pop(key, {})
        found[kind] = found.get(kind, 0) + 1
        self._found[key] = found
        if len(self._found) > _MOST_AGENTS:
            del self._found[next(iter(self._found))]

    def cached(self, owner: Owner, kind: str) -> int | None:
        """How often that was so for the owner's agent, whoever's session; None: never."""
        return self._found.get((owner.tenant, owner.agent), {}).get(kind)

    def moved(self, life: Life, at: float, step: Step) -> None:
        """An owner took a step at `at`."""
        over = step.moved and life.phases.phase == LIFE_ENDED
        if self.wanted:
            self._time(life, at, step, over)
        if over:
            self._over(life, at, step.left, step.since, ENDED)
        elif step.moved:
            self.pauses.classify(life)

    def _time(self, life: Life, at: float, step: Step, over: bool) -> None:
        """What a step teaches of how long things take. over: it ended the owner's life, which `_over` learns from."""
        times, phase = self.times(life.owner.tenant), life.phases.phase
        if step.opened is not None:
            times.began(TOOL, step.opened.tool, step.opened.at)
        if step.closed is not None:
            times.over(TOOL, step.closed.tool, step.closed.at, at)
        if over:
            return
        for call in life.phases.abandoned:  # too many are open
            times.over(TOOL, call.tool, call.at, at, UNKNOWN)
        if not step.moved:
            return
        if phase == HUMAN_PAUSE:
            times.began(HUMAN, None, life.phases.at)
        elif step.left == HUMAN_PAUSE and phase in (RUNNING, IDLE):
            times.over(HUMAN, None, step.since, at, RETURNED if phase == RUNNING else UNKNOWN)
        elif step.left == HUMAN_PAUSE:  # a tool runs: the human came back unseen, nobody knows when
            times.human.closed(step.since)

    def gone(self, life: Life, at: float, phase: str, since: float) -> None:
        """An owner is forgotten, which was in `phase`: whether it would have come back nobody knows."""
        self._over(life, at, phase, since, UNKNOWN)

    def _over(self, life: Life, at: float, phase: str, since: float, way: str) -> None:
        """An owner's life is over, or lost sight of."""
        if self.wanted:
            times = self.times(life.owner.tenant)
            if phase == HUMAN_PAUSE:
                times.over(HUMAN, None, since, at, way)
            for call in life.phases.abandoned:
                times.over(TOOL, call.tool, call.at, at, way)
            if life.turns:
                self.memoryfulness(life.owner.tenant).ended(life.turns)
        self.pauses.gone(life, None if way == ENDED else at)
        life.turns = 0
