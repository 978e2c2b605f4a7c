"""What engines hold for owners by our plans: read again when something happens, and told over the control channel.

`decisions` puts every plan here that went out; events, answers and time make it read the owner's plans again, and what
changed is sent to the engine that holds the blocks. One plan a chain, the newest, as its claims replace those before.
Sending never waits.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from math import inf
from time import perf_counter
from typing import Any

from kvpolicy.adapter import READY
from kvpolicy.directive import Plan
from kvpolicy.request import Owner, Request
from kvpolicy.service.exchange import Exchange
from kvpolicy.service.meaning.client_agents import ClientAgents
from kvpolicy.service.meaning.sessions import Chain
from kvpolicy.service.outbox import Said
from kvpolicy.service.planning import Planning
from kvpolicy.service.policies import ENFORCE
from kvpolicy.service.seen import Seen
from kvpolicy.steering.steering import ENDS
from kvpolicy.workflow.events import Event

Send = Callable[[str, Said], None]
MOST_OWNERS = 100_000
MOST_CHAINS = 16  # of one owner
AT_ONCE = 16  # plans that are read again in one step, while nobody else's request goes on
STEP_S = 0.002  # likewise, of what is done in steps
REACHED_AT_ONCE = 8  # owners that an event comes to in one step


@dataclass(slots=True)
class Held:
    """A plan that an engine acts on. told: the payload as last sent."""

    exchange: Exchange
    seen: Seen
    request: Request
    told: Mapping[str, Any] | None
    valid_until: float = inf
    untold: bool = False  # its plan was there before an engine was chosen


class Holding:
    """send: a message to the engine at an address. counts: replans sent events faults. agents: at which nodes those
    stand that clients name by ids. sooner: set when something is due before all that was due; whoever sleeps until
    then wakes."""

    def __init__(self, planning: Planning, send: Send) -> None:
        self._planning, self._state, self._send = planning, planning.state, send
        self._owners: OrderedDict[Owner, OrderedDict[int, Held]] = OrderedDict()
        self._by_id: dict[str, Held] = {}
        self._due: list[tuple[float, int, Held]] = []
        self._numbers = count()
        self._plans = 0  # that are held
        self._engines: set[str] = set()
        self.counts: Counter[str] = Counter()
        self.agents = ClientAgents()
        self.sooner = asyncio.Event()

    def __len__(self) -> int:
        return len(self._owners)

    def all(self) -> Iterator[tuple[Owner, tuple[Held, ...]]]:
        """Every owner with its plans, the latest heard of last."""
        for owner, chains in list(self._owners.items()):
            yield owner, tuple(chains.values())

    def find(self, request_id: str) -> Held | None:
        """The plan of a request, while it is its chain's newest."""
        return self._by_id.get(request_id)

    def last(self, owner: Owner, chain: Chain) -> Held | None:
        """The newest plan of an owner's chain."""
        chains = self._owners.get(owner)
        return None if chains is None else chains.get(id(chain))

    def let_go(self, owner: Owner, model: str | None) -> None:
        """Another replica serves this owner's requests now: its plans are that one's affair."""
        chains = self._owners.get(owner)
        for key, held in list(chains.items()) if chains is not None else ():
            if held.seen.conversation.model == model:
                assert chains is not None
                del chains[key]
                self._plans -= 1
                self._by_id.pop(held.exchange.id, None)
                self.counts["let_go"] += 1
        if chains is not None and not chains:
            del self._owners[owner]

    def forget(self, owner: Owner) -> None:
        """Nothing was heard of an owner for so long that its claims have ended everywhere."""
        for held in self._owners.pop(owner, {}).values():
            self._by_id.pop(held.exchange.id, None)
            self._plans -= 1

    def hold(self, exchange: Exchange, seen: Seen, payload: Mapping[str, Any]) -> None:
        """A plan went out with its request, or is about to follow it. payload: as the engine takes it."""
        if seen.request is None or seen.plan is None:
            return
        chains = self._owners.setdefault(seen.arrived.owner, OrderedDict())
        self._owners.move_to_end(seen.arrived.owner)
        held = Held(exchange, seen, seen.request, payload)
        key = id(seen.arrived.chain)
        before = chains.pop(key, None)
        gone = [] if before is None else [before]
        chains[key] = held
        while len(chains) > MOST_CHAINS:
            gone.append(chains.popitem(last=False)[1])
        while len(self._owners) > MOST_OWNERS:
            gone += self._owners.popitem(last=False)[1].values()
        for each in gone:
            self._by_id.pop(each.exchange.id, None)
        self._plans += 1 - len(gone)
        self._by_id[exchange.id] = held
        self._time(held, seen.plan)

    def follow(self, exchange: Exchange, seen: Seen) -> None:
        """Send the newest plan of a request that went out without one."""
        for held in self._owners.get(seen.arrived.owner, {}).values():
            if held.exchange is exchange:
                self._tell(held)

    def arrived(self, exchange: Exchange) -> None:
        """A request has reached an engine: a plan that was made on the way follows it now."""
        held = self._by_id.get(exchange.id)
        if held is not None and held.untold:
            self._tell(held)

    def replan(self, owners: Iterable[Owner], now: float, besides: str | None = None) -> None:
        """Read the plans of some owners again; what changed is sent. The first AT_ONCE at once, the others are due."""
        read = 0
        for owner in dict.fromkeys(owners):
            for held in list(self._owners.get(owner, {}).values()):
                if held.exchange.id == besides:
                    continue
                read += 1
                if read <= AT_ONCE:
                    self._again(held, now)
                elif held.valid_until > now:
                    self._due_at(held, now)

    def came(self, owner: Owner, event: str, now: float) -> None:
        """What this owner holds until this event is held no more."""
        for url in self.urls(owner):
            self._engines.add(url)
            self._send(url, Said("event", owner, event=event))

    def happened(self, event: Event, owners: Iterable[Owner]) -> None:
        """An event reached some owners: holds until it end, claims that it ends end, plans are read again."""
        reached = list(dict.fromkeys(owners))
        self.heard(event, reached)
        self.replan(reached, event.at)

    def heard(self, event: Event, owners: Iterable[Owner]) -> None:
        """The same, where plans are read again later."""
        reached, ends = list(owners), ENDS.get(event.name)
        self.agents.told(event, reached)
        for owner in reached:
            if owner not in self._owners:
                continue
            self.counts["events"] += 1
            self.came(owner, event.name, event.at)
            if ends is not None:
                for url in self.urls(owner):
                    self._send(url, Said("end", owner, lifetimes=tuple(sorted(ends))))

    def tick(self, now: float) -> float:
        """Let events reach more of those whom they mean, and read again what is due by now, AT_ONCE plans and STEP_S
        of each at most. Returns seconds until the next is due (0 or less: it is due already), inf for none."""
        self.replan((*self._state.advance(now), *self._state.silenced()), now)
        ends = perf_counter() + STEP_S
        while self._state.go_on() and perf_counter() < ends:
            pass
        read, ends = 0, perf_counter() + STEP_S
        while self._due and self._due[0][0] <= now and read < AT_ONCE and perf_counter() < ends:
            _, _, held = heapq.heappop(self._due)
            if held.valid_until <= now and self._is_held(held):
                self._again(held, now)
                read += 1
        if self._state.is_behind:
            return 0.0
        return self._due[0][0] - now if self._due else inf

    def reached(self, event: Event, owners: Sequence[Owner]) -> None:
        """An event that means many has reached some of them; none: it is on its way from now on."""
        if owners:
            self.happened(event, owners)
        else:
            self.sooner.set()

    # --- inside ---------------------------------------------------------------------------------------------------

    def _again(self, held: Held, now: float) -> None:
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
        url = held.exchange.upstream
        held.untold = url is None
        if url is None or held.told is None or held.seen.chosen.mode != ENFORCE:
            return
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
        if len(self._due) > 64 + 4 * self._plans:
            self._due = [row for row in self._due if row[2].valid_until == row[0] and self._is_held(row[2])]
            heapq.heapify(self._due)

    def _is_held(self, held: Held) -> bool:
        chains = self._owners.get(held.request.owner)
        return chains is not None and chains.get(id(held.seen.arrived.chain)) is held

    def engines(self) -> set[str]:
        """Engines that held something for somebody to whom something happened."""
        return set(self._engines)

    def urls(self, owner: Owner) -> set[str]:
        """Engines that act on plans of this owner; shadowed ones were told of none."""
        chains = self._owners.get(owner)
        listed = () if chains is None else chains.values()
        return {
            held.exchange.upstream
            for held in listed
            if held.exchange.upstream is not None and held.seen.chosen.mode == ENFORCE
        }
