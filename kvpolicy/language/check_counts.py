"""How many branches a way makes, `a -> b * n`, and how often it may be taken, `at most n`: what no count can be.

A part of the pass `check_workflows`. What a count is in a text, `workflow.graph_numbers` asks of a graph as JSON too.
"""

from __future__ import annotations

from collections.abc import Iterator

from kvpolicy.faults import Diagnostic
from kvpolicy.language import codes, syntax

MOST = 999_999_999  # the largest count, and the largest bound
_SHOWN = 24  # characters of what is none


def is_count(text: str) -> bool:
    """Whether a text is a count of branches: a whole number, or the name of one that is told at run time."""
    if text[:1].isalpha() or text[:1] == "_":
        return True
    return text.isdecimal() and len(text) <= len(str(MOST)) and int(text) >= 1


def counts(workflow: syntax.Workflow) -> Iterator[Diagnostic]:
    """Counts that are none."""
    for edge in workflow.edges:
        if edge.times is not None and not is_count(edge.times):
            text = edge.times if len(edge.times) <= _SHOWN else f"{edge.times[:_SHOWN]}…"
            shown = text if edge.times.isdecimal() else f'"{text}"'
            message = f"`* {shown}` is no count of branches"
            fix = f"write a whole number from 1 to {MOST:,}, or the name of a count, which begins with a letter: `* n`"
            yield codes.OUT_OF_RANGE.at(edge.times_place or edge.place, message, fix=fix)


def bounds(workflow: syntax.Workflow) -> Iterator[Diagnostic]:
    """Ways that are never taken."""
    for edge in workflow.edges:
        if edge.at_most == 0:
            what = "a loop" if edge.is_loop else "a way"
            message = f"{what} that is taken 0 times is none"
            yield codes.OUT_OF_RANGE.at(edge.place, message, fix="remove it, or write `at most 1`")
