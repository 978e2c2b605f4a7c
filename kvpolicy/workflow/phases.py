"""The phase of one owner: idle, running, tool_pause, human_pause, ended.

`words.PHASE_AFTER` says where an event leads. Three things bend that table: while any call is open the owner is in
tool_pause; `ended` is left only by a request, `branch_start` or `resume`; an event older than the phase it would
change comes too late and changes nothing. So the phase is that of the latest events, in whatever order they come: a
result that comes before its call closes it, one that comes late leads where the events after it had led, a call that
comes late is open unless a request has come since, and an end that comes late ends the life that it is about.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from kvpolicy import words

IDLE, RUNNING, TOOL_PAUSE, HUMAN_PAUSE, ENDED = words.PHASES
REVIVES = ("branch_start", "resume")  # events that begin a new life
MOST_CALLS = 256  # open at once; without their results the oldest are given up
_MOST_SEEN = 256
_REMEMBERED_RESULTS = 32  # ids of closed calls kept to know a result that is delivered twice


@dataclass(slots=True, eq=False)
class Call:
    """A tool call that runs. `id` None: the caller gives no ids; its result is then the oldest of that tool. `request`:
    the one whose answer made the call; None: an event told of it."""

    tool: str | None
    id: str | None
    at: float
    eta: float | None = None
    returned_at: float = 0.0
    request: str | None = None


class Step(NamedTuple):
    """What an event did to an owner's phase.

    `opens`: whether intervals may open by it. Not so where the owner is in another phase than the event leads to (a
    result while other calls run), nor where the event only repeats what this phase has seen.
    """

    moved: bool
    left: str  # the phase before
    since: float  # when that phase began
    opened: Call | None = None
    closed: Call | None = None
    opens: bool = True


class Phases:
    """The phase of one owner, and its open calls, oldest first."""

    __slots__ = (
        "_after",
        "_asked",
        "_closed_ids",
        "_ended",
        "_latest",
        "_lived",
        "_resumed",
        "_seen",
        "abandoned",
        "at",
        "calls",
        "phase",
    )

    def __init__(self, at: float) -> None:
        self.phase = IDLE
        self.at = at
        self.calls: list[Call] = []
        self.abandoned: list[Call] = []  # those that no result is waited for any more, until they are learned from
        self._closed_ids: dict[str, None] = {}
        self._seen: tuple[tuple[str, object], ...] = ()  # phase events seen within this phase, mostly one
        self._after: tuple[float, str] | None = None  # where the latest event leads of those that open calls or the end
        # kept from moving the phase
        self._resumed = at  # the latest result of this tool pause
        self._lived = at  # when a request or event last began or renewed the life
        self._asked = at  # when the latest request came: it carried what calls before it had brought
        self._ended = at  # when the life was last said to end
        self._latest = at  # the latest word on the phase, whether it moved it or not

    def observe(
        self,
        name: str,
        at: float,
        *,
        tool: str | None = None,
        call: str | None = None,
        eta: float | None = None,
        node: object = None,
        request: str | None = None,
    ) -> Step | None:
        """Take one event; None: it is late, a repeat, or addressed to a life that is over, and changes nothing."""
        target = words.PHASE_AFTER.get(name)
        if target is None:
            return Step(False, self.phase, self.at)
        if self._is_late(name, target, at):
            return None
        opened = closed = None
        if name == "tool_call":
            if self._known(call):
                return None
            opened = self._open(Call(tool, call, at, eta, request=request))
        elif name == "tool_result":
            if call is not None and call in self._closed_ids:
                return None
            closed = self._answered(tool, call, at)
            if closed is None and (self.calls or self.phase == HUMAN_PAUSE or at < self._latest):
                return None
        else:
            self._note(name, target, at)
        # INVARIANT: an owner is in tool_pause exactly while a call is open.
        if closed is not None and not self.calls:
            step = self._go_on(RUNNING, self._resumed)
        elif self.phase == ENDED:
            step = self._go_on(target, at)
        else:
            late = opened is not None and at < self._latest and self.phase != TOOL_PAUSE
            later = (self._latest, self.phase) if late else None
            step = self.enter(TOOL_PAUSE if self.calls else target, at)
            self._after = later or self._after
        self._latest = max(self._latest, at)
        opens = self.phase == target and (opened is not None or (name, node) not in self._seen)
        if opens:
            self._saw(name, node)
        return Step(step.moved, step.left, step.since, opened, closed, opens)

    def enter(self, phase: str, at: float) -> Step:
        """Be in `phase` from `at` on; staying in a phase keeps the time it began."""
        left, since = self.phase, self.at
        moved = phase != left
        if moved:
            self.phase, self.at = phase, max(at, since)
            self._latest = max(self._latest, at)
            self._seen = ()
            if phase == TOOL_PAUSE:
                self._after, self._resumed = None, at
        return Step(moved, left, since)

    def answer(self, call: Call, at: float) -> Step:
        """The result of this open call is there: a request carries it."""
        self._close(call, at)
        self._after = None
        step = self.enter(TOOL_PAUSE if self.calls else RUNNING, at)
        if step.moved:
            self._saw("tool_result", None)
        return Step(step.moved, step.left, step.since, None, call, step.moved)

    def request(self, at: float) -> None:
        """A request came: what ended before it was another life."""
        self._lived, self._asked = max(self._lived, at), max(self._asked, at)
        self._latest = max(self._latest, at)

    def _saw(self, name: str, node: object) -> None:
        if (name, node) not in self._seen and len(self._seen) < _MOST_SEEN:
            self._seen = (*self._seen, (name, node))

    def abandon(self) -> None:
        """The life is over: no result is waited for."""
        self.abandoned, self.calls = self.calls, []

    def _is_late(self, name: str, target: str, at: float) -> bool:
        """Whether an event that moves phases is of a life that is over, or older than what moved the phase since."""
        if name in REVIVES:
            self._lived = max(self._lived, at)
            return at < (self._ended if self.phase == ENDED else self._latest)
        if target == ENDED:
            return at < self._lived
        if self.phase == ENDED:
            if not name.startswith("tool_"):
                self._keep_for_later(at, target)
            return True
        if name == "tool_call":
            return at < self._asked
        return name != "tool_result" and at < self._latest

    def _note(self, name: str, target: str, at: float) -> None:
        """What an event that is not of a call means for the calls that are open, and for later words on the life."""
        if target == ENDED:
            if self.phase != ENDED:
                self._after = (self._latest, self.phase) if self._latest > at else None
            self._ended = max(self._ended, at)
        if ENDED in (target, self.phase):
            self.abandon()
        elif self.calls:
            self._keep_for_later(at, target)

    def _keep_for_later(self, at: float, target: str) -> None:
        if self._after is None or at >= self._after[0]:
            self._after = at, target

    def _open(self, call: Call) -> Call:
        self.calls.append(call)
        if len(self.calls) > MOST_CALLS:
            self.abandoned.append(self.calls.pop(0))
        return call

    def _close(self, call: Call, at: float) -> None:
        """`call` has returned; its id is remembered for a while, to know a result that is delivered twice."""
        self.calls.remove(call)
        call.returned_at = at
        self._resumed = max(self._resumed, at)
        if call.id is not None:
            self._remember(call.id)

    def _remember(self, call: str) -> None:
        self._closed_ids[call] = None
        if len(self._closed_ids) > _REMEMBERED_RESULTS:
            del self._closed_ids[next(iter(self._closed_ids))]

    def _go_on(self, phase: str, at: float) -> Step:
        """No call is open any more, or a new life has begun at `at`: be in `phase`, or where a later event leads that
        came meanwhile."""
        after = self._after
        if phase == ENDED:
            return self.enter(phase, at)
        self._after = None
        return self.enter(phase, at) if after is None or after[0] <= at else self.enter(after[1], after[0])

    def _known(self, call: str | None) -> bool:
        return call is not None and (call in self._closed_ids or any(c.id == call for c in self.calls))

    def _answered(self, tool: str | None, call: str | None, at: float) -> Call | None:
        """Close the open call that a result belongs to, and return it."""
        closed = self._meant(tool, call)
        if closed is not None:
            self._close(closed, at)
        elif call is not None:
            self._remember(call)  # its call is still to come
        return closed

    def _meant(self, tool: str | None, call: str | None) -> Call | None:
        """The open call that a result is about: by id, else the oldest of that tool, else the oldest."""
        if call is not None:
            for open_call in self.calls:
                if open_call.id == call:
                    return open_call
        for open_call in self.calls:
            if call is not None and open_call.id is not None:
                continue  # both have ids, and they differ
            if tool is None or open_call.tool is None or open_call.tool == tool:
                return open_call
        return None
