"""Counts and times of one closed run. Filled by `loop`, read by the report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from kvpolicy.simulate.closed.task import Task
from kvpolicy.simulate.tally import Tally


@dataclass(slots=True)
class ClosedTally(Tally):
    """Times in seconds. refused: requests that can never fit. preempted_tokens: computed again after preemptions.

    ttft, waits (arrival to first admission): one a request; session_s: first arrival to last end, one a session in
    which nothing was refused. residence_s: sum over requests of the time in the engine; occupancy_s: the number of
    requests in it over time, integrated as it goes: two ways to one number (Little's law). busy_s: time of steps.
    """

    requests: int = 0
    refused: int = 0
    preemptions: int = 0
    preempted_tokens: int = 0
    late_prefetches: int = 0
    steps: int = 0
    output_tokens: int = 0
    computed_tokens: int = 0
    busy_s: float = 0.0
    first_s: float = 0.0
    last_s: float = 0.0
    occupancy_s: float = 0.0
    residence_s: float = 0.0
    ttft: list[float] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)
    session_s: list[float] = field(default_factory=list)

    @property
    def makespan_s(self) -> float:
        """First arrival to last end."""
        return max(self.last_s - self.first_s, 0.0)

    def ended(self, task: Task) -> None:
        """A request is done."""
        self.requests += 1
        self.output_tokens += task.total - task.prompt
        self.preempted_tokens += task.recomputed
        self.residence_s += task.ended_at - task.arrived
        self.ttft.append(task.first_at - task.arrived)
        self.last_s = max(self.last_s, task.ended_at)

    def as_json(self, price_ratio: float, gap_closed: float | None) -> dict[str, object]:
        """One row of `runs`, the latency keys included."""
        row = Tally.as_json(self, price_ratio, gap_closed)
        span = self.makespan_s
        uncached = self.prompt_tokens - self.cached_tokens
        row |= {
            "requests": self.requests,
            "refused": self.refused,
            "preemptions": self.preemptions,
            "preempted_tokens": self.preempted_tokens,
            "late_prefetches": self.late_prefetches,
            "steps": self.steps,
            "output_tokens": self.output_tokens,
            "makespan_s": round(span, 3),
            "busy_share": round(self.busy_s / span, 4) if span else 0.0,
            "cached_tokens_per_s": round(self.cached_tokens / span, 3) if span else 0.0,
            "uncached_tokens_per_s": round(uncached / span, 3) if span else 0.0,
            "output_tokens_per_s": round(self.output_tokens / span, 3) if span else 0.0,
            "ttft_s": spread(self.ttft, (50, 90, 99)),
            "wait_s": spread(self.waits, (50, 90, 99)),
            "session_s": spread(self.session_s, (50, 90)),
            "sessions": len(self.session_s),
        }
        return row


def spread(values: Sequence[float], percents: Sequence[int]) -> dict[str, float | None]:
    """`mean` and `pNN` (linear between two neighbours), rounded to microseconds; None of nothing."""
    rows = sorted(values)
    found: dict[str, float | None] = {"mean": round(sum(rows) / len(rows), 6) if rows else None}
    for percent in percents:
        found[f"p{percent}"] = round(_at(rows, percent / 100), 6) if rows else None
    return found


def _at(rows: Sequence[float], share: float) -> float:
    place = share * (len(rows) - 1)
    low = int(place)
    high = min(low + 1, len(rows) - 1)
    return rows[low] + (rows[high] - rows[low]) * (place - low)
