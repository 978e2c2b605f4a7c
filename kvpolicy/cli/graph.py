"""`kvp graph FILE`: a workflow with the steps to each node's next use, its loops and what is wrong with it.

Reads a `.kvp` (or a packaged policy) or a graph as JSON, and optionally a run state whose step events say where the
run stands. Writes text or the JSON of the interface.
"""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from kvpolicy.faults import ERROR, InputFault, PolicyFault
from kvpolicy.policy.model import NEVER

if TYPE_CHECKING:
    from kvpolicy.language.syntax import FileSet
    from kvpolicy.workflow.graph import Graph
    from kvpolicy.workflow.position import Position

HELP = "A workflow: its nodes with the steps to their next use, its edges and loops, and what is wrong with it."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`FILE [--workflow NAME] [--state S.json] [--format text|json]`."""
    parser.add_argument("file", metavar="FILE", help="a .kvp file, a packaged policy, or a graph as .json")
    parser.add_argument("--workflow", metavar="NAME", help="which one, where the file has several")
    parser.add_argument("--state", metavar="S.json", help="events up to now (and a workflow, where FILE has none)")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="default: text")


def run(args: argparse.Namespace) -> int:
    """Print the graph; 1 where it has errors. Raises InputFault where there is no workflow, PolicyFault where FILE
    does not parse."""
    from kvpolicy.request_json import load_json, read_state

    state = read_state({} if args.state is None else load_json(args.state), args.state or "state")
    graph = _graph(args.file, args.workflow, state.workflow)
    position = _position(graph, state.events, args.state)
    steps = position.all_steps()
    found = graph.check()
    if args.format == "json":
        document = {
            "workflow": graph.name,
            "nodes": [
                {"name": name, "role": role, "steps_to_next_use": _shown(steps[name])}
                for name, role in graph.nodes.items()
            ],
            "edges": [[edge.source, edge.target] for edge in graph.edges],
            "joins": dict(graph.joins),
            "loops": [list(loop) for loop in graph.loops()],
            "diagnostics": [d.as_json() for d in found],
        }
        print(json.dumps(document, indent=1))
    else:
        from kvpolicy.cli.listing import as_text

        print(_as_text(graph, steps))
        if found:
            print(as_text(found, {}))
    return int(any(d.severity == ERROR for d in found))


def _graph(file: str, name: str | None, stated: object) -> Graph:
    from kvpolicy.request_json import load_json
    from kvpolicy.workflow.graph import Graph

    if file.endswith(".json"):
        return Graph.build(load_json(file), file)
    workflows = [block for member in _load(file).members for block in member.file.workflows]
    if name is not None:
        workflows = [block for block in workflows if block.name == name]
    if len(workflows) == 1:
        return Graph.build(workflows[0])
    if workflows:
        names = ", ".join(block.name for block in workflows)
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


def _position(graph: Graph, events: tuple[object, ...], source: str | None) -> Position:
    """Where the run stands whose steps were told last."""
    from collections.abc import Mapping

    from kvpolicy.workflow.events import event_from_row
    from kvpolicy.workflow.position import Position
    from kvpolicy.workflow.runs import Runs

    runs, told = Runs(graph), []
    for index, row in enumerate(events):
        try:
            told.append(event_from_row(row if isinstance(row, Mapping) else {}))
        except InputFault as fault:
            raise InputFault(f"{source}: events[{index}]: {fault}") from None
    for event in sorted(told, key=lambda event: event.at):
        runs.observe(event, ())
    return runs.latest() or Position(graph)


def _shown(steps: float) -> int | str:
    return "never" if steps == NEVER else int(steps)


def _as_text(graph: Graph, steps: dict[str, float]) -> str:
    from kvpolicy.cli.listing import as_words

    width = max((len(name) for name in graph.nodes), default=0)
    lines = [f"workflow {graph.name}"]
    for name, role in graph.nodes.items():
        into = ", ".join(edge.source for edge in graph.edges if edge.target == name)
        waits = " all of" if graph.joins.get(name) == "and" else ""
        after = f"  after{waits} {into}" if into else ""
        lines.append(f"  {name:<{width}}  {_shown(steps[name])!s:>5}  {role}{after}")
    lines += [f"  loop: {' -> '.join((*loop, loop[0]))}" for loop in graph.loops()]
    return "\n".join(as_words(line) for line in lines)
