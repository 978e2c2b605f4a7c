"""Random policies as texts, random spans and random states: small, and dense with rules that meet."""

from __future__ import annotations

from hypothesis import strategies as st

from kvpolicy.language.parse import parse
from kvpolicy.language.syntax import File, FileSet, Member
from kvpolicy.policy.model import NEVER, Opening, Subject
from kvpolicy.request import Owner
from tests.policy.reference import World

KINDS = ("turn", "document", "system", "output")
LAYERS = ("first", "second")
INTERVALS = (
    "on tool_call until tool_result",
    "on tool_call[tool = grep] until tool_result",
    "on tool_call[tool in {grep, ls}] until tool_result",
    "on tool_call",
    "on turn_end until turn_start",
    "on turn_end[agent = a] until turn_start at most 10min",
    "on compact",
    "on barrier until compact",
)
OPENED = (
    ("tool_call", "tool_result"),
    ("tool_call", None),
    ("turn_end", "turn_start"),
    ("compact", None),
    ("barrier", "compact"),
)
ATOMS = (
    "idle() > 1min",
    "idle() <= 60s",
    "pressure(gpu) >= half",
    "p95(tool.duration) else 5s < 10s",
    "10s > p95(tool.duration) else 5s",
    "steps_to_next_use() else 3 = never",
    "reuse_probability(within 30s) else 0% > 50%",
    "turns_ago() != 2",
)
FUNCTIONS = (
    ("idle", None),
    ("pressure", "gpu"),
    ("p95", "tool.duration"),
    ("steps_to_next_use", None),
    ("reuse_probability", 30.0),
    ("turns_ago", None),
)
ALWAYS = ("idle", "pressure", "turns_ago")
CONDITIONS = {
    "agent": ("= a", "= b", "!= a", "in {a, b}"),
    "tokens": (">= 1k", "< 8k", "> 8k", "= 1k"),
    "depth": ("> 1", ">= 2", "<= 3", "!= 2", "in {1, 2}", "= 2"),
    "last_step": ("= yes", "!= yes"),
    "status": ("= done", "!= running"),
    "score": ("> 0.5", "<= 0.5", "< 1"),
}
VALUES = {
    "priority": (
        "80",
        "20",
        "default",
        "90 - 10 * steps_to_next_use() else 2",
        "20 + idle() / 1s",
        "100 * (p95(tool.duration) else 0s) / idle()",
        "max(10, min(60, turns_ago() * 7.5))",
        "clamp(turns_ago(), 1, 3)",
        "50 + 10 * log2(idle() / 1min)",
    ),
    "retention": (
        "drop",
        "pin",
        "normal",
        "hold 30s",
        "hold p95(tool.duration) else 5s",
        "hold until turn_start at most 5min",
    ),
    "ttl": ("10min", "1h fixed", "idle() * 2", "default"),
    "for": ("session", "run", "default"),
    "tier": ("gpu, cpu after 30s", "cpu", "gpu, disk after idle() + 1s"),
    "prefetch": ("yes", "idle() > 1min", "5s"),
    "admit": ("no", "pressure(gpu) < half"),
    "replicas": ("2", "all"),
    "place": ("same_worker", "anywhere"),
    "share": ("run", "global"),
}
LIMITS = (
    "limit any { priority: at most 60 }",
    "limit turn[agent = a] { priority: at most 30 }",
    "limit document { priority: at least 25  ttl: at most 5min }",
    "limit any { hold: at most 20s  replicas: at most 1 }",
    "limit any { hold: at least 10s }",
    "limit any { hold: at most 40% of gpu }",
)


@st.composite
def matches(draw: st.DrawFn) -> str:
    kind = draw(st.sampled_from((*KINDS[:2], *KINDS, "any")))
    names = draw(st.lists(st.sampled_from(sorted(CONDITIONS)), max_size=2))
    conditions = [f"{n} {draw(st.sampled_from(CONDITIONS[n]))}" for n in names]
    return kind + (f"[{', '.join(conditions)}]" if conditions else "")


@st.composite
def guards(draw: st.DrawFn) -> str:
    one, two = draw(st.lists(st.sampled_from(ATOMS), min_size=2, max_size=2, unique=True))
    return draw(
        st.sampled_from(("{0}", "not ({0})", "{0} and {1}", "{0} or {1}", "not ({0} and {1})", "{1} and {0}"))
    ).format(one, two)


