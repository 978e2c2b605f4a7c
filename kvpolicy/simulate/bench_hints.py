"""Wrong hints: a trace told wrongly, and pauses learned at the wrong length, to see what a policy does with them.

The truth still happens: calls come when they come, and idle times are what they are. Wrong is what the policy is told
of an answer (its stop reason, its length, whether an agent is over), and how long a pause is remembered to have been.
Read by `bench_cells`.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

from kvpolicy.simulate.trace import END_TURN, NO_ANSWER, TOOL_USE, Answer, Call
from kvpolicy.workflow.classes import Classes
from kvpolicy.workflow.hazard import EDGES
from kvpolicy.workflow.life import Life
from kvpolicy.workflow.pause import Pause
from kvpolicy.workflow.pauses import Pauses
from kvpolicy.workflow.pauses import _tell as told_until

HINTS: dict[str, str] = {
    "true": "as the trace has them",
    "x2": "pauses are remembered at twice their length",
    "half": "pauses are remembered at half their length",
    "x10": "pauses are remembered at ten times their length",
    "tenth": "pauses are remembered at a tenth of their length",
    "shuffled": "each pause is remembered at the length of another one, of any session, and open ones teach nothing",
    "missing": "no stop reason, no length of an answer, no end of an agent is told",
    "adversarial": "tool calls are told as finished turns and the reverse, long answers as short ones and the reverse, "
    "and a pause of t seconds is remembered as 100 / t",
}
_KEPT = 512  # latest pauses that a shuffled one is drawn from
_FACTORS = {"x2": 2.0, "half": 0.5, "x10": 10.0, "tenth": 0.1}


def told(call: Call, hints: str) -> Call:
    """The call as the policy is told of it."""
    if hints == "missing":
        return replace(call, answer=NO_ANSWER, after=())
    if hints != "adversarial":
        return call
    answer = call.answer
    stop = {TOOL_USE: END_TURN, END_TURN: TOOL_USE}.get(answer.stop or "", answer.stop)
    length = 40_000 // max(1, answer.output_tokens) if answer.output_tokens else 0
    return replace(call, answer=Answer(stop, (None,) if stop == TOOL_USE else (), length, answer.types))


def memory(hints: str, fresh: Callable[[], Classes] = Classes, seed: int = 0) -> Pauses | None:
    """Where pauses are remembered under these hints; None: as they are."""
    if hints in _FACTORS:
        return _Scaled(_FACTORS[hints], fresh)
    if hints == "adversarial":
        return _Mistold(lambda age: 100.0 / max(age, 1e-3), fresh)
    if hints == "shuffled":
        draw, seen = random.Random(seed), list[float]()

        def another(age: float) -> float:
            seen.append(age)
            del seen[: len(seen) - _KEPT]
            return draw.choice(seen)

        return _Mistold(another, fresh)
    return None


class _Scaled(Pauses):
    """All that is remembered of pauses is off by a factor: how long they were, and how long those that are open have
    lasted, as by a clock in another unit. What is asked for is the true idle time."""

    def __init__(self, factor: float, fresh: Callable[[], Classes]) -> None:
        super().__init__(fresh)
        self._factor = factor
        self._open_since: list[tuple[float, Pause]] = []

    def begin(self, life: Life, at: float) -> None:
        """Open pauses are kept beside the schedule, which goes by true time."""
        before = life.pause
        super().begin(life, at)
        if life.pause is not None and before is None:
            self._open_since.append((1.0, life.pause))

    def _remember(self, pause: Pause, age: float) -> float:
        """So many times as long."""
        return super()._remember(pause, self._factor * age)

    def advance(self, now: float, most: int | None = None) -> None:
        """At true ages of 1, 2, 4, … seconds, so many times the factor."""
        kept: list[tuple[float, Pause]] = []
        for age, pause in self._open_since:
            if not pause.open:
                continue
            reached = age
            while pause.at + 2.0 * reached <= now:
                reached *= 2.0
            if pause.at + age <= now and self._factor * reached <= EDGES[-1]:
                told_until(pause.hazard, pause.known, self._factor * reached)
                pause.known = self._factor * reached
                reached *= 2.0
            kept.append((reached, pause))
        self._open_since = kept


class _Mistold(Pauses):
    """Pauses whose length is told wrongly once they are over. Open ones teach nothing here: how long one has lasted
    would tell the truth."""

    def __init__(self, wrong: Callable[[float], float], fresh: Callable[[], Classes]) -> None:
        super().__init__(fresh)
        self._wrong = wrong

    def _remember(self, pause: Pause, age: float) -> float:
        """At another length."""
        return super()._remember(pause, self._wrong(age))

    def advance(self, now: float, most: int | None = None) -> None:
        """Nothing is told of open pauses."""
