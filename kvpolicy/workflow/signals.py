"""What rules can ask of a moment: the functions of the language, read from run state, learned times and gauges.

`state.RunState.read` calls `read` here. Every function looks only at what is kept, never at a clock: the same state
gives the same answers. None where there is no data.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from kvpolicy.policy.model import NEVER, EventPattern, Subject
from kvpolicy.workflow.course import chance_of_node, pause_left, pauses, place, until_node
from kvpolicy.workflow.events import conditions_hold
from kvpolicy.workflow.hold import best_hold
from kvpolicy.workflow.learned_times import HUMAN, TOOL
from kvpolicy.workflow.life import Life
from kvpolicy.workflow.moment import Moment
from kvpolicy.workflow.phases import ENDED, HUMAN_PAUSE, RUNNING, Call

_COUNTED = 1 << 53  # larger whole numbers, which a caller may state, are no floats any more


def read(state: Moment, life: Life | None, function: str, argument: object, subject: Subject) -> float | None:
    """The value of `function`; None where there is no data, or no such function."""
    if function in ("mean", "p50", "p90", "p95", "count"):
        return _statistic(state, life, function, argument, subject)
    reader = _READERS.get(function)
    return reader(state, life, argument, subject) if reader is not None else None


def _statistic(state: Moment, life: Life | None, statistic: str, argument: object, subject: Subject) -> float | None:
    """Several tools at once: the longest, that is the largest value; for `count`, that of the largest mean."""
    times = state.learned.times(subject.owner.tenant)
    kept = [s for s in times.of(str(argument), (c.tool for c in _calls(life))) if s.count]
    if not kept:
        return 0.0 if statistic == "count" else None
    if statistic == "count":
        return max(kept, key=lambda series: series.mean() or 0.0).read(statistic)
    return max(series.read(statistic) or 0.0 for series in kept)


def _calls(life: Life | None) -> list[Call]:
    """The calls that run; right after the last result, those that ran, until their blocks are touched."""
    if life is None:
        return []
    return life.phases.calls or life.lingering_calls


def _idle(state: Moment, life: Life | None, argument: object, subject: Subject) -> float:
    if life is None or life.running or life.idle_since is None:
        return 0.0
    return max(0.0, state.now - life.idle_since)


def _age(state: Moment, life: Life | None, argument: object, subject: Subject) -> float:
    return 0.0 if life is None else max(0.0, state.now - life.first_seen)


def _turns_ago(state: Moment, life: Life | None, argument: object, subject: Subject) -> float:
    turn = subject.attributes.get("turn")
    newest = None if life is None else life.attribute("turn")
    if not isinstance(turn, int) or not isinstance(newest, int):
        return 0.0
    return float(min(max(0, newest - turn), _COUNTED))


def _hits(state: Moment, life: Life | None, argument: object, subject: Subject) -> float | None:
    """How often the agent's spans of a kind were found cached by somebody who had not used them before."""
    return state.learned.cached(subject.owner, str(argument))


def _fan_out(state: Moment, life: Life | None, argument: object, subject: Subject) -> float:
    live = 0 if life is None else state.live_branches(life)
    return float(live or min(state.runs.fan_out(subject.owner, place(life, subject)) or 1, _COUNTED))


def _steps(state: Moment, life: Life | None, argument: object, subject: Subject) -> float | None:
    return state.runs.steps(subject.owner, place(life, subject))


def _next_use(state: Moment, life: Life | None, argument: object, subject: Subject) -> float | None:
    steps = _steps(state, life, argument, subject)
    if steps == NEVER:
        return NEVER
    if steps is None or steps < 1:
        return None if life is None else pause_left(state, life)
    ahead = until_node(state, subject.owner, place(life, subject))
    return None if ahead is None else ahead[0]


def _return_probability(state: Moment, life: Life | None, argument: object, subject: Subject) -> float | None:
    if life is None:
        return None
    if life.phases.phase == RUNNING:
        return 1.0
    if life.phases.phase == ENDED:
        return 0.0
    within = float(argument) if isinstance(argument, int | float) else math.inf
    chances = [series.return_probability(waited, within, state.now) for series, waited in pauses(state, life)]
    known = [chance for chance in chances if chance is not None]
    return min(known) if known and len(known) == len(chances) else None


