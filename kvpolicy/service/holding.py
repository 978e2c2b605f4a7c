"""What engines hold for owners by our plans: read again when something happens, and told over the control channel.

`decisions` puts every plan here that went out; events, answers and time make it read the owner's plans again, and what
changed is sent to the engine that holds the blocks. One plan a chain, the newest, as its claims replace those before;
and those of requests that it does not go on from, while they run or a tool that they called does. Sending never waits.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count
from math import inf
from time import perf_counter
from typing import Any

from kvpolicy.adapter import READY
from kvpolicy.directive import Plan
from kvpolicy.request import Owner, Request
from kvpolicy.service.exchange import Exchange
from kvpolicy.service.held import Awaited, Held, Plans, reads_others
from kvpolicy.service.meaning.client_agents import ClientAgents
from kvpolicy.service.outbox import Said
from kvpolicy.service.planning import Planning
from kvpolicy.service.seen import Seen
from kvpolicy.service.stepping import Stepping
from kvpolicy.steering.steering import ENDS
from kvpolicy.workflow.events import Event

Send = Callable[[str, Said], None]
AT_ONCE = 16  # plans that are read again in one step, while nobody else's request goes on
STEP_S = 0.002  # likewise, of what is done in steps
REACHED_AT_ONCE = 8  # owners that an event comes to in one step
MATES_AT_ONCE = 64  # that are looked at in one part of a step


class Holding:
    """plans: those that are held; awaited: requests whose plans are to follow. send: a message to the engine at an
    address. counts: replans sent events faults. agents: at which nodes those stand that clients name by ids. sooner:
    set when something is due before all that was due; whoever sleeps until then wakes."""

    def __init__(self, planning: Planning, send: Send) -> None:
        self.plans, self.awaited = Plans(), Awaited()
        self._planning, self._state, self._send = planning, planning.state, send
        self._due: list[tuple[float, int, Held]] = []
        self._numbers = count()
        self._engines: set[str] = set()
        self._ending: dict[Owner, set[str]] = {}  # claims that end when the owner's plans have been read again
        self._stepping = Stepping(self._state)
        self._reads_others = False  # whether a policy was in force by which a run's owners hang on each other
        self.counts: Counter[str] = Counter()
        self.agents = ClientAgents()
        self.sooner = asyncio.Event()

    def let_go(self, owner: Owner, model: str | None) -> None:
        """Another replica serves this owner's requests now: its plans are that one's affair."""
        self._ending.pop(owner, None)
        for held in self.plans.of(owner):
            if held.seen.conversation.model == model:
                self.plans.drop(held)
                self.counts["let_go"] += 1

    def forget(self, owner: Owner) -> None:
        """Nothing was heard of an owner for so long that its claims have ended everywhere."""
        self._ending.pop(owner, None)
        for held in self.plans.of(owner):
            self.plans.drop(held)

    def hold(self, exchange: Exchange, seen: Seen, payload: Mapping[str, Any]) -> None:
        """A plan went out with its request, or is about to follow it. payload: as the engine takes it."""
        if seen.request is None or seen.plan is None:
            return
        self._reads_others = self._reads_others or reads_others(seen.chosen.version.policy)
        held = Held(exchange, seen, seen.request, payload)
        self.plans.put(held)
        self._time(held, seen.plan)

    def follow(self, exchange: Exchange) -> None:
        """Send the newest plan of a request that went out without one."""
        held = self.plans.find(exchange.id)
        if held is not None:
            self._tell(held)

    def arrived(self, exchange: Exchange) -> None:
        """A request goes to an engine: a plan that was made on the way follows it now."""
        held = self.plans.find(exchange.id)
        if held is not None and (held.untold or (held.at is not None and held.at != held.url)):
            self._tell(held)

    def replan(self, owners: Iterable[Owner], now: float, besides: str | None = None) -> None:
        """Read the plans of some owners again; what changed is sent. The first AT_ONCE at once, the others are due.
        What is to end with an event ends after that: a plan may say of it that it is dropped."""
        read = 0
        for owner in dict.fromkeys(owners):
            for held in self.plans.of(owner):
                if held.exchange.id == besides:
                    continue
                read += 1
                if read <= AT_ONCE:
                    self._again(held, now)
                else:
                    self._make_due(held, now)
            self._end(owner)

    def stepped(self, owners: Iterable[Owner]) -> None:
        """Owners did something, and their own plans have been read again or are due: what is planned for others of
        their runs may be another thing now, and is made due in the next turns."""
        if self._reads_others:
            self._stepping.note(owners)
            self.sooner.set()

    def came(self, owner: Owner, event: str, *, noticed: bool = False) -> None:
        """Something happened to this owner. noticed: nobody said so, it was seen in a prompt."""
        self._say(owner, Said("event", owner, event=event, noticed=noticed))

    def _say(self, owner: Owner, said: Said) -> None:
        """Tell all engines that hold something for an owner."""
        for url in self.urls(owner):
            self._engines.add(url)
            self._send(url, said)

    def happened(self, event: Event, owners: Iterable[Owner]) -> None:
        """An event reached some owners: holds until it end, claims that it ends end, plans are read again."""
        reached = list(dict.fromkeys(owners))
        self.heard(event, reached)
        self.replan(reached, event.at)
        self.stepped(reached)

    def heard(self, event: Event, owners: Iterable[Owner], *, noticed: bool = False) -> None:
        """The same, where plans are read again later. noticed: see `came`."""
        reached, ends = list(owners), ENDS.get(event.name)
        self.agents.told(event, reached)
        for owner in reached:
            if ends is not None:
                self.awaited.end(owner, ends)
            if not self.plans.knows(owner):
                continue
            self.counts["events"] += 1
            if event.name != "tool_result" or self._state.phase(owner) != "tool_pause":  # another call may be open
                self.came(owner, event.name, noticed=noticed)
            if ends is not None:
                self._ending.setdefault(owner, set()).update(ends)

    def tick(self, now: float) -> float:
        """Let events reach more of those whom they mean, and read again what is due by now, AT_ONCE plans and STEP_S
        of each at most. Returns seconds until the next is due (0 or less: it is due already), inf for none."""
        self.replan((*self._state.advance(now), *self._state.silenced()), now)
        ends = perf_counter() + STEP_S
        while self._state.go_on() and perf_counter() < ends:
            pass
        self._step(now)
        read, ends = 0, perf_counter() + STEP_S
        while self._due and self._due[0][0] <= now and read < AT_ONCE and perf_counter() < ends:
            at, _, held = heapq.heappop(self._due)
            if held.valid_until == at and self.plans.holds(held):
                self._again(held, now)
                self._end(held.request.owner)
                read += 1
        if self._state.is_behind or self._stepping:
            return 0.0
        return self._due[0][0] - now if self._due else inf

    def reached(self, event: Event, owners: Sequence[Owner]) -> None:
        """An event that means many has reached some of them; none: it is on its way from now on."""
        if owners:
            self.happened(event, owners)
        else:
            self.sooner.set()

    # --- inside ---------------------------------------------------------------------------------------------------

    def _step(self, now: float) -> None:
        """Make due what others' steps may have changed, for STEP_S."""
        ends = perf_counter() + STEP_S
        while perf_counter() < ends and (mates := self._stepping.take(MATES_AT_ONCE)):
            for mate in mates:
                for held in self.plans.of(mate):
                    if reads_others(held.seen.chosen.version.policy):
                        self._make_due(held, now)

    def _end(self, owner: Owner) -> None:
        """End what an event ends, once no plan of the owner waits to be read again."""
        if owner not in self._ending or any(held.due for held in self.plans.of(owner)):
            return
        ends = self._ending.pop(owner)
        self._say(owner, Said("end", owner, lifetimes=tuple(sorted(ends))))
        for held in self.plans.of(owner):
            held.seen.ends |= ends

    def _make_due(self, held: Held, now: float) -> None:
        if not held.due:
            self._due_at(held, now)
            held.due = True

    def _again(self, held: Held, now: float) -> None:
        held.due = False
        try:
            made = self._planning.make(held.seen, held.request, now)
        except Exception:  # what stands, stands
            self.counts["faults"] += 1
            held.valid_until = inf
            return
        held.seen.plan = made
        told = self._payload(made, held.request)
        self.counts["replans"] += 1
        if told != held.told:
            held.told = told
            self._tell(held)
        self._time(held, made)

    def _tell(self, held: Held) -> None:
        url = held.url
        held.untold = url is None
        if url is None or held.told is None or not held.enforced:
            return
        held.at = url
        self._send(url, Said("plan", held.request.owner, held.exchange.id, held.told))
        self.counts["sent"] += 1

    def _payload(self, made: Plan, request: Request) -> Mapping[str, Any] | None:
        lowered = self._planning.lower(made, request)
        return lowered.payload if lowered.state == READY else None

    def _time(self, held: Held, made: Plan) -> None:
        self._due_at(held, inf if made.valid_until is None else made.valid_until)

    def _due_at(self, held: Held, at: float) -> None:
        held.valid_until = at
        if at < inf:
            if not self._due or at < self._due[0][0]:
                self.sooner.set()
            heapq.heappush(self._due, (at, next(self._numbers), held))
        if len(self._due) > 64 + 4 * self.plans.count:
            self._due = [row for row in self._due if row[2].valid_until == row[0] and self.plans.holds(row[2])]
            heapq.heapify(self._due)

    def engines(self) -> set[str]:
        """Engines that held something for somebody to whom something happened."""
        return set(self._engines)

    def urls(self, owner: Owner) -> set[str]:
        """Engines that act on plans of this owner; shadowed ones were told of none."""
        return {url for held in self.plans.of(owner) if held.enforced for url in held.everywhere}
