"""Sub-agents that call one another in a circle, by who calls whom.

Asked by `check_workflows` of a text and by `workflow.graph_calls` of a graph in any form, so that both say the same.
"""

from __future__ import annotations

from collections.abc import Mapping

CIRCLE_MEND = "let one of them be called from outside the circle, or by nobody"
_SHOWN = 8  # nodes of a circle in a message


def circles(callers: Mapping[str, str]) -> list[tuple[str, ...]]:
    """callers: of each sub-agent, by its name. Every circle of two or more once: each node before the one it calls,
    first the one that comes first in `callers`."""
    found: list[tuple[str, ...]] = []
    order = {name: number for number, name in enumerate(callers)}
    seen: set[str] = set()
    for start in callers:
        way: list[str] = []  # each node before its caller
        node: str | None = start
        while node is not None and node not in seen:
            seen.add(node)
            way.append(node)
            node = callers.get(node)
        if node in way:
            circle = way[way.index(node) :][::-1]
            begin = circle.index(min(circle, key=order.__getitem__))
            if len(circle) > 1:
                found.append((*circle[begin:], *circle[:begin]))
    return found


def circle_message(circle: tuple[str, ...]) -> str:
    """What is wrong with one."""
    names = circle if len(circle) <= _SHOWN else (*circle[:_SHOWN], "…")
    return f"sub-agents call one another in a circle, and nobody calls the first: {' → '.join((*names, circle[0]))}"
