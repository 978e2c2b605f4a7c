"""How a span's next use stands in its run: over which node, in what time, how likely.

Puts together the graph (`ahead`, `chance`), the learned times, and the pauses that owners of the run are in. Read by
`signals`. None where there is no data.
"""

from __future__ import annotations

from collections.abc import Iterator

from kvpolicy.policy.model import NEVER, Subject
from kvpolicy.request import Owner
from kvpolicy.workflow.ahead import seconds_to_start
from kvpolicy.workflow.durations import Series
from kvpolicy.workflow.graph import BARRIER, TOOL
from kvpolicy.workflow.learned_times import HUMAN, STEP
from kvpolicy.workflow.learned_times import TOOL as TOOL_TIMES
from kvpolicy.workflow.life import Life
from kvpolicy.workflow.moment import Moment
from kvpolicy.workflow.phases import ENDED, HUMAN_PAUSE, RUNNING, TOOL_PAUSE
from kvpolicy.workflow.standing import Standing


def place(life: Life | None, subject: Subject) -> str | None:
    """The workflow node a span belongs to: its own, its request's, else its agent."""
    for name in ("node", "agent"):
        value = subject.attributes.get(name)
        if isinstance(value, str):
            return value
    return life.place() if life is not None else subject.owner.agent


def pauses(moment: Moment, life: Life) -> Iterator[tuple[Series, float]]:
    """The series of the pause the owner is in, and how long it has waited; one for each open call."""
    times = moment.learned.times(life.owner.tenant)
    if life.phases.phase == TOOL_PAUSE:
        for call in life.phases.calls:
            yield times.best_known(TOOL_TIMES, call.tool), max(0.0, moment.now - call.at)
    elif life.phases.phase == HUMAN_PAUSE:
        yield times.best_known(HUMAN, None), max(0.0, moment.now - life.phases.at)


def pause_left(moment: Moment, life: Life) -> float | None:
    """Median time left of the owner's pause; of several calls the longest."""
    phase = life.phases.phase
    if phase == RUNNING:
        return 0.0
    if phase == ENDED:
        return NEVER
    longest: float | None = None
    calls = iter(life.phases.calls)
    for series, waited in pauses(moment, life):
        call = next(calls, None)
        if call is not None and call.eta is not None:
            left: float | None = max(0.0, call.eta - waited)
        else:
            left = series.remaining(waited, moment.now)
        if left is None:
            return None
        longest = left if longest is None else max(longest, left)
    return longest


def until_node(moment: Moment, owner: Owner, node: str | None) -> tuple[float, str | None] | None:
    """Seconds until `node` may start in the owner's run, and the running node that this waits for."""
    standing = moment.runs.standing(owner)
    position = None if standing is None else standing.position
    index = None if position is None or node is None else position.graph.find(node)
    if standing is None or position is None or index is None:
        return None
    graph, times = position.graph, moment.learned.times(owner.tenant)

    def whole(of: int) -> float | None:
        role = graph.nodes[graph.names[of]]
        if role == BARRIER:
            return 0.0
        return times.typical(TOOL_TIMES if role == TOOL else STEP, graph.names[of])

    def left(of: int) -> float | None:
        return _left(moment, standing, owner, graph.names[of], whole(of))

    found = seconds_to_start(position, index, left, whole)
    return None if found is None else (found[0], None if found[1] is None else graph.names[found[1]])


def chance_of_node(moment: Moment, owner: Owner, node: str | None, within: float) -> float | None:
    """P(`node` starts once more in the owner's run, within so many seconds)."""
    chance = moment.runs.chance(owner, node)
    if chance is None or within == float("inf"):
        return chance
    ahead = until_node(moment, owner, node)
    if ahead is None:
        return None
    seconds, running = ahead
    if running is None:
        return chance if seconds <= within else 0.0
    # The step that runs may end at any time; what follows it takes as long as such steps do.
    standing = moment.runs.standing(owner)
    started = [] if standing is None else standing.started.get(running, [])
    waited = max(0.0, moment.now - min(started, default=moment.now))
    times = moment.learned.times(owner.tenant)
    left = times.remaining(STEP, running, waited, moment.now) or 0.0
    in_time = times.return_probability(STEP, running, waited, within - max(0.0, seconds - left), moment.now)
    return None if in_time is None else chance * in_time


def _left(moment: Moment, standing: Standing, owner: Owner, node: str, whole: float | None) -> float | None:
    """What is left of a node's running step: at least what is left of the pause that somebody who stands there is in;
    of several instances the longest."""
    times = moment.learned.times(owner.tenant)
    lefts = [
        times.remaining(STEP, node, max(0.0, moment.now - at), moment.now) for at in standing.started.get(node, ())
    ]
    known = [left for left in lefts if left is not None]
    known += [0.0] if whole == 0.0 else [whole] if whole is not None and not lefts else []
    for life in moment.at_node(owner, node):
        left = pause_left(moment, life) if life.phases.phase in (TOOL_PAUSE, HUMAN_PAUSE) else None
        if left is not None:
            known.append(left)
    return max(known, default=None)
