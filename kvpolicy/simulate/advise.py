"""Which policy would help a trace, by how much, in how much memory; or that none would. Reads a trace, writes advice.

Every candidate is replayed beside `lru` and the bound. The best one is chosen on half of the sessions, and what it
saves is told of the other half, so that a lucky one among many does not look good (a winner's curse); the interval is a
bootstrap over those sessions, in pairs with lru. Where nothing names sessions, minutes of the trace stand for them.
Baselines may be candidates too; what knows the future may not, since no server can have it.
"""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from kvpolicy.faults import InputFault
from kvpolicy.simulate.bench_arithmetic import RESAMPLES, Interval
from kvpolicy.simulate.names import BELADY_RESIDENT, LRU, contender
from kvpolicy.simulate.runs import Run, Runs
from kvpolicy.simulate.tally import Tally
from kvpolicy.simulate.trace import Facts, Trace

CANDIDATES = ("adaptive", "coding_agent", "continuum_released", "chat_rag", "base")
WITH_A_GRAPH = ("kvflow", "tree_of_thought", "agents")
WORTH = 0.02  # of the tokens computed again: what is saved below that is not worth a change
LARGER = (1.25, 1.5, 2.0, 3.0)  # times the memory, to say how much of it lru would need instead
FEW = 16  # sessions, below which all of them both choose and tell


@dataclass(frozen=True, slots=True)
class Seen:
    """One replay: totals, and by session the tokens computed again (0 of a bound, which counts at the end). failures:
    steps at which planning broke and the call was served as without a policy."""

    hits: int
    refs: int
    recomputed: int
    by_session: dict[str, int]
    failures: int


@dataclass(frozen=True, slots=True)
class Advice:
    """At one size (blocks). policy: None where none helps. saved: share of lru's recomputed tokens on the sessions that
    did not choose, with its interval. like_lru: blocks in which lru would find as much, None beyond what was tried.
    lru_recomputed: tokens that lru computes again, over all sessions, of which room and tried are shares. room: what
    the bound would save, None where it was not replayed. tried: what each candidate saves; empty where lru computes
    nothing again. why: in a sentence. failures: of each candidate that broke, how often; its figures are not the
    policy's then, so it is not chosen."""

    capacity: int
    policy: str | None
    saved: float
    interval: Interval | None
    saved_tokens: int
    lru_hit_ratio: float
    hit_ratio: float
    like_lru: int | None
    lru_recomputed: int
    room: float | None
    tried: dict[str, float]
    why: str
    failures: dict[str, int]


def advise(
    trace: Trace,
    facts: Facts,
    capacities: Sequence[int],
    policies: Sequence[str],
    jobs: int,
    told: Callable[[float], None],
) -> list[Advice]:
    """Of each capacity in blocks. facts: of the whole trace. Raises InputFault, PolicyFault."""
    names = [*dict.fromkeys(policies)] or [*CANDIDATES, *(WITH_A_GRAPH if facts.workflow is not None else ())]
    for name in names:
        candidate = contender(name)
        if candidate.kind in ("oracle", "foresight"):
            raise InputFault(
                f"--policy {name}: it knows what comes, so no server can have it; name policies or baselines that do "
                f"not ({BELADY_RESIDENT} is told beside every candidate)"
            )
        candidate.policy()
    wanted = []
    for capacity in capacities:
        if capacity < facts.unique_blocks:
            wanted += [(trace, name, capacity) for name in dict.fromkeys((*names, LRU, BELADY_RESIDENT))]
            wanted += [(trace, LRU, int(capacity * times)) for times in LARGER]
    seen: dict[tuple[str, int], Seen] = {}
    if wanted:
        context = multiprocessing.get_context("fork" if os.name == "posix" else "spawn")
        with context.Pool(max(1, min(jobs, len(wanted)))) as pool:
            for name, capacity, one in pool.imap_unordered(_replayed, wanted):
                seen[name, capacity] = one
                told(len(seen) / len(wanted))
    return [_advice(capacity, names, seen, facts) for capacity in capacities]


def _replayed(job: tuple[Trace, str, int]) -> tuple[str, int, Seen]:
    trace, name, capacity = job
    facts, by_session = Facts(), dict[str, int]()
    runs: Runs | None = None
    tally = Tally(name, True, capacity)  # of a trace without a call, which no reader hands out
    for call in trace.calls(facts):
        if runs is None:
            runs = Runs([Run(contender(name), capacity)], call.request.block_size, facts.workflow)
            (tally,) = runs.tallies
        before = tally.recomputed_tokens
        runs.feed(call)
        owner = call.request.owner
        whose = f"{owner.tenant}/{owner.session}" if owner.session else f"minute {int(call.at // 60)}"
        by_session[whose] = by_session.get(whose, 0) + tally.recomputed_tokens - before
    if runs is not None:
        runs.end()
    return name, capacity, Seen(tally.block_hits, tally.block_refs, tally.recomputed_tokens, by_session, tally.failures)


