"""Steering: requests, their ends and events come in; the pool's blocks are ranked by what the policy wants.

The one way by which simulate, replay and the embedded engine use a policy: state of runs -> plan -> claims -> ranks.
Without a policy nothing of that runs, and the pool is the engine alone (law 5). Whatever breaks on this side, the
request is served as if there were no policy, and counted (law 10). Times are seconds on the caller's clock.
Requests are in `requests`, `ending` and `passing`, re-reading of plans in `replanning`; here are events and claims by
call.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from kvpolicy.claims.answers import ACCEPTED, IGNORED, REJECTED, UNKNOWN, Answer, answers
from kvpolicy.policy.model import GRACE_S
from kvpolicy.request import Owner
from kvpolicy.steering import calls, show
from kvpolicy.steering.passing import Passing
from kvpolicy.steering.replanning import is_a_crowd
from kvpolicy.steering.requests import RESUMES
from kvpolicy.workflow.events import Event

# Which claims an event ends, by their `for`. `agent` is a name, so no event ends its claims.
ENDS: Mapping[str, frozenset[str]] = {
    "agent_end": frozenset({"request", "branch", "session"}),
    "session_end": frozenset({"request", "branch", "session"}),
    "workflow_end": frozenset({"request", "branch", "session", "run"}),
    "branch_pruned": frozenset({"request", "branch"}),
}


class Steering(Passing):
    """A policy (None: none) over a pool; see `Replanning` for what it is made of."""

    # --- events -------------------------------------------------------------------------------------------

    def event(self, event: Event, now: float) -> list[Answer]:
        """Something happened to owners: those it addresses are planned again, and what it ends ends."""
        self.advance(now)
        if self.policy is None:
            return [Answer(IGNORED, reason="no policy is in force")]
        try:
            owners = self.state.observe(event)
            for owner in owners:
                self._apply(event, owner, now)
            for owner in owners if self._mates_matter else ():
                self._replan_run(owner, now, frozenset(owners))
            self.ledger.heed(now)
        except Exception as fault:
            self.counters["failures"] += 1
            return [Answer(REJECTED, reason=f"{type(fault).__name__}: {fault}")]
        if not owners:
            return [Answer(IGNORED, reason="no owner agrees with the fields it states")]
        return [Answer(ACCEPTED, len(owners), len(owners))]

    def claim(
        self, owner: Owner, hashes: Sequence[Hashable], now: float, wish: calls.Wish | None = None
    ) -> list[Answer]:
        """A claim by call for the prompt with these block hashes, on blocks that may be idle."""
        self.advance(now)
        if not hashes:
            return [Answer(REJECTED, reason="a claim needs blocks")]
        self.pool.listener = self.ledger
        self.state.know(owner)
        if wish is not None and wish.retention.until is not None:
            self._until.add(wish.retention.until)
        line = self.ledger.claim(owner, hashes, calls.claim_of(wish or calls.Wish(), len(hashes), now), now)
        if line is None:
            return [Answer(UNKNOWN, len(hashes), 0, "none of the blocks is resident")]
        return answers(line, now)

    def release(self, owner: Owner, now: float, hashes: Sequence[Hashable] | None = None) -> list[Answer]:
        """The owner's claims end (those whose end is among `hashes`, where given). Again: no effect."""
        self.advance(now)
        count = self.ledger.release(owner, now, hashes)
        return [Answer(ACCEPTED, count, count, None if count else "nothing was claimed")]

    def release_all(self, now: float) -> int:
        """An operator takes back all protection at once; running requests are not hurt."""
        self.advance(now)
        return self.ledger.release_all(now)

    def evict(self, count: int, now: float) -> list[Hashable]:
        """Make `count` blocks leave, first lost first."""
        self.advance(now)
        lost = self.pool.evict(count, now)
        self._heed(now)
        return lost

    def show(self, hashes: Sequence[Hashable], index: int) -> dict[str, Any]:
        """Block `index` of the prompt with these hashes, as a row; see `show.block_rows`."""
        return self.show_all(hashes, (index,))[0]

    def show_all(self, hashes: Sequence[Hashable], indices: Sequence[int]) -> list[dict[str, Any]]:
        """Some blocks of one prompt, in rising order of their places; the prompt is walked once."""
        return show.block_rows(self.pool, self.ledger, hashes, indices, self.now)

    def stats(self) -> dict[str, Any]:
        """`owners claims protected requests_remembered`, the sizes of tables (known: owners in the state of runs), and
        the counters."""
        used = self.pool.used
        return {
            "top_band_share": self.pool.count_from(show.TOP_BAND) / used if used else 0.0,
            **show.counts(self.pool, self.ledger, self.now),
            "requests_remembered": len(self.running),
            "known": len(self.state.owners()),
            "timers": len(self.ledger.timers),
            "placed": self.ledger.placed,
            **self.counters,
        }

    def _apply(self, event: Event, owner: Owner, now: float) -> None:
        holder = self.ledger.holder(owner)
        if event.name == "cancel":
            for request_id in [i for i, r in self.running.items() if r.request.owner == owner]:
                self.cancel(request_id, now)
        if holder is None:
            return
        if event.name != "tool_result" or self.state.phase(owner) != "tool_pause":  # another call may be open
            self._came(owner, event.name, now, GRACE_S if event.name in RESUMES.values() else 0.0)
        if event.name == "compact":
            for chain in holder.chains.values():
                chain.compacted = True
        for line in [] if is_a_crowd(holder) else holder.lines():
            if not line.manual:
                self.ledger.classify(line, now)
                if self._needs.events:
                    self._replan(line, now)
                else:
                    self.ledger.settle(line, now)
        ends = ENDS.get(event.name)
        if ends is not None:
            self.ledger.end(holder, ends, now)


__all__ = ["ENDS", "Steering"]
