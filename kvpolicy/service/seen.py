"""What is known of one exchange, as `decisions` finds it out and `holding` keeps it."""

from __future__ import annotations

from kvpolicy.directive import Plan
from kvpolicy.request import Request
from kvpolicy.service.answers import AnswerReader
from kvpolicy.service.config import Caps
from kvpolicy.service.gains import Expected
from kvpolicy.service.meaning.annotations import Annotations, Context
from kvpolicy.service.meaning.dialects import Conversation
from kvpolicy.service.meaning.sessions import Arrived
from kvpolicy.service.policies import InForce

TOOL_RESULT = "tool_result"
_ALWAYS = ("agent", "node", "workflow", "branch", "depth", "last_step")
_WHERE_READ = ("session", "turn")  # said by nearly everybody: it counts where a rule of the policy looks at it


class Seen:
    """What is known of one exchange. request, plan: as last made; reader: of its answer; caps: of its tenant; stated:
    whether its client said something that rules read; expects: what it should find cached; released: when its answer
    ended, seconds; measured: whether the request's length is the whole prompt's, by the engine's own tokens; carried:
    whether the plan went out in the request's own body; waits, brings, events: see `Request`; first: whether it is its
    owner's first request; ends: lifetimes of claims that have ended since it came; over: whether it has ended; status,
    reason: what its client is told of its hints."""

    __slots__ = (
        "arrived",
        "brings",
        "caps",
        "carried",
        "chosen",
        "context",
        "conversation",
        "ends",
        "events",
        "expects",
        "first",
        "measured",
        "over",
        "plan",
        "reader",
        "reason",
        "released",
        "request",
        "said",
        "stated",
        "status",
        "waits",
    )

    def __init__(
        self,
        conversation: Conversation,
        context: Context,
        arrived: Arrived,
        chosen: InForce,
        said: Annotations,
        caps: Caps | None = None,
    ) -> None:
        self.conversation, self.context, self.arrived = conversation, context, arrived
        self.chosen, self.said, self.caps = chosen, said, caps
        read = chosen.version.policy.selectable
        names = (*_ALWAYS, *(name for name in _WHERE_READ if name in read))
        named = any(getattr(context, name) is not None for name in names)
        marked = any(unit.mark for unit in conversation.units)
        self.stated = named or marked or bool(said.marks or said.events or said.policy)
        self.request: Request | None = None
        self.plan: Plan | None = None
        self.reader: AnswerReader | None = None
        self.expects: Expected | None = None
        self.released: float | None = None
        self.waits: tuple[str | None, ...] = ()
        self.brings = bool(arrived.results) or (bool(conversation.units) and conversation.units[-1].kind == TOOL_RESULT)
        self.events: tuple[str, ...] = ()
        self.first = False
        self.ends: frozenset[str] = frozenset()
        self.over = False
        self.measured = False
        self.carried = False
        self.status: str | None = None
        self.reason: str | None = None
