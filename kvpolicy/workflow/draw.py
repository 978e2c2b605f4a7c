"""A workflow drawn: as DOT for Graphviz, and as an SVG of its own that needs no other program.

Reads a `Graph` and a caption per node; gives text. Used by `kvp graph`.
"""

from __future__ import annotations

from collections.abc import Mapping
from xml.sax.saxutils import escape

from kvpolicy.workflow.graph import AND, Graph, GraphEdge

_SHAPES = {"agent": "box", "tool": "ellipse", "barrier": "diamond"}
_WIDE, _HIGH, _GAP_X, _GAP_Y, _EDGE = 150, 44, 40, 46, 20  # pixels
_STYLE = (
    "text{font:12px sans-serif;text-anchor:middle}rect,path{fill:none;stroke:#333}rect{fill:#fff}"
    ".barrier{stroke-width:3}.tool{stroke-dasharray:2 2}.loop{stroke-dasharray:6 3}"
    ".calls{stroke-dasharray:1 3}"
)


def dot(graph: Graph, captions: Mapping[str, str]) -> str:
    """DOT text; loops are dashed and do not push their target down."""
    lines = [f"digraph {_quoted(graph.name)} {{", "  rankdir=TB;"]
    for name, role in graph.nodes.items():
        label = "\\n".join(_inner(part) for part in _lines(graph, name, captions))
        lines.append(f'  {_quoted(name)} [shape={_SHAPES[role]}, label="{label}"];')
    for edge in graph.edges:
        said = [f"label={_quoted(_label(edge))}"] if _label(edge) else []
        said += ["style=dashed", "constraint=false"] if edge.is_loop else ["style=dotted"] if edge.calls else []
        lines.append(f"  {_quoted(edge.source)} -> {_quoted(edge.target)}{_bracketed(said)};")
    return "\n".join([*lines, "}"])


def svg(graph: Graph, captions: Mapping[str, str]) -> str:
    """An SVG document: a row for each step from the entries, loops dashed at the side."""
    rows = _rows(graph)
    widest = max((len(row) for row in rows), default=1)
    width = 2 * _EDGE + widest * (_WIDE + _GAP_X) + 2 * _GAP_X
    height = 2 * _EDGE + len(rows) * (_HIGH + _GAP_Y)
    at: dict[str, tuple[float, float]] = {}
    for level, row in enumerate(rows):
        left = _EDGE + (widest - len(row)) * (_WIDE + _GAP_X) / 2.0
        for place, name in enumerate(row):
            at[name] = (left + place * (_WIDE + _GAP_X) + _WIDE / 2, _EDGE + level * (_HIGH + _GAP_Y))
    parts = [_path(edge, at) for edge in graph.edges]
    for name, role in graph.nodes.items():
        x, y = at[name]
        box = f'x="{x - _WIDE / 2:g}" y="{y:g}" width="{_WIDE}" height="{_HIGH}" rx="{4 if role == "agent" else 16}"'
        parts.append(f'<rect class="{role}" {box}/>')
        for index, line in enumerate(_lines(graph, name, captions)):
            parts.append(f'<text x="{x:g}" y="{y + 18 + 16 * index:g}">{escape(line)}</text>')
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}">'
    marker = '<defs><marker id="a" markerWidth="8" markerHeight="8" refX="7" refY="4" orient="auto">'
    marker += '<path d="M0 0L8 4L0 8z" style="fill:#333"/></marker></defs>'
    title = f"<title>{escape(graph.name)}</title>"
    return "\n".join([head, title, f"<style>{_STYLE}</style>{marker}", *parts, "</svg>"])


def _rows(graph: Graph) -> list[list[str]]:
    """Nodes by the fewest edges from an entry, loops apart; what no entry leads to stands in the last row."""
    depth = dict.fromkeys((graph.names[index] for index in graph.entries), 0)
    waiting = list(depth)
    for name in waiting:  # grows while it is walked
        for index in graph.out_of[graph.number[name]]:
            target = graph.edges[index].target
            if target not in depth and not graph.is_loop[index]:
                depth[target] = depth[name] + 1
                waiting.append(target)
    last = max(depth.values(), default=-1) + 1
    rows: list[list[str]] = [[] for _ in range(last + 1)]
    for name in graph.nodes:
        rows[depth.get(name, last)].append(name)
    return [row for row in rows if row]


def _path(edge: GraphEdge, at: Mapping[str, tuple[float, float]]) -> str:
    (x0, y0), (x1, y1) = at[edge.source], at[edge.target]
    label = f"<title>{escape(_label(edge))}</title>" if _label(edge) else ""
    if edge.is_loop or y1 <= y0:
        side = max(x0, x1) + _WIDE / 2 + _GAP_X
        start, end = (x0 + _WIDE / 2, y0 + _HIGH / 2), (x1 + _WIDE / 2, y1 + _HIGH / 2)
        curve = f"M{start[0]:g} {start[1]:g}C{side:g} {start[1]:g} {side:g} {end[1]:g} {end[0]:g} {end[1]:g}"
        line = f'<path class="loop" marker-end="url(#a)" d="{curve}">{label}</path>'
        x, y = (x0 + x1 + _WIDE + 6 * side) / 8, (start[1] + end[1]) / 2
        return line + _words(edge, x, y)
    kind = ' class="calls"' if edge.calls else ""
    return f'<path{kind} marker-end="url(#a)" d="M{x0:g} {y0 + _HIGH:g}L{x1:g} {y1:g}">{label}</path>' + _words(
        edge, (x0 + x1) / 2, (y0 + _HIGH + y1) / 2
    )


def _words(edge: GraphEdge, x: float, y: float) -> str:
    """What is said of an edge, beside it."""
    return f'<text x="{x + 30:g}" y="{y + 4:g}">{escape(_label(edge))}</text>' if _label(edge) else ""


def _lines(graph: Graph, name: str, captions: Mapping[str, str]) -> list[str]:
    first = f"{name} (all of)" if graph.joins.get(name) == AND and len(graph.forward[graph.number[name]]) > 1 else name
    return [first, captions[name]] if captions.get(name) else [first]


def _label(edge: GraphEdge) -> str:
    said = ["calls" if edge.calls else "", f"* {edge.times}" if edge.times is not None else ""]
    said.append(f"at most {edge.at_most}" if edge.at_most is not None else "")
    said.append(f"{edge.probability:g}" if edge.probability is not None else "")
    return ", ".join(filter(None, said))


def _bracketed(said: list[str]) -> str:
    return f" [{', '.join(said)}]" if said else ""


def _inner(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")


def _quoted(text: str) -> str:
    return f'"{_inner(text)}"'
