"""Who asks, and which tokens mean what: the input of a plan.

Made by whoever sees requests (a trace reader, the service, a framework hook), read by `plan` and `claims`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

_NOTHING: Mapping[str, object] = MappingProxyType({})


def _nothing() -> Mapping[str, object]:
    return _NOTHING


OwnerKey = tuple[str, str | None, str | None, str | None, str | None]


class _Kept:
    """What tables ask an owner for at every look-up: worked out once, at the first."""

    __slots__ = ("_hash", "_key")
    _hash: int
    _key: OwnerKey


@dataclass(frozen=True, slots=True, eq=False)
class Owner(_Kept):
    """Whose a request is. `None` means the owner has none of it. The tenant comes from authentication alone."""

    tenant: str = "default"
    session: str | None = None
    run: str | None = None
    agent: str | None = None
    branch: str | None = None
    parent: str | None = None  # the branch or session this one was forked from

    @property
    def key(self) -> OwnerKey:
        """What tells claims of two owners apart. Where it was forked from does not."""
        try:
            return self._key
        except AttributeError:
            key = (self.tenant, self.session, self.run, self.agent, self.branch)
            object.__setattr__(self, "_key", key)
            return key

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Owner):
            return NotImplemented
        try:
            return self._key == other._key and self.parent == other.parent
        except AttributeError:  # one of them was never asked for it
            return self.key == other.key and self.parent == other.parent

    def __hash__(self) -> int:
        try:
            return self._hash
        except AttributeError:
            number = hash((self.key, self.parent))
            object.__setattr__(self, "_hash", number)
            return number


@dataclass(frozen=True, slots=True)
class Span:
    """Half-open token range [start, end) of one kind; `end` is None for the output still being generated.

    `attributes` are the span's own: tool, name, branch, node, agent.
    """

    kind: str
    start: int
    end: int | None
    attributes: Mapping[str, object] = field(default_factory=_nothing)


@dataclass(frozen=True, slots=True)
class Request:
    """One call of a model.

    tokens: prompt length in tokens. block_size: tokens per block. spans: in prompt order, not overlapping; what
    none covers is a `turn`. attributes: the static attributes of the whole request (plan, workflow, node, turn,
    depth, model, last_step). extra: {"lora": …, "salt": …, "images": […]}, see the interfaces. waits: whose answers
    made the tool calls of its owner that are open as it comes, by the ids of requests; None among them: not known.
    brings: whether it brings the result of one, where its spans do not show that yet. events: what has happened to its
    owner by its coming, and is told with it alone. head: a name for what its prompt begins with (system and tools), the
    same for its owner's next prompts, where that is known sooner than its spans.
    """

    id: str
    owner: Owner
    tokens: int
    block_size: int
    spans: tuple[Span, ...] = ()
    model: str | None = None
    attributes: Mapping[str, object] = field(default_factory=_nothing)
    extra: Mapping[str, object] = field(default_factory=_nothing)
    key: str | None = None  # idempotency key
    last_step: bool = field(default=False)
    waits: tuple[str | None, ...] = ()
    brings: bool = False
    events: tuple[str, ...] = ()
    head: str | None = None