@st.composite
def rules(draw: st.DrawFn, index: int, prefix: str, over: tuple[str, ...]) -> str:
    selector = ", ".join(draw(st.lists(matches(), min_size=1, max_size=2)))
    names = draw(st.lists(st.sampled_from(("priority", "priority", *VALUES)), min_size=1, max_size=2, unique=True))
    body = "  ".join(f"{n}: {draw(st.sampled_from(VALUES[n]))}" for n in names)
    targets = draw(st.lists(st.sampled_from(over), max_size=2, unique=True)) if over and draw(st.booleans()) else []
    beats = f" over {', '.join(targets)}" if targets else ""
    guard = f" when {draw(guards())}" if draw(st.integers(0, 2)) == 0 else ""
    text = f"{prefix}{index}: {selector}{beats}{guard} {{ {body} }}"
    if draw(st.integers(0, 2)) == 0:
        text = f"{draw(st.sampled_from(INTERVALS))} {{ {text} }}"
    return text


@st.composite
def policies(draw: st.DrawFn) -> list[str]:
    """The statements of one policy, in an order that has no meaning within a layer."""
    return draw(_statements("r", ()))


@st.composite
def _statements(draw: st.DrawFn, prefix: str, others: tuple[str, ...], home: str = "p") -> list[str]:
    lines = ["let half = 50%"]
    blocks: dict[str, list[str]] = {}
    count = draw(st.integers(1, 6))
    placed = sorted(draw(st.lists(st.sampled_from((0, 1, 2)), min_size=count, max_size=count)))
    for index, layer in enumerate(placed):
        known = (*others, *(f"{prefix}{i}" for i in range(index)))
        text = draw(rules(index, prefix, known))
        if layer == 0:
            lines.append(text)
        else:
            blocks.setdefault(LAYERS[layer - 1], []).append(text)
    order = draw(st.booleans())
    if order and len(blocks) == 2:
        lines.append(f"layers {home}, first, second")
    lines += [f"layer {name} {{ {' '.join(rows)} }}" for name, rows in blocks.items()]
    lines += draw(st.lists(st.sampled_from(LIMITS), max_size=2, unique=True))
    return lines


def file_set(lines: list[str], used: list[str] | None = None, name: str = "p.kvp") -> FileSet:
    """The file set of some statements; `used`: those of a policy that it uses as `base`."""
    if used is None:
        return FileSet((Member(_file(lines, name), "", ()),))
    return FileSet((Member(_file(used, "base.kvp"), "base", ()), Member(_file(["use base", *lines], name), "", ())))


def _file(lines: list[str], name: str) -> File:
    parsed = parse("\n".join(lines), name)
    assert parsed.file is not None
    assert not parsed.diagnostics, parsed.diagnostics
    return parsed.file


@st.composite
def used_and_own(draw: st.DrawFn) -> tuple[list[str], list[str]]:
    """A used policy, and one on top of it that may go over its rules."""
    used = draw(_statements("b", (), "base"))
    names = [f"base.b{i}" for i in range(len("".join(used).split(": ")))]
    known = tuple(n for n in names if f"{n.removeprefix('base.')}: " in "\n".join(used))
    return used, draw(_statements("r", known))


@st.composite
def subjects(draw: st.DrawFn) -> Subject:
    choices: dict[str, tuple[object, ...]] = {
        "agent": ("a", "b", "c"),
        "tokens": (10, 1000, 8000, 9000),
        "depth": (0, 1, 2, 3, 4),
        "last_step": (True, False),
        "status": ("running", "done"),
        "score": (0.2, 0.5, 0.9, 1.0),
    }
    names = draw(st.lists(st.sampled_from(sorted(choices)), unique=True))
    attributes = {n: draw(st.sampled_from(choices[n])) for n in names}
    return Subject(draw(st.sampled_from(KINDS)), attributes, Owner())


@st.composite
def worlds(draw: st.DrawFn) -> World:
    openings = {}
    for key in OPENED:
        state = draw(st.sampled_from(("closed", "closed", "open", "grace", "over")))
        if state != "closed":
            at = draw(st.sampled_from((10.0, 20.0, 90.0)))
            openings[key] = Opening(at, at + 600, {"open": None, "grace": 110.0, "over": 100.0}[state])
    values = (0.0, 0.4, 2.0, 30.0, 60.0, 90.0)
    functions = {
        key: draw(st.sampled_from(values if key[0] in ALWAYS else (None, NEVER, *values))) for key in FUNCTIONS
    }
    return World(100.0, openings, functions)
