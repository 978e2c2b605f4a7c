"""What comes when: a trace's calls, each with what has to end before it and how long after that it comes.

A recorded stamp says when a call came on the server that was recorded. Here only a session's first call comes at its
stamp; every other one comes its pause after the calls it waits for have ended on the modelled engine. Made once of a
trace, read by every run (`loop`).

What a call waits for: its owner's previous call that had ended by then, and what the trace states; where it states
nothing, a branch's first call waits for the session's latest, and a session's own call also for the branches begun
since, as an agent waits for its sub-agents. The pause is from the latest recorded end of those; where a trace does not
say how long calls took, it is the time between the stamps, and contains the recorded server's own time.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field

from kvpolicy.faults import InputFault
from kvpolicy.simulate.trace import Call

MOST_REFERENCES = 50_000_000  # block references of a trace that is kept whole, 8 bytes each
_LATEST = 8  # calls of a session that a later one may continue
_Row = Mapping[str, object]


@dataclass(slots=True)
class Demand:
    """One call. session: its number; a call without one has its own. at: when it comes if it waits for nothing.

    waits: how many calls have to end first; pause: seconds from there. followers: those that wait for it. names: of
    all full blocks that are computed for it, prompt and answer. after: (seconds after its end, event). last: of its
    session.
    """

    call: Call
    session: int
    at: float
    names: list[Hashable]
    waits: int = 0
    pause: float = 0.0
    followers: list[int] = field(default_factory=list)
    after: list[tuple[float, _Row]] = field(default_factory=list)
    last: bool = False

    @property
    def output(self) -> int:
        """Tokens of the answer: one at least, as an engine makes one."""
        return max(self.call.answer.output_tokens, 1)


@dataclass(slots=True)
class Schedule:
    """All demands of a trace in its order. events: (time, event) of what belongs to no call. stamped: calls whose pause
    is taken from stamps without recorded durations."""

    demands: list[Demand] = field(default_factory=list)
    events: list[tuple[float, _Row]] = field(default_factory=list)
    sessions: int = 0
    stamped: int = 0


@dataclass(slots=True)
class _Session:
    number: int
    calls: list[int] = field(default_factory=list)
    by_owner: dict[Hashable, list[int]] = field(default_factory=dict)
    unjoined: dict[Hashable, int] = field(default_factory=dict)
    open_answers: list[int] = field(default_factory=list)


class _Maker:
    def __init__(self) -> None:
        self.schedule = Schedule()
        self._sessions: dict[Hashable, _Session] = {}
        self._ids: dict[str, int] = {}
        self._references = 0

    def add(self, call: Call) -> None:
        schedule, request = self.schedule, call.request
        index, owner = len(schedule.demands), request.owner
        self._references += len(call.hashes)
        if self._references > MOST_REFERENCES:
            raise InputFault(f"--engine-model keeps the whole trace, and takes at most {MOST_REFERENCES:,} references")
        for row in call.before:
            self._happened(row, call.at)
        session = self._session(owner.tenant, owner.session)
        waited = self._waits(session, call)
        demand = Demand(call, session.number, call.at, self._names(call, index))
        if waited:
            end = max(self._end(one) for one in waited)
            demand.waits = len(waited)
            demand.pause = max(call.at - end, 0.0) if call.pause is None else call.pause
            if call.pause is None and any(schedule.demands[one].call.took is None for one in waited):
                schedule.stamped += 1
            for one in waited:
                before = schedule.demands[one]
                before.followers.append(index)
                before.after = [(min(delay, demand.pause), row) for delay, row in before.after]
        demand.after += [(0.0, row) for row in call.after]
        schedule.demands.append(demand)
        self._ids[request.id] = index
        if owner.session is not None:
            self._continues(session, call)
            self._remember(session, call, index)

    def end(self) -> Schedule:
        for session in self._sessions.values():
            self.schedule.demands[session.calls[-1]].last = True
        return self.schedule

    def _session(self, tenant: str, name: str | None) -> _Session:
        session = self._sessions.get((tenant, name)) if name is not None else None
        if session is None:
            session = _Session(self.schedule.sessions)
            self.schedule.sessions += 1
            if name is not None:
                self._sessions[tenant, name] = session
        return session

    def _end(self, index: int) -> float:
        """When a call ended, as recorded."""
        call = self.schedule.demands[index].call
        return call.at + (call.took or 0.0)

    def _waits(self, session: _Session, call: Call) -> list[int]:
        if call.waits_for is not None:
            unknown = [name for name in call.waits_for if name not in self._ids]
            if unknown:
                raise InputFault(f"call {call.request.id} waits for {unknown[0]}, and no earlier call has that id")
            own_last = session.by_owner.get(call.request.owner.key, [])[-1:]
            return list(dict.fromkeys([*(self._ids[name] for name in call.waits_for), *own_last]))
        own = session.by_owner.get(call.request.owner.key)
        if not own:
            return session.calls[-1:]
        ended = [one for one in reversed(own) if self._end(one) <= call.at + 1e-3]
        stated = call.pause is not None or not ended
        found = [own[-1] if stated else max(ended, key=self._end)]
        if call.request.owner.branch is None:
            found += session.unjoined.values()
            session.unjoined.clear()
        return list(dict.fromkeys(found))

    def _remember(self, session: _Session, call: Call, index: int) -> None:
        owner = call.request.owner
        session.calls.append(index)
        own = session.by_owner.setdefault(owner.key, [])
        own.append(index)
        del own[:-_LATEST]
        if owner.branch is not None:
            session.unjoined[owner.key] = index
        session.open_answers.append(index)
        del session.open_answers[:-_LATEST]

    def _names(self, call: Call, index: int) -> list[Hashable]:
        """Names of its full blocks. Those that its answer fills get names of their own until a later prompt is seen to
        send the answer again."""
        size, tokens = call.request.block_size, call.request.tokens
        own = tokens // size
        filled = (tokens + max(call.answer.output_tokens, 1) - 1) // size
        return [*call.hashes[:own], *(("answer", index, place) for place in range(own, filled))]

    def _continues(self, session: _Session, call: Call) -> None:
        """An earlier call whose prompt this one extends, with room for the answer, is taken to have it sent again: what
        the answer filled is then found under the names that this prompt gives."""
        for one in list(session.open_answers):
            demand = self.schedule.demands[one]
            before = demand.call.request
            own, filled = before.tokens // before.block_size, len(demand.names)
            room = call.request.tokens >= before.tokens + demand.output
            if room and own <= len(call.hashes) and (not own or call.hashes[own - 1] == demand.names[own - 1]):
                demand.names[own:] = call.hashes[own:filled]
                session.open_answers.remove(one)

    def _happened(self, row: _Row, now: float) -> None:
        """An event between calls: it comes as long after its session's previous call as it did when recorded."""
        at = row.get("at", now)
        time = float(at) if isinstance(at, int | float) else now
        tenant, name = row.get("tenant") or "default", row.get("session")
        session = self._sessions.get((tenant, name)) if name is not None else None
        if session is None or not session.calls:
            self.schedule.events.append((time, row))
            return
        branch, index = row.get("branch"), session.calls[-1]
        for key, own in session.by_owner.items():
            if branch is not None and isinstance(key, tuple) and key[4] == branch:
                index = own[-1]
        self.schedule.demands[index].after.append((max(time - self._end(index), 0.0), row))


def schedule_of(calls: Iterable[Call]) -> Schedule:
    """The demands of a trace's calls, in their order. Raises InputFault for a trace that is too long to be kept."""
    maker = _Maker()
    for call in calls:
        maker.add(call)
    return maker.end()
