"""`kvp graph FILE`: a workflow with the steps to each node's next use, its loops and what is wrong with it.

Reads a `.kvp` (or a packaged policy) or a graph as JSON, and optionally a run state whose step events say where the
run stands. Writes text, the JSON of the interface, DOT or SVG.
"""

from __future__ import annotations

import argparse
import json
import sys
from difflib import get_close_matches
from typing import TYPE_CHECKING

from kvpolicy.faults import ERROR, InputFault, PolicyFault
from kvpolicy.policy.model import NEVER

_NODE = "node"
_ENDS = 2  # keys of an edge of which nothing is stated

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kvpolicy.language.syntax import FileSet
    from kvpolicy.workflow.events import Event
    from kvpolicy.workflow.graph import Graph, GraphEdge
    from kvpolicy.workflow.position import Position

HELP = "A workflow: its nodes with the steps to their next use, its edges and loops, and what is wrong with it."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`FILE [--workflow NAME] [--state S.json] [--format text|json|dot|svg]`."""
    parser.add_argument("file", metavar="FILE", help="a .kvp file, a packaged policy, or a graph as .json")
    parser.add_argument("--workflow", metavar="NAME", help="which one, where the file has several")
    parser.add_argument("--state", metavar="S.json", help="events up to now (and a workflow, where FILE has none)")
    parser.add_argument("--format", choices=("text", "json", "dot", "svg"), default="text", help="default: text")


def run(args: argparse.Namespace) -> int:
    """Print the graph; 1 where it has errors. Raises InputFault where there is no workflow, PolicyFault where FILE
    does not parse."""
    from kvpolicy.cli.listing import as_words
    from kvpolicy.request_json import load_json, read_state

    document = read_state({} if args.state is None else load_json(args.state), args.state or "state")
    files = None if args.file.endswith(".json") else _load(args.file)
    graph = _graph(args.file, files, args.workflow, document.workflow)
    events = _events(document.events, args.state)
    steps = _position(graph, events).all_steps()
    for notice in _strangers(graph, events):
        print(as_words(f"kvp: notice: {args.state}: {notice}"), file=sys.stderr)
    ranks, chances = _told(files, graph, events)
    found = graph.check()
    if args.format == "json":
        answer = {
            "workflow": graph.name,
            "nodes": [
                {
                    "name": name,
                    "role": role,
                    "steps_to_next_use": _shown(steps[name]),
                    "rank": ranks.get(name),
                    "reuse_probability": chances.get(name),
                }
                for name, role in graph.nodes.items()
            ],
            "edges": [[edge.source, edge.target] for edge in graph.edges],
            "stated": [row for edge in graph.edges if len(row := _stated(edge)) > _ENDS],
            "joins": dict(graph.joins),
            "loops": [list(loop) for loop in graph.loops()],
            "diagnostics": [d.as_json() for d in found],
        }
        print(json.dumps(answer, indent=1))
    elif args.format in ("dot", "svg"):
        from kvpolicy.workflow import draw

        captions = {name: _caption(steps[name], ranks.get(name)) for name in graph.nodes}
        print(draw.dot(graph, captions) if args.format == "dot" else draw.svg(graph, captions))
    else:
        from kvpolicy.cli.listing import as_text, texts_of

        print(_as_text(graph, steps, ranks, chances))
        if found:
            print(as_text(found, {} if files is None else texts_of(found)))
    return int(any(d.severity == ERROR for d in found))


def _graph(file: str, files: FileSet | None, name: str | None, stated: object) -> Graph:
    from kvpolicy.language.nesting import nest, outermost
    from kvpolicy.request_json import load_json
    from kvpolicy.workflow.graph import Graph

    if files is None:
        return Graph.build(load_json(file), file)
    nested = nest(files)
    if nested.faults:
        raise PolicyFault(nested.faults)
    named = [block for block in nested.workflows if block.name == name]
    workflows = outermost(nested.workflows) if name is None else named
    if len(workflows) == 1:
        return Graph.build(workflows[0])
    if workflows:
        names = ", ".join(block.name for block in nested.workflows)
        raise InputFault(f"{file} has several workflows; name one of {names} with --workflow")
    if stated is not None and name is None:
        return Graph.build(stated)
    raise InputFault(f"{file} has no workflow" + (f" {name}" if name is not None else ""))


def _load(file: str) -> FileSet:
    from kvpolicy.language.load import load

    loaded = load([file])
    errors = tuple(d for d in loaded.diagnostics if d.severity == ERROR)
    if errors:
        raise PolicyFault(errors)
    if loaded.files is None:
        raise InputFault(f"{file}: no policy")
    return loaded.files


def _events(rows: Iterable[Mapping[str, object]], source: str | None) -> list[Event]:
    from kvpolicy.workflow.events import events_from_rows

    try:
        return events_from_rows(rows)
    except InputFault as fault:
        raise InputFault(f"{source}: {fault}") from None


def _strangers(graph: Graph, events: list[Event]) -> list[str]:
    """Of each node that events name and the workflow has not, a sentence: such an event moves nothing."""
    told: dict[str, str] = {}
    for number, event in enumerate(events):
        node, workflow = event.attributes.get("node"), event.attributes.get("workflow")
        if isinstance(node, str) and workflow in (None, graph.name) and graph.find(node) is None:
            near = next(iter(get_close_matches(node, graph.nodes, n=1)), None)
            mend = f"did you mean {near}?" if near else f"its nodes are {', '.join(graph.nodes)}"
            said = f"events[{number}]: the workflow {graph.name} has no node {node}, so this moves nothing; {mend}"
            told.setdefault(node, said)
    return list(told.values())


def _position(graph: Graph, events: list[Event]) -> Position:
    """Where the run stands whose steps were told last."""
    from kvpolicy.workflow.position import Position
    from kvpolicy.workflow.runs import Runs

    runs = Runs(graph)
    for event in events:
        runs.observe(event, ())
    return runs.latest() or Position(graph)


def _told(files: FileSet | None, graph: Graph, events: list[Event]) -> tuple[dict[str, int], dict[str, float | None]]:
    """Of each node's system prompt now: its rank, tools apart, which have no prompts, nothing where no policy was given
    or it does not compile; and what `reuse_probability()` gives, None where it has no data."""
    from kvpolicy import words
    from kvpolicy.policy.compile import compile as compile_policy
    from kvpolicy.policy.model import Subject
    from kvpolicy.request import Owner
    from kvpolicy.workflow.graph import NESTED
    from kvpolicy.workflow.state import RunState

    try:
        policy = None if files is None else compile_policy(files)
    except PolicyFault:
        policy = None
    stated = events[-1].attributes if events else {}
    tenant, session, run = (stated.get(field) for field in ("tenant", "session", "run"))
    state = RunState(() if policy is None else policy.intervals, graph)
    ranks: dict[str, int] = {}
    chances: dict[str, float | None] = {}
    agents = {name: name.rpartition(NESTED)[2] for name in graph.nodes}  # of a nested workflow: by its own name
    owners = {
        name: Owner(str(tenant or "default"), _text(session), _text(run), agent=agents[name]) for name in graph.nodes
    }
    for owner in owners.values():
        state.know(owner)
    for event in events:
        state.observe(event)
    for name, owner in owners.items():
        if graph.nodes[name] == "tool":
            continue
        place = {"agent": agents[name], "node": name, "workflow": graph.name}
        known = {"tenant": owner.tenant, "session": owner.session, **place}
        subject = Subject("system", {key: value for key, value in known.items() if value is not None}, owner)
        chances[name] = state.read("reuse_probability", None, subject)
        if policy is not None:
            verdict = policy.resolve(subject, state).get("priority")
            value = words.DEFAULT_PRIORITY if verdict is None else verdict.value
            ranks[name] = value if isinstance(value, int) else words.DEFAULT_PRIORITY
    return ranks, chances


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _caption(steps: float, rank: int | None) -> str:
    return f"steps {_shown(steps)}" + (f", rank {rank}" if rank is not None else "")


def _shown(steps: float) -> int | str:
    return "never" if steps == NEVER else int(steps)


def _stated(edge: GraphEdge) -> dict[str, object]:
    """What is said of an edge beside its ends, in the words of a graph as JSON."""
    said = {"times": edge.times, "at_most": edge.at_most, "probability": edge.probability, "group": edge.group}
    marks = {"loop": edge.is_loop or None, "calls": edge.calls or None}
    told = {key: value for key, value in {**said, **marks}.items() if value is not None}
    return {"from": edge.source, "to": edge.target, **told}


def _way(edge: GraphEdge) -> str:
    """Where an edge comes from, and how likely it is taken there, where that is stated."""
    return edge.source if edge.probability is None else f"{edge.source} ({round(100 * edge.probability, 6):g}%)"


def _bound(graph: Graph, loop: tuple[str, ...]) -> str:
    """How often a loop can be taken, where that is stated."""
    bounds = []
    for name, following in zip(loop, (*loop[1:], loop[0]), strict=True):
        edges = (graph.edges[e] for e in graph.out_of[graph.number[name]])
        bounds += [edge.at_most for edge in edges if edge.target == following and edge.at_most is not None]
    return f", at most {min(bounds)} times" if bounds else ""


def _as_text(graph: Graph, steps: dict[str, float], ranks: dict[str, int], chances: Mapping[str, float | None]) -> str:
    from kvpolicy.cli.listing import as_words

    width = max((len(name) for name in (*graph.nodes, _NODE)), default=0)
    head = f"  {_NODE:<{width}}  steps" + ("  rank" if ranks else "") + "  reuse"
    lines = [f"workflow {graph.name}", head]
    for index, (name, role) in enumerate(graph.nodes.items()):
        edges = [graph.edges[e] for e in graph.into[index]]
        into = ", ".join(_way(edge) for edge in edges if not edge.calls)
        callers = ", ".join(edge.source for edge in edges if edge.calls)
        waits = " all of" if graph.joins.get(name) == "and" else ""
        after = (f"  after{waits} {into}" if into else "") + (f"  called by {callers}" if callers else "")
        rank = f"  {ranks.get(name, '-')!s:>4}" if ranks else ""
        chance = "-" if (known := chances.get(name)) is None else f"{known:.3g}"
        lines.append(f"  {name:<{width}}  {_shown(steps[name])!s:>5}{rank}  {chance:>5}  {role}{after}")
    lines += [f"  loop: {' -> '.join((*loop, loop[0]))}{_bound(graph, loop)}" for loop in graph.loops()]
    return "\n".join(as_words(line) for line in lines)
