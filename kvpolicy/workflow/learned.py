"""What the moves of owners teach: durations of tools, humans and steps per tenant, and how sessions grow.

`state` reports every move here; `signals` reads. Nothing of an owner itself is kept.
"""

from __future__ import annotations

from kvpolicy.request import Owner
from kvpolicy.workflow.durations import LearnedTimes
from kvpolicy.workflow.hold import Memoryfulness
from kvpolicy.workflow.life import Life
from kvpolicy.workflow.pauses import Pauses
from kvpolicy.workflow.phases import ENDED, HUMAN_PAUSE, RUNNING, Step

_MOST_AGENTS = 4096  # agents are named by callers


class Learned:
    """Learned times by tenant."""

    def __init__(self) -> None:
        self.memoryfulness = Memoryfulness()
        self.pauses = Pauses()
        self._times: dict[str, LearnedTimes] = {}
        self._found: dict[tuple[str, str | None], dict[str, int]] = {}  # by tenant and agent, the longest unused first

    def times(self, tenant: str) -> LearnedTimes:
        """The learned times of a tenant."""
        times = self._times.get(tenant)
        if times is None:
            times = self._times[tenant] = LearnedTimes()
        return times

    def replace(self, tenant: str, times: LearnedTimes) -> None:
        """Take these in place of what was learned of a tenant."""
        self._times[tenant] = times

    def reset(self, tenant: str) -> None:
        """Forget how long the tenant's tools, humans and steps took, and its classes of pauses."""
        self._times.pop(tenant, None)
        self.pauses.reset(tenant)

    def stepped(self, tenant: str, node: str | None, seconds: float, at: float) -> None:
        """A step of a workflow's node ended at `at` after `seconds`."""
        self.times(tenant).step.add(seconds)

    def found_cached(self, owner: Owner, kind: str) -> None:
        """An owner found a span of this kind cached that others had left there."""
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
        if step.closed is not None:
            self.times(life.owner.tenant).called(step.closed.tool, max(0.0, at - step.closed.at))
        if not step.moved:
            return
        if life.phases.phase == ENDED:
            self.gone(life, at, step.left, step.since)
        else:
            self.pauses.classify(life)
        if step.left == HUMAN_PAUSE and life.phases.phase == RUNNING:
            self.times(life.owner.tenant).human.add(max(0.0, at - step.since))

    def gone(self, life: Life, at: float, phase: str, since: float) -> None:
        """An owner's life is over: the pause it was in never ended by a return."""
        times = self.times(life.owner.tenant)
        if phase == HUMAN_PAUSE:
            times.human.add_never(max(0.0, at - since))
        for call in life.phases.abandoned:
            times.called(call.tool, max(0.0, at - call.at), returned=False)
        self.pauses.gone(life)
        if life.turns:
            self.memoryfulness.ended(life.turns)
            life.turns = 0
