"""What a trace is made of: calls of a model, one at a time, with what was known when.

Made by the readers (`mooncake`, `bailian`, `sessions`, `own`) and the generator, consumed by `replay` and the
baselines. A call's `answer` and `after` are known only once it is over; nothing may look at them before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Protocol

from kvpolicy.faults import Notice
from kvpolicy.request import Owner, Request

BlockId = int | str
TOOL_USE, END_TURN = "tool_use", "end_turn"


@dataclass(frozen=True, slots=True)
class Answer:
    """How a call ended. `stop`: TOOL_USE, END_TURN, another word of the trace, or None where it does not say.

    tool_calls: names of the tools asked for, None for one that the trace does not name. output_tokens: generated.
    types: kinds of parts (text, thinking, …).
    """

    stop: str | None = None
    tool_calls: tuple[str | None, ...] = ()
    output_tokens: int = 0
    types: tuple[str, ...] = ()


NO_ANSWER = Answer()


@lru_cache(maxsize=4096)
def owner_of(
    session: str | None, agent: str | None = None, branch: str | None = None, parent: str | None = None
) -> Owner:
    """Whose a call is: for one that called lately the very object, which tables find without comparing its fields."""
    return Owner(session=session, agent=agent, branch=branch, parent=parent)


@dataclass(slots=True)
class Call:
    """One row of a trace.

    request and hashes (one id per block, the partial last one where the trace has it) are known at `at` seconds
    (from the trace's start); `answer` when it is over. `before` and `after`: events `{"event": name, owner fields…}`
    that happened since the previous call, and right after this one. seen: leading blocks that any earlier call of
    the trace had (an infinite cache would hit them).

    For the closed loop, where calls take time: took: how long the call took where it was recorded, None for unknown.
    pause: seconds from the end of what it waits for to this call, where stated. waits_for: ids of the calls that have
    to end first, where stated (a join of branches).
    """

    request: Request
    hashes: Sequence[BlockId]
    at: float
    answer: Answer = NO_ANSWER
    before: tuple[Mapping[str, object], ...] = ()
    after: tuple[Mapping[str, object], ...] = ()
    seen: int = 0
    took: float | None = None
    pause: float | None = None
    waits_for: tuple[str, ...] | None = None


@dataclass(slots=True)
class Facts:
    """What a whole trace holds; complete when its last call has been read. `label` says where it comes from.
    workflow: the graph of its runs as JSON, known before the first call, where the trace brings one."""

    block_size: int = 0
    requests: int = 0
    block_refs: int = 0
    unique_blocks: int = 0
    sessions: int = 0
    seen_blocks: int = 0  # what an infinite cache would hit
    prompt_tokens: int = 0
    last_at: float = 0.0
    sha256: str | None = None
    form: str = ""
    label: str = ""
    notices: list[Notice] = field(default_factory=list)
    workflow: Mapping[str, object] | None = None

    def count(self, call: Call) -> None:
        """One more call, its `seen` known."""
        self.requests += 1
        self.block_refs += len(call.hashes)
        self.seen_blocks += call.seen
        self.prompt_tokens += call.request.tokens
        self.last_at = call.at

    def as_json(self) -> dict[str, object]:
        """The `trace` object of `kvp simulate --format json`."""
        return {
            "requests": self.requests,
            "block_refs": self.block_refs,
            "unique_blocks": self.unique_blocks,
            "block_size": self.block_size,
            "sessions": self.sessions,
            "sha256": self.sha256,
            "form": self.form,
            "source": self.label,
            "prompt_tokens": self.prompt_tokens,
            "duration_s": round(self.last_at, 3),
            "infinite_hit_ratio": round(self.seen_blocks / self.block_refs, 4) if self.block_refs else 0.0,
        }


Progress = Callable[[float], None]  # told the fraction read, 0 to 1


class Trace(Protocol):
    """A source of calls that can be read again from the start, always with the same result."""

    @property
    def name(self) -> str:
        """As the caller named it."""
        ...

    def calls(self, facts: Facts, progress: Progress | None = None) -> Iterator[Call]:
        """Calls in order of time; fills `facts` as it goes. Raises InputFault with file and line."""
        ...
