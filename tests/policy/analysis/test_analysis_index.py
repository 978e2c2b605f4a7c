"""The analysis compares rules all at once: it must say of each pair what comparing that pair says."""

from __future__ import annotations

import re
import tracemalloc

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kvpolicy.language.load import load_text
from kvpolicy.policy.analysis import analyse
from kvpolicy.policy.analysis.disagree import disagreements
from kvpolicy.policy.analysis.precedence import never_deciding, precedence_cycles
from kvpolicy.policy.analysis.view import View, view_of
from kvpolicy.policy.bits import bits_of, circles_of, members
from kvpolicy.policy.compile import compile
from tests.bench.policies import GENERATORS
from tests.policy.analysis import pairwise
from tests.policy.strategies import file_set, policies

STRINGS = (
    "agent = a",
    "agent = b",
    "agent != a",
    "agent != b",
    "agent in {a, b}",
    "agent in {a, b, c}",
    "agent in {a, b, c, d, e, f, g}",
    "tool = a",
    "tool != b",
)
NUMBERS = (
    "depth > 3",
    "depth >= 3",
    "depth < 5",
    "depth <= 200",
    "depth > 100",
    "depth = 4",
    "depth != 4",
    "depth in {4, 5}",
    "depth in {4, 300}",
    "score > 0.5",
    "score >= 0.5",
    "score != 0.5",
    "score = 0.5",
    "tokens >= 2k",
    "tokens < 4k",
    "last_step = yes",
    "last_step != yes",
    "status != done",
    "status in {running, done}",
)
GUARDS = (
    "",
    "",
    "",
    "when idle() < 5s",
    "when idle() >= 5s",
    "when idle() < 5s and age() < 1h",
    "when age() < 1h",
    "when idle() < 5s or age() < 1h",
    "when not (idle() < 5s or age() < 1h)",
    "when not (idle() < 5s) and age() < 1h",
)
INTERVALS = (
    "",
    "",
    "",
    "on tool_call",
    "on tool_call until tool_result",
    "on tool_call[tool = a]",
    "on tool_call[tool in {a, b}] until tool_result",
    "on tool_call until tool_result at most 5min",
    "on turn_end",
    "on barrier",
)
VALUES = ("priority: 40", "priority: 60", "place: same_worker", "priority: 40  ttl: 1min", "ttl: idle() + 5s")

ALSO_NOTHING = """\
layers one, two
later: turn { priority: 40 }
layer one { sooner: turn, turn[depth < 5, depth > 100] { priority: 60 } }
"""
ONLY_NOTHING = """\
nothing: turn[depth < 5, depth > 100] { priority: 40 }
deep: turn[depth > 3] { priority: 60 }
all: turn over nothing { priority: 40 }
"""


@st.composite
def texts(draw: st.DrawFn) -> str:
    """Policies of a few rules that overlap in many ways, in layers, some over others."""
    lines = ["layers one, two", "any[agent = nobody] { replicas: 1 }"]
    for number in range(draw(st.integers(2, 8))):
        conditions = st.lists(st.sampled_from((*STRINGS, *NUMBERS)), max_size=3, unique=True)
        matches = []
        for _ in range(draw(st.integers(1, 2))):
            kind, some = draw(st.sampled_from(("turn", "tools", "any"))), draw(conditions)
            matches.append(f"{kind}[{', '.join(some)}]" if some else kind)
        above = draw(st.sets(st.integers(0, number - 1), max_size=2)) if number and draw(st.booleans()) else ()
        over = "over " + ", ".join(f"r{other}" for other in sorted(above)) if above else ""
        rule = f"r{number}: {', '.join(matches)} {over} {draw(st.sampled_from(GUARDS))} "
        rule += f"{{ {draw(st.sampled_from(VALUES))} }}"
        interval = draw(st.sampled_from(INTERVALS))
        rule = f"{interval} {{ {rule} }}" if interval else rule
        layer = draw(st.sampled_from(("", "", "one", "two"))) if not above else ""
        lines.append(f"layer {layer} {{ {rule} }}" if layer else rule)
    return "\n".join(lines) + "\n"


def view(text: str, few: int) -> View:
    files = load_text(text, "a.kvp").files
    assert files is not None, text
    return view_of(compile(files), few)


def named(faults: list, code: str) -> set[frozenset[str]]:
    rows = [fault for fault in faults if fault.code == code]
    return {frozenset(re.findall(r"(?:'|rule at )([^' ]+)'?", note.message)[0] for note in row.notes) for row in rows}