def _advice(capacity: int, names: Sequence[str], seen: dict[tuple[str, int], Seen], facts: Facts) -> Advice:
    if capacity >= facts.unique_blocks:
        share = facts.seen_blocks / max(1, facts.block_refs)
        why = "the whole trace fits: nothing ever has to leave, so no policy can change anything"
        return Advice(capacity, None, 0.0, None, 0, share, share, None, 0, 0.0, {}, why, {})
    lru, bound = seen[LRU, capacity], seen[BELADY_RESIDENT, capacity]
    again = lru.recomputed
    tried = {name: 1.0 - seen[name, capacity].recomputed / again for name in names} if again else {}
    failures = {name: broke for name in names if (broke := seen[name, capacity].failures)}
    room = (1.0 - bound.recomputed / again if again else 0.0) if bound.refs or not again else None
    choosing, telling = _halves(lru.by_session)
    best = max(names, key=lambda name: (name not in failures, _saved(lru, seen[name, capacity], choosing)))
    saved = _saved(lru, seen[best, capacity], telling)
    interval = _interval(lru, seen[best, capacity], telling)
    chosen: str | None = best
    if again == 0:
        chosen, why = None, "lru computes nothing twice, so there is nothing to save"
    elif room is not None and room < WORTH:
        chosen, why = (
            None,
            (
                f"of the {again:,} tokens that lru computes twice the best order that knows the future would save "
                f"{100 * room:.1f} %, too little for a change"
            ),
        )
    elif best in failures:
        chosen, why = None, "planning broke under every candidate, so no figure here is a policy's"
    elif saved < WORTH or interval is None or interval[0] <= 0.0:
        chosen, why = None, _unsure(best, saved, interval, choosing, telling)
    else:
        why = (
            "chosen on half of the sessions, and better on the others"
            if choosing is not telling
            else ("chosen and judged on the same few sessions: expect less")
        )
    shown = seen[chosen or LRU, capacity]
    like = next((size for size in _larger(capacity) if seen[LRU, size].hits >= shown.hits), None) if chosen else None
    return Advice(
        capacity,
        chosen,
        saved,
        interval,
        lru.recomputed - shown.recomputed,
        lru.hits / max(1, lru.refs),
        shown.hits / max(1, shown.refs),
        like,
        again,
        room,
        tried,
        why,
        failures,
    )


def _unsure(best: str, saved: float, interval: Interval | None, choosing: Sequence[str], telling: Sequence[str]) -> str:
    """Why the best candidate is not advised: what it saves where it was judged, which is not the whole trace."""
    whose = "minutes" if all(name.startswith("minute ") for name in telling) else "sessions"
    share = f"{100 * saved:.1f} %"
    if interval is None:
        return f"{best} saves {share}, but of 1 of the {whose} that there are, which tells nothing of others"
    share += f" [{100 * interval[0]:.1f}, {100 * interval[1]:.1f}]"
    verdict = (
        "not surely better than lru" if saved >= WORTH else f"below the {100 * WORTH:.0f} % that a change is worth"
    )
    if choosing is telling:
        return f"{best} does best, and saves {share} over {len(telling)} {whose}: {verdict}"
    return (
        f"{best} did best on the half that chooses ({len(choosing)} {whose}), and saves {share} on the other "
        f"{len(telling)}, which judge: {verdict}"
    )


def _larger(capacity: int) -> list[int]:
    return [int(capacity * times) for times in LARGER]


def _halves(sessions: dict[str, int]) -> tuple[list[str], list[str]]:
    """(those that choose, those that tell): the same list where there are few."""
    every = sorted(sessions)
    if len(every) < FEW:
        return every, every
    even = [name for name in every if hashlib.sha256(name.encode()).digest()[0] % 2 == 0]
    odd = sorted(set(every) - set(even))
    return (even, odd) if even and odd else (every, every)


def _saved(lru: Seen, other: Seen, sessions: Sequence[str]) -> float:
    before = sum(lru.by_session[name] for name in sessions)
    return 1.0 - sum(other.by_session[name] for name in sessions) / before if before else 0.0


def _interval(lru: Seen, other: Seen, sessions: Sequence[str]) -> Interval | None:
    """95 %, of what is saved, over the sessions."""
    pairs = [(lru.by_session[name], other.by_session[name]) for name in sessions]
    if len(pairs) < 2:
        return None
    draw, found = random.Random(0), []
    for _ in range(RESAMPLES):
        drawn = draw.choices(pairs, k=len(pairs))
        before = sum(pair[0] for pair in drawn)
        found.append(1.0 - sum(pair[1] for pair in drawn) / before if before else 0.0)
    found.sort()
    return found[int(0.025 * RESAMPLES)], found[int(0.975 * RESAMPLES)]


def as_json(advice: Advice, block_size: int) -> dict[str, Any]:
    """One row of `advice`."""
    return {
        "capacity_blocks": advice.capacity,
        "capacity_tokens": advice.capacity * block_size,
        "policy": advice.policy,
        "saved_share": round(advice.saved, 4),
        "saved_interval": None if advice.interval is None else [round(value, 4) for value in advice.interval],
        "saved_tokens": advice.saved_tokens,
        "lru_hit_ratio": round(advice.lru_hit_ratio, 4),
        "hit_ratio": round(advice.hit_ratio, 4),
        "lru_blocks_for_the_same": advice.like_lru,
        "lru_recomputed_tokens": advice.lru_recomputed,
        "bound_saves": None if advice.room is None else round(advice.room, 4),
        "tried": {name: round(share, 4) for name, share in advice.tried.items()},
        "why": advice.why,
        "planning_failures": advice.failures,
    }
