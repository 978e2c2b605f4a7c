"""What is known of one exchange, as `decisions` finds it out and `holding` keeps it."""

from __future__ import annotations

from kvpolicy.directive import Plan
from kvpolicy.request import Request
from kvpolicy.service.answers import AnswerReader
from kvpolicy.service.meaning.annotations import Annotations, Context
from kvpolicy.service.meaning.dialects import Conversation
from kvpolicy.service.meaning.sessions import Arrived
from kvpolicy.service.policies import InForce


class Seen:
    """What is known of one exchange. request, plan: as last made; reader: of its answer."""

    __slots__ = ("arrived", "chosen", "context", "conversation", "plan", "reader", "request", "said")

    def __init__(
        self,
        conversation: Conversation,
        context: Context,
        arrived: Arrived,
        chosen: InForce,
        said: Annotations,
    ) -> None:
        self.conversation, self.context, self.arrived = conversation, context, arrived
        self.chosen, self.said = chosen, said
        self.request: Request | None = None
        self.plan: Plan | None = None
        self.reader: AnswerReader | None = None
