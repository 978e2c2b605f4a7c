"""Policies of any number of rules: one as a house of many agents would write it, and some that make comparing hard.

Read by the benchmarks of the analysis, of starting and of resolving; the same number gives the same text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

KINDS = ("turn", "tool_result", "document", "scratchpad", "tools", "system")


def realistic(rules: int) -> str:
    """Six kinds for each agent, with conditions, guards, intervals, ladders and sets; no two rules disagree."""
    lines = []
    for i in range(rules):
        kind, agent, minutes = KINDS[i % 6], f"agent = a{i // 6}", i % 9 + 1
        match i % 5:
            case 0:
                lines.append(f"{kind}[{agent}] {{ priority: {40 + i % 50}  ttl: {minutes}min }}")
            case 1:
                lines.append(f"{kind}[{agent}, depth > {i % 4}] {{ priority: {40 + i % 50} }}")
            case 2:
                hold = f"{kind}[{agent}] {{ retention: hold {minutes}s }}"
                lines.append(f"on tool_call[tool = t{i % 7}] until tool_result {{ {hold} }}")
            case 3:
                idle = f"when idle() < {minutes}min"
                lines.append(f"{kind}[{agent}] {idle} {{ priority: {50 + i % 40}  tier: gpu, cpu after 30s }}")
            case _:
                lines.append(f"{kind}[{agent}, tool in {{t{i % 3}, t{i % 5 + 3}}}] {{ place: same_worker }}")
    return "\n".join(lines) + "\n"


def nested(rules: int) -> str:
    """Each rule lies within the one before, so that all overlap and each pair has an order."""
    return _lines(f"turn[depth > {i}] {{ priority: {i % 60 + 36} }}" for i in range(rules))


def crossing(rules: int) -> str:
    """Each range overlaps each, and none lies within another: as many faults as there are pairs."""
    return _lines(f"turn[depth > {i}, depth < {i + rules}] {{ priority: {i % 60 + 36} }}" for i in range(rules))


def all_but_one(rules: int) -> str:
    """Every rule reaches all agents but one, with a rank of its own: as many faults as there are pairs."""
    return _lines(f"turn[agent != a{i}] {{ priority: {i % 60 + 36} }}" for i in range(rules))


def agreeing(rules: int) -> str:
    """The same with one rank: all overlap, and nothing is wrong."""
    return _lines(f"turn[agent != a{i}] {{ priority: 50 }}" for i in range(rules))


def guarded(rules: int) -> str:
    """All for the same spans, each under a condition of its own that is narrower than the one before."""
    parts = [f"idle() < {i + 1}s" for i in range(rules)]
    lines = ["turn { priority: 40 }"]
    lines += [f"turn when {part} {{ priority: 50 }}" for part in parts[1:]]
    return _lines(lines)


def stacked(rules: int) -> str:
    """Each rule is written over the one before: all but the last never decide."""
    lines = ["r0: turn { priority: 40 }"]
    lines += [f"r{i}: turn over r{i - 1} {{ priority: {i % 60 + 36} }}" for i in range(1, rules)]
    return _lines(lines)


def layered(rules: int) -> str:
    """Pairs that meet in one agent only, for which a later layer has a rule."""
    lines = ["layers low, high", "layer high { turn[agent = all] { priority: 90 } }", "layer low {"]
    lines += [f"turn[agent in {{all, a{i}}}] {{ priority: {i % 60 + 36} }}" for i in range(rules - 1)]
    return _lines([*lines, "}"])


def _lines(lines: Iterable[str]) -> str:
    return "\n".join(lines) + "\n"


GENERATORS: dict[str, Callable[[int], str]] = {
    "realistic": realistic,
    "nested": nested,
    "crossing": crossing,
    "all_but_one": all_but_one,
    "agreeing": agreeing,
    "guarded": guarded,
    "stacked": stacked,
    "layered": layered,
}
