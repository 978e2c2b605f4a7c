"""One timeline on one embedded engine: a step comes in as a dictionary, its answer goes out as one.

The clock is in the steps and never goes back. What a step says wrongly about itself is an InputFault; a hint that
cannot be followed is answered (`rejected`, `unknown`), and the timeline goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kvpolicy.claims.ledger import BUDGET
from kvpolicy.faults import InputFault
from kvpolicy.language.syntax import FileSet
from kvpolicy.policy.compile import compile as compile_files
from kvpolicy.policy.policy import Policy
from kvpolicy.pool import Pool
from kvpolicy.replay import calls, fields, requests, workers
from kvpolicy.replay.names import Names
from kvpolicy.replay.stage import Row, Stage
from kvpolicy.steering.begin import begin

MOST_BLOCKS = 1 << 22  # of all tiers together

Handler = Callable[[Stage, Mapping[str, Any], float], Row]

STEPS: dict[str, Handler] = {
    "request": requests.request,
    "progress": requests.progress,
    "finish": requests.finish,
    "cancel": requests.cancel,
    "preempt": requests.preempt,
    "resume": requests.resume,
    "event": calls.event,
    "claim": calls.claim,
    "release": calls.release,
    "evict": calls.evict,
    "show": calls.show,
    "release_all": calls.release_all,
    "split": calls.split,
    "stats": calls.stats,
    "advance": calls.advance,
    "worker": workers.worker,
    "kv_event": workers.kv_event,
    "lookup": workers.lookup,
}


class Replay:
    """policy None: one without rules, under which claims by call and implicit claims still count. blocks, cpu_blocks,
    disk_blocks: sizes of the tiers; block_size: tokens a block. Raises InputFault for sizes that cannot be."""

    def __init__(
        self,
        policy: Policy | None = None,
        *,
        blocks: int = 4096,
        block_size: int = 16,
        cpu_blocks: int = 0,
        disk_blocks: int = 0,
        budget: float = BUDGET,
    ) -> None:
        if block_size < 1:
            raise InputFault(f"a block has at least one token, not {block_size}")
        if blocks + cpu_blocks + disk_blocks > MOST_BLOCKS:
            raise InputFault(
                f"{blocks + cpu_blocks + disk_blocks} blocks are more than a replay has room for ({MOST_BLOCKS})"
            )
        pool = Pool(blocks, block_size=block_size, cpu_blocks=cpu_blocks, disk_blocks=disk_blocks, events=True)
        in_force = compile_files(FileSet(())) if policy is None else policy
        self.stage = Stage(begin(in_force, pool, budget=budget), pool, Names(pool))
        self.now = 0.0
        self.steps = 0

    def step(self, step: object) -> Row:
        """Carry out one step. Returns its answer: `step`, `at`, and what the step's kind answers. Raises InputFault for
        a step that cannot be read; it has had no effect then."""
        if not isinstance(step, Mapping):
            raise InputFault("a step is a JSON object")
        what = step.get("do")
        if not isinstance(what, str) or what not in STEPS:
            raise InputFault(_unknown(what))
        now = fields.seconds(step)
        if now < self.now:
            raise InputFault(f"at: {now:g} is before {self.now:g}, the time of an earlier step; time does not go back")
        answer = STEPS[what](self.stage, step, now)
        raised = self.stage.names.take_raised(step["id"] if what in ("request", "progress", "resume") else None)
        if raised:
            answer["prefetched"] = self.stage.names.shown(raised)
        self.now = now
        self.steps += 1
        return {"step": self.steps, "at": now, "do": what, **answer}


def _unknown(what: object) -> str:
    from difflib import get_close_matches

    if what is None:
        return f"'do' is missing; the steps are {', '.join(STEPS)}"
    near = get_close_matches(str(what), STEPS, n=1)
    return f"'{what}' is no step; " + (f"did you mean '{near[0]}'?" if near else f"the steps are {', '.join(STEPS)}")