@example(ALSO_NOTHING, 0)
@example(ALSO_NOTHING, 100)
@example(ONLY_NOTHING, 0)
@example(ONLY_NOTHING, 100)
@settings(max_examples=150)
@given(texts(), st.sampled_from((0, 100)))
def test_the_index_says_of_each_pair_what_comparing_it_says(text: str, few: int) -> None:
    laid_out = view(text, few)
    expected, index = pairwise.relations(laid_out), laid_out.index
    names = [rule.name for rule in index.rules]

    def pairs(of) -> set[tuple[str, str]]:
        return {(name, names[other]) for at, name in enumerate(names) for other in members(of(at))}

    assert pairs(index.meeting) >= expected["meeting"]
    assert pairs(index.implied) & expected["meeting"] == expected["implied"]
    assert {(b, a) for a, b in pairs(index.implying)} & expected["meeting"] == expected["implied"]
    assert pairs(index.broader) & expected["meeting"] == expected["narrower"]
    assert {(b, a) for a, b in pairs(index.narrower)} & expected["meeting"] == expected["narrower"]


@example(ALSO_NOTHING, 0)
@example(ALSO_NOTHING, 100)
@example(ONLY_NOTHING, 0)
@example(ONLY_NOTHING, 100)
@settings(max_examples=150)
@given(texts(), st.sampled_from((0, 100)))
def test_the_answers_are_those_of_all_pairs(text: str, few: int) -> None:
    laid_out = view(text, few)
    circles = precedence_cycles(laid_out)
    assert bool(circles) == bool(pairwise.round_about(laid_out))
    if circles:
        return
    found = {frozenset(fault_names(laid_out, fault)): fault for fault in disagreements(laid_out)}
    expected = pairwise.disagreeing(laid_out)
    assert found.keys() == expected.keys()
    for pair, names in expected.items():
        assert all(f"{name}:" in found[pair].message for name in names)
    undecided = {name for fault in never_deciding(laid_out) for name in fault_names(laid_out, fault)[:1]}
    assert undecided == pairwise.undecided(laid_out)


def test_a_match_that_contradicts_itself_leaves_what_the_others_say() -> None:
    """The rule that always loses always loses still; one that nothing matches is told once, and as that."""

    def told(text: str) -> list[tuple[str, int]]:
        files = load_text(text, "a.kvp").files
        assert files is not None
        return [(fault.code, fault.place.line) for fault in analyse(files)]

    assert told(ALSO_NOTHING) == [("KVP202", 3), ("KVP203", 3)]
    assert told(ALSO_NOTHING.replace(", turn[depth < 5, depth > 100]", "")) == [("KVP202", 3)]
    assert told(ONLY_NOTHING) == [("KVP203", 1)]


def fault_names(laid_out: View, fault) -> list[str]:
    """The rules at the places that a fault points at, its own first."""
    at = {rule.place: rule.name for rule in laid_out.policy.rules}
    return list(dict.fromkeys(at[place] for place in (fault.place, *(note.place for note in fault.notes))))


@settings(max_examples=60)
@given(policies(), st.sampled_from((0, 100)))
def test_groups_without_an_order_are_compared_as_well(lines, few: int) -> None:
    laid_out = view_of(compile(file_set(lines)), few)
    if precedence_cycles(laid_out):
        return
    told = {frozenset(fault_names(laid_out, fault)) for fault in disagreements(laid_out)}
    expected = pairwise.disagreeing(laid_out).keys()
    assert told <= expected
    assert bool(told) == bool(expected)


@given(st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)).filter(lambda e: e[0] != e[1]), max_size=20))
def test_circles_of_a_graph(edges: list[tuple[int, int]]) -> None:
    reach = {a: {b for x, b in edges if x == a} for a in range(8)}
    for _ in range(8):
        for below in reach.values():
            below |= {far for near in below for far in reach[near]}
    expected = {frozenset(b for b in reach[a] if a in reach[b]) for a in range(8) if a in reach[a]}
    after = [bits_of((b for a, b in edges if a == at), 8) for at in range(8)]
    before = [bits_of((a for a, b in edges if b == at), 8) for at in range(8)]
    assert {frozenset(members(part)) for part in circles_of(255, after.__getitem__, before.__getitem__)} == expected


@pytest.mark.parametrize("name", GENERATORS)
def test_a_thousand_rules_are_few_comparisons(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rules are compared one with one only where the index cannot tell: a count, for times depend on the machine."""
    from kvpolicy.policy import order

    compared = 0
    one_by_one = order.selector_implies

    def counted(*args):
        nonlocal compared
        compared += 1
        return one_by_one(*args)

    files = load_text(GENERATORS[name](1000), "a.kvp").files
    assert files is not None
    monkeypatch.setattr(order, "selector_implies", counted)
    analyse(files)
    assert compared < 20_000, compared


def test_the_memory_for_thousands_of_rules_that_all_overlap_is_bounded() -> None:
    files = load_text(GENERATORS["nested"](2000), "a.kvp").files
    assert files is not None
    tracemalloc.start()
    analyse(files)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 60e6, peak
