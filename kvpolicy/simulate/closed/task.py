"""A request inside the engine: how far it is, and what it holds. Made by `loop`, moved by `engine`."""

from __future__ import annotations

from kvpolicy.pool import Lease
from kvpolicy.simulate.closed.demand import Demand


class Task:
    """One call on its way through the engine. Times in seconds, lengths in tokens.

    tokens: prompt and what is written of the answer; computed: how many of them have their KV; total: at the end.
    full: full blocks stored; given: names of blocks told to steering. held: blocks it holds. hits: prompt tokens found
    at its first admission. arrived, first_at, ended_at: NaN until then. program_at: when its session began. anew:
    blocks below the GPU are being computed anew. was: computed when it was preempted last. recomputed: tokens computed
    again after preemptions.
    """

    __slots__ = (
        "anew",
        "arrived",
        "computed",
        "demand",
        "ended_at",
        "first_at",
        "full",
        "given",
        "held",
        "hits",
        "id",
        "lease",
        "preempted",
        "program_at",
        "prompt",
        "recomputed",
        "started",
        "tokens",
        "total",
        "was",
    )

    def __init__(self, demand: Demand, now: float, program_at: float) -> None:
        request = demand.call.request
        self.demand = demand
        self.id = request.id
        self.prompt = self.tokens = request.tokens
        self.total = request.tokens + demand.output
        self.arrived, self.program_at = now, program_at
        self.first_at = self.ended_at = float("nan")
        self.computed = self.full = self.given = self.held = self.hits = 0
        self.preempted = self.recomputed = self.was = 0
        self.started = self.anew = False
        self.lease: Lease | None = None