def _reuse_probability(state: Moment, life: Life | None, argument: object, subject: Subject) -> float | None:
    """Over the graph where the span's step does not run; a branch counts by its score beside the best one's."""
    steps = _steps(state, life, argument, subject)
    if subject.attributes.get("status") == "pruned" or steps == NEVER:
        return 0.0
    if life is not None and life.phases.phase == ENDED:
        return 0.0
    chance: float | None
    if steps is None or steps < 1:
        chance = _return_probability(state, life, argument, subject)
    else:
        within = float(argument) if isinstance(argument, int | float) else math.inf
        chance = chance_of_node(state, subject.owner, place(life, subject), within)
    branch = subject.attributes.get("branch")
    if chance is not None and isinstance(branch, str):
        chance *= state.standing_of_score(subject.owner, branch)
    return chance


def _hit_density(state: Moment, life: Life | None, argument: object, subject: Subject) -> float | None:
    if life is None:
        return None
    if life.phases.phase == ENDED:
        return 0.0
    return state.learned.pauses.density(life, state.now)


def _best_hold(state: Moment, life: Life | None, argument: object, subject: Subject) -> float | None:
    calls = _calls(life)
    if not calls or subject.attributes.get("last_step") is True:
        return 0.0  # no tool runs, or nothing follows
    times = state.learned.times(subject.owner.tenant)
    gain = (state.gauges.queue_delay() or 0.0) * state.learned.memoryfulness(subject.owner.tenant).eta()
    gain += state.gauges.miss_cost(subject, None if life is None else life.tokens) or 0.0
    return max(best_hold(next(times.of(TOOL, iter((c.tool,))), None), times.tools, gain) for c in calls)


def _eta(state: Moment, life: Life | None, argument: object, subject: Subject) -> float | None:
    if life is None or not isinstance(argument, EventPattern):
        return None
    if argument.name == "tool_result":
        calls = [c for c in life.phases.calls if conditions_hold(argument, {"tool": c.tool, "call": c.id}.get)]
        lefts = []
        for call in calls:
            waited = max(0.0, state.now - call.at)
            if call.eta is not None:
                lefts.append(max(0.0, call.eta - waited))
                continue
            series = next(state.learned.times(life.owner.tenant).of(TOOL, iter((call.tool,))), None)
            left = series.remaining(waited, state.now) if series is not None else None
            if left is not None:
                lefts.append(left)
        return min(lefts, default=None)
    if argument.name == "turn_start" and life.phases.phase == HUMAN_PAUSE:
        human = next(state.learned.times(life.owner.tenant).of(HUMAN, iter(())))
        return human.remaining(max(0.0, state.now - life.phases.at), state.now)
    if argument.name == "step_end":
        started = state.runs.latest_start(life.owner)
        step = state.learned.times(life.owner.tenant).step
        return None if started is None else step.remaining(max(0.0, state.now - started), state.now)
    return None


def _pressure(state: Moment, life: Life | None, argument: object, subject: Subject) -> float:
    return state.gauges.pressure(str(argument)) if state.gauges.pressure is not None else 0.0


_Reader = Callable[[Moment, "Life | None", object, Subject], "float | None"]
_READERS: dict[str, _Reader] = {
    "idle": _idle,
    "age": _age,
    "turns_ago": _turns_ago,
    "hits": _hits,
    "fan_out": _fan_out,
    "steps_to_next_use": _steps,
    "next_use": _next_use,
    "return_probability": _return_probability,
    "reuse_probability": _reuse_probability,
    "hit_density": _hit_density,
    "best_hold": _best_hold,
    "eta": _eta,
    "pressure": _pressure,
    "queue_delay": lambda state, life, argument, subject: state.gauges.queue_delay(),
    "miss_cost": lambda state, life, argument, subject: state.gauges.miss_cost(subject),
    "bytes": lambda state, life, argument, subject: state.gauges.bytes(subject),
}
