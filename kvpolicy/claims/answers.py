"""What a hint got: `{status, requested, granted, reason}`. Never silence (law 11).

Made by the ledger for claims as they stand now, and by steering for requests, events and calls.
"""

from __future__ import annotations

from dataclasses import dataclass

from kvpolicy.claims.line import Line
from kvpolicy.claims.strength import PROTECTED

ACCEPTED, CLIPPED, DEFERRED, IGNORED, REJECTED, UNKNOWN = (
    "accepted",
    "clipped",
    "deferred",
    "ignored",
    "rejected",
    "unknown",
)


@dataclass(frozen=True, slots=True)
class Answer:
    """requested, granted: blocks, counted from the first block of the prompt. span, kind: what it answers."""

    status: str
    requested: int = 0
    granted: int = 0
    reason: str | None = None
    span: int | None = None
    kind: str | None = None

    def as_json(self) -> dict[str, object]:
        """A row of `hints`."""
        row: dict[str, object] = {
            "status": self.status,
            "requested": self.requested,
            "granted": self.granted,
            "reason": self.reason,
        }
        if self.kind is not None:
            row["span"], row["kind"] = self.span, self.kind
        return row


def answers(line: Line, now: float) -> list[Answer]:
    """One answer for each directive of a line, as it stands at `now`."""
    present = line.length
    rows = []
    for claim in line.claims:
        if claim.directive is None:
            continue
        asked, granted, status, reason = claim.length, min(claim.length, present), ACCEPTED, None
        fits = min(line.granted, claim.granted)
        if claim.ended:
            granted, status, reason = 0, IGNORED, "its lifetime is over"
        elif line.cut and granted > claim.kept:
            granted, status = int(min(claim.kept, fits)), CLIPPED
            reason = "the quota of its tier is used up; the rest ranks lowest"
        elif claim.strength(now) >= PROTECTED and granted > fits:
            granted, status = int(fits), CLIPPED
            reason = "the budget of protected blocks is used up; the rest keeps its priority"
        elif granted < asked:
            status, reason = DEFERRED, "the other blocks are not stored"
        elif asked == 0:
            status, reason = IGNORED, "no full block ends in or before it"
        rows.append(Answer(status, asked, granted, reason, claim.span, claim.kind))
    return rows
