"""The workloads by name: what they are, whose figures they use, and the settings one may change.

Read by `kvp trace make`, by `library` (a name of these is a trace like any other) and by the benchmarks.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from kvpolicy.faults import InputFault
from kvpolicy.simulate.workloads import agents, controls, searches, workflows
from kvpolicy.simulate.workloads.making import MadeTrace

_CONTINUUM = "Continuum, arXiv 2511.02230"
_KVFLOW = "KVFlow, arXiv 2507.07400"


@dataclass(frozen=True, slots=True)
class Workload:
    """A trace to be made, and what it is in words."""

    what: str
    trace: MadeTrace
    whole: tuple[str, ...] = ()  # settings that are counts


def _chains(name: str, what: str, workflow_count: int, sizes: tuple[int, int, int], rounds: int) -> Workload:
    fixed, dynamic, output = sizes
    numbers = {"workflows": workflow_count, "fixed": fixed, "dynamic": dynamic, "output": output, "rounds": rounds}
    trace = MadeTrace(name, _KVFLOW, workflows.chain, numbers, workflow=workflows.chain_graph(rounds))
    return Workload(what, trace, tuple(numbers))


def _tree(task: str, trunk: int) -> Workload:
    settings = {"task": searches.TASKS[task], "branches": 8, "trunk": trunk, "searches": 4, "per_s": 0.1, "others": 0}
    trace = MadeTrace(f"tree-{task}", "DeFT, arXiv 2404.00242", searches.search, settings)
    return Workload(
        f"tree search in DeFT's shape of '{task}' over a trunk", trace, ("task", "branches", "trunk", "searches")
    )


WORKLOADS: dict[str, Workload] = {
    one.trace.name: one
    for one in (
        Workload(
            "coding agents in Continuum's SWE-Bench shape",
            MadeTrace("continuum-swe", _CONTINUUM, agents.swe, {"sessions": 100, "per_s": 0.2}),
            ("sessions",),
        ),
        Workload(
            "web-search agents in Continuum's BFCL shape",
            MadeTrace("continuum-bfcl", _CONTINUUM, agents.bfcl, {"sessions": 100, "per_s": 0.2}),
            ("sessions",),
        ),
        _chains("kvflow-chain", "one chain of ten agents with long fixed prompts, 8192/32/32", 1, (8_192, 32, 32), 10),
        _chains("kvflow-many", "twenty chains of ten agents at once, 1024/256/256", 20, (1_024, 256, 256), 10),
        Workload(
            "KVFlow's realistic case: PEER's four agents with short prompts",
            MadeTrace(
                "kvflow-peer",
                _KVFLOW,
                workflows.peer,
                {"tasks": 60, "questions": 5, "per_s": 0.5},
                workflow=workflows.peer_graph(),
            ),
            ("tasks", "questions"),
        ),
        *(_tree(task, 30_000) for task in searches.TASKS),
        Workload(
            "six kinds of tool, from 0.2 ms to 28.6 s",
            MadeTrace("infercept", "InferCept, ICML 2024", agents.infercept, {"sessions": 240, "per_s": 2.0}),
            ("sessions",),
        ),
        Workload(
            "the end-to-end test of vLLM's retention directives",
            MadeTrace("pr38514", "vLLM PR 38514", agents.pr38514, {"sessions": 1_200, "per_s": 10.0}),
            ("sessions",),
        ),
        Workload(
            "no pressure: everything fits, so nothing can be won",
            MadeTrace("no-pressure", _CONTINUUM, controls.no_pressure, {"sessions": 6, "per_s": 0.01}),
            ("sessions",),
        ),
        Workload(
            "chats that are all alike: nothing tells one from another",
            MadeTrace(
                "uniform-chat",
                "none: a control",
                controls.uniform_chat,
                {"sessions": 200, "turns": 8, "pause_s": 60.0, "per_s": 0.5},
            ),
            ("sessions", "turns"),
        ),
        Workload(
            "prompts that nobody sends again",
            MadeTrace("one-shot", "none: a control", controls.one_shot, {"sessions": 2_000, "per_s": 5.0}),
            ("sessions",),
        ),
    )
}


def workload(name: str, seed: int | None = None, settings: dict[str, float] | None = None) -> MadeTrace:
    """A workload with another seed or other settings. Raises InputFault for a name or setting that is not known."""
    known = WORKLOADS.get(name)
    if known is None:
        raise InputFault(f"{name}: no workload of that name; there are {', '.join(WORKLOADS)}")
    trace = known.trace if seed is None else replace(known.trace, seed=seed)
    for key, value in (settings or {}).items():
        if key not in trace.settings:
            raise InputFault(f"--set {key}: {name} has no such setting; it has {', '.join(trace.settings) or 'none'}")
        if not (0 < value < 1e9 or (key == "others" and value == 0)) or (key in known.whole and value != int(value)):
            raise InputFault(
                f"--set {key}={value:g}: a number above 0 and below 1e9{', a whole one' if key in known.whole else ''}"
            )
        if key == "task" and int(value) not in searches.SHAPES:
            raise InputFault(f"--set task={value:g}: one of 1 (docmerge), 2 (keyword), 3 (set), 4 (sort)")
    trace = trace.with_settings(**(settings or {}))
    if trace.make is workflows.chain:
        trace = replace(trace, workflow=workflows.chain_graph(int(trace.settings["rounds"])))
    return trace
