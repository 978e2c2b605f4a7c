"""What is known of one owner: its phase, its intervals, its requests, where it stands.

`owners` keeps one `Life` an owner, `transitions` and `state` move it, `signals` reads it.
"""

from __future__ import annotations

from collections.abc import Mapping

from kvpolicy.request import Owner
from kvpolicy.workflow.intervals import Openings
from kvpolicy.workflow.pause import Pause
from kvpolicy.workflow.phases import Call, Phases

_NOTHING: Mapping[str, object] = {}


class Life:
    """One owner: its phase, its openings, its running requests and the last request's attributes.

    idle_since: when its last answer ended; None before the first. lingering_calls: calls that have returned, until the
    resuming request has touched its blocks. unclassified_until: an answer has ended and nobody has said how. pause: the
    one between its last answer and its next request; previous_pause: how long the one before was, seconds.
    tokens: the length of its last request; output_tokens: that of its last answer, where known.
    """

    __slots__ = (
        "attributes",
        "deadline",
        "first_seen",
        "idle_since",
        "lingering_calls",
        "model",
        "node",
        "number",
        "openings",
        "output_tokens",
        "owner",
        "parent",
        "pause",
        "phases",
        "previous_pause",
        "running",
        "tokens",
        "turns",
        "unclassified_until",
    )

    def __init__(self, owner: Owner, number: int, at: float) -> None:
        self.owner = owner
        self.number = number
        self.first_seen = at
        self.phases = Phases(at)
        self.openings = Openings()
        self.running: dict[str, None] = {}
        self.attributes: Mapping[str, object] = _NOTHING
        self.model: str | None = None
        self.node: str | None = None
        self.parent = owner.parent
        self.idle_since: float | None = None
        self.turns = 0
        self.pause: Pause | None = None
        self.previous_pause: float | None = None
        self.tokens: int | None = None
        self.output_tokens: int | None = None
        self.lingering_calls: list[Call] = []
        self.unclassified_until: float | None = None
        self.deadline: float | None = None

    def heard(self) -> float:
        """When it was last known to do something; requests that run are apart."""
        return max(self.phases.at, self.first_seen if self.idle_since is None else self.idle_since)

    def place(self) -> str | None:
        """The workflow node it stands for: the stated one, else its agent's name."""
        return self.node if self.node is not None else self.owner.agent

    def attribute(self, name: str) -> object:
        """A static attribute of the owner or of its last request, None if absent."""
        if name in ("tenant", "session", "run", "agent", "branch"):
            return getattr(self.owner, name)
        if name == "node":
            return self.place()
        if name == "model":
            return self.model
        return self.attributes.get(name)
