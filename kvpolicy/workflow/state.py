"""Run state: what has happened to every owner, as rules read it. Fulfils `policy.model.State`.

Requests, their answers and events come in with their times; intervals, phases, distances and learned times come out.
The clock only moves by what is passed in, and never back. Nothing here raises on any order of events: what is late,
repeated or lost is settled by rules (see `phases`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from kvpolicy.policy.model import IntervalPattern, Opening, Subject
from kvpolicy.request import Owner, Request
from kvpolicy.workflow import signals
from kvpolicy.workflow.events import Event
from kvpolicy.workflow.graph import Graph
from kvpolicy.workflow.life import Life
from kvpolicy.workflow.phases import HUMAN_PAUSE, RUNNING, TOOL_PAUSE
from kvpolicy.workflow.reaching import Reaching
from kvpolicy.workflow.spreading import Spread

ToolCall = str | tuple[str | None, str | None]  # a tool's name, or (name, call id)


class RunState(Reaching):
    """The state of all runs. `intervals`: those of the policy in force. `graph`: the workflow, if one is known.

    What happens is told by `arrive`, `touched`, `answer`, `cancel`, `observe` and `advance`; each returns the owners
    that have to be planned again for it. kind_blind: no function answers by the kind of a span.
    """

    kind_blind = True

    def __init__(self, intervals: Iterable[IntervalPattern] = (), graph: Graph | None = None) -> None:
        super().__init__(intervals, graph)
        self._requests: dict[str, Life] = {}
        self._silenced: list[Owner] = []

    # --- what rules read ----------------------------------------------------------------------------------

    def opening(self, interval: IntervalPattern, subject: Subject) -> Opening | None:
        """The innermost opening of `interval` for the subject's owner; one in its grace only where none is open."""
        life = self._owners.lives.get(subject.owner)
        if life is None:
            return None
        return life.openings.innermost(self._moves.patterns.number(interval))

    def intervals_of(self, owner: Owner) -> Callable[[IntervalPattern], Opening | None] | None:
        """`opening` for one owner, looked up once; None where nothing is open for it, not even in a grace."""
        life = self._owners.lives.get(owner)
        if life is None or not (life.openings.open or life.openings.lingering):
            return None
        number, innermost = self._moves.patterns.number, life.openings.innermost
        return lambda interval: innermost(number(interval))

    def read(self, function: str, argument: object, subject: Subject) -> float | None:
        """A function of the language, see `policy.model.State.read`."""
        return signals.read(self, self._owners.lives.get(subject.owner), function, argument, subject)

    # --- what happens -------------------------------------------------------------------------------------

    def watch(self, intervals: Iterable[IntervalPattern]) -> None:
        """Watch the intervals of a policy that came into force now; they open by events from now on."""
        for interval in intervals:
            self._moves.patterns.number(interval)

    def advance(self, now: float) -> tuple[Owner, ...]:
        """Move the clock. Returns the owners for whom a grace or a bound ended: they have to be planned again."""
        if now > self._now:
            self._now = now
            self.learned.pauses.advance(now, self._most_pauses())
            for owner in self.runs.fallen_silent(now, self.at_once):
                mates = list(self._owners.of_run(owner))
                if any(life.running for life in mates):
                    self.runs.heard(owner, now)  # an answer takes that long
                else:
                    self._silenced += (life.owner for life in mates)
        if self._moves.deadlines.soonest > self._now:
            return ()
        return self._moves.lapse(self._now, self.at_once)

    def silenced(self) -> tuple[Owner, ...]:
        """Owners of runs that fell silent since this was last asked: what rules said of the run's next steps is no
        longer so."""
        if not self._silenced:
            return ()
        owners, self._silenced = tuple(self._silenced), []
        return owners

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
        life.attributes, life.model, life.tokens = request.attributes, request.model, request.tokens
        node = request.attributes.get("node")
        if isinstance(node, str) and node != life.node:
            self._owners.move(life, node)
        self.learned.pauses.returned(life, self._now)
        known = request.id in life.running  # the same request, sent again
        life.running[request.id] = None
        self._requests[request.id] = life
        life.unclassified_until = None
        life.phases.request(self._now)
        phases, at = life.phases, self._now
        if phases.phase == TOOL_PAUSE:
            for call in list(phases.calls):
                if results is None or call.id in results or call.tool in results:
                    self._moves.answered(life, call, at)
        elif phases.phase == HUMAN_PAUSE:
            self._moves.apply(life, Event(at, "turn_start"))
        elif phases.phase != RUNNING:
            self._moves.enter(life, RUNNING, at)
        life.turns += not known
        self.runs.arrived(life.owner, life.place(), at, request.attributes.get("workflow"))
        return changed

    def touched(self, request_id: str, now: float) -> tuple[Owner, ...]:
        """The request has touched its blocks: its owner's graces end. Returns the owner too if there were any."""
        changed = self.advance(now)
        life = self._requests.get(request_id)
        if life is None:
            return changed
        self._catch_up(life)
        life.lingering_calls = []
        if life.openings.end_graces():
            return tuple(dict.fromkeys((*changed, life.owner)))
        return changed

    def answer(
        self,
        request: Request,
        now: float,
        *,
        tool_calls: Sequence[ToolCall] = (),
        finished: bool | None = None,
        output_tokens: int | None = None,
    ) -> tuple[Owner, ...]:
        """The answer of a request is done.

        `tool_calls`: what it asked for. `finished` True: a human is next; False: it was cut short; None: nobody knows
        yet, and 2 s are given to find out. `output_tokens`: its length, where known; it tells something about the
        pause that follows. While other requests of the owner run, only tool calls move its phase.
        """
        changed = self.advance(now)
        life = self._requests.pop(request.id, None) or self._known(request.owner)
        self._catch_up(life)
        life.running.pop(request.id, None)
        life.output_tokens = output_tokens
        at = self._now
        self.runs.heard(life.owner, at)
        if not life.running:
            life.running = {}  # an emptied one keeps its room, and there are owners by the hundred thousand
            life.idle_since = at
        for tool_call in tool_calls:
            tool, call = (tool_call, None) if isinstance(tool_call, str) else tool_call
            self._moves.apply(life, Event(at, "tool_call", {"tool": tool, "call": call}), request.id)
        if life.running:
            return changed
        if tool_calls:
            self.learned.pauses.begin(life, at)
            return changed
        if finished:
            seconds = self.runs.answered(life.owner, life.place(), at)
            if seconds is not None:
                self.learned.stepped(life.owner.tenant, life.place(), seconds, at)
            self._moves.apply(life, Event(at, "turn_end"))
        else:
            self._moves.unclassified(life, at)
        self.learned.pauses.begin(life, at)
        return changed

    def cancel(self, request_id: str, now: float) -> tuple[Owner, ...]:
        """A request was withdrawn: no answer of it will come."""
        changed = self.advance(now)
        life = self._requests.pop(request_id, None)
        if life is not None:
            self._catch_up(life)
            life.running.pop(request_id, None)
            if not life.running:
                life.idle_since = self._now
                self._moves.unclassified(life, self._now)
                self.learned.pauses.begin(life, self._now)
        return changed

    def observe(self, event: Event, owner: Owner | None = None) -> tuple[Owner, ...]:
        """Take an event. `owner`: it was read from this owner's request or answer and addresses it alone.

        Without `owner` it addresses every owner that agrees with the owner fields it states. One that finds nobody
        waits up to an hour for its owner. Returns the owners addressed (and those whose graces had ended by then).
        rest: says who is still to be reached, where `at_once` bounds that; None: nobody.
        """
        changed = self.advance(event.at)
        branch = event.attributes.get("branch")
        self.rest = None
        if owner is not None:
            lives = [self._known(owner)]
        else:
            self.rest = self._spread(event)
            lives = [] if self.rest is not None else self._owners.addressed(event)
            if self.at_once is not None and len(lives) > self.at_once:
                lives, self.rest = [], self._begin(Spread(event, lives, None))
            if not lives and self.rest is None:
                self._early.keep(event)
            if branch is not None:
                self._branches.observe(event, branch)
            if self.rest is not None:
                return changed
        for life in lives:
            self._reach(life, event, alone=owner is not None)
        addressed = [life.owner for life in lives]
        self._heard(event, addressed)
        return tuple(dict.fromkeys((*changed, *addressed))) if changed else tuple(addressed)

    def record_hit(self, owner: Owner, kind: str) -> None:
        """A span of this kind was found cached by an owner who had not used it before: others had left it there."""
        self.learned.found_cached(owner, kind)

    def forget(self, owner: Owner) -> None:
        """Nothing of the owner is kept but what was learned; an open pause counts for as long as it was seen."""
        life = self._owners.get(owner)
        if life is not None:
            self._spreading.of(life)
            for request in life.running:
                self._requests.pop(request, None)
            self._moves.forget(life, self._now)
            self._branches.forget(owner)
            self.runs.forget(owner, self._owners.any_of_run(owner))

    def reap(self, idle_for: float = 86400.0) -> tuple[Owner, ...]:
        """Forget the owners of whom nothing was heard for `idle_for` seconds and of whom no request runs."""
        gone = [
            life.owner
            for life in self._owners.lives.values()
            if not life.running and self._now - life.heard() >= idle_for
        ]
        self.runs.reap(self._now, idle_for)
        for owner in gone:
            self.forget(owner)
        return tuple(gone)

    def _known(self, owner: Owner) -> Life:
        life = self._owners.get(owner)
        if life is not None:
            self._catch_up(life)
        else:
            life = self._owners.add(owner, self._now)
            for event in self._early.meant_for(life, self._now):
                life.phases.at = min(life.phases.at, event.at)
                self._moves.apply(life, event)
        return life
