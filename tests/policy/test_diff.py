"""Two policies compared: what the regions say and what trying every span and state says are the same.

Both ways: whatever comes out otherwise somewhere lies in a region, and wherever a region lies something comes out
otherwise, namely what the region says.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from kvpolicy.faults import ERROR
from kvpolicy.policy.analysis import analyse
from kvpolicy.policy.code import code
from kvpolicy.policy.compile import compile
from kvpolicy.policy.diff.cells import Between, sample
from kvpolicy.policy.diff.diff import Difference, difference
from kvpolicy.policy.diff.space import ATTRIBUTE, INTERVAL, KIND, OPEN, QUANTITY, Box, Space
from kvpolicy.policy.model import IntervalPattern, Opening, Subject
from kvpolicy.policy.policy import Policy
from kvpolicy.policy.show import value_text
from kvpolicy.policy.terms import Apply, Read, Term
from kvpolicy.policy.timeline import Happening, opening_of
from kvpolicy.request import Owner
from tests.policy.strategies import CONDITIONS, KINDS, file_set, policies, used_and_own

VALUES: dict[str, tuple[object, ...]] = {
    "agent": (None, "a", "b", "c"),
    "tokens": (None, 10, 1000, 8000, 9000),
    "depth": (None, 0, 1, 2, 3, 4),
    "last_step": (None, True, False),
    "status": (None, "running", "done"),
    "score": (None, 0.2, 0.5, 0.9, 1.0, 2.0),
}
HISTORIES: tuple[tuple[tuple[str, dict[str, object]], ...], ...] = (
    (),
    (("tool_call", {"tool": "grep"}),),
    (("tool_call", {"tool": "ls"}),),
    (("tool_call", {"tool": "other"}),),
    (("turn_end", {}),),
    (("compact", {}),),
    (("barrier", {}), ("tool_call", {"tool": "ls"})),
    (("barrier", {}), ("compact", {}), ("turn_end", {})),
)
NUMBERS = {
    "idle": (0.0, 60.0, 61.0),
    "pressure": (0.2, 0.5),
    "p95": (5.0, 10.0, None),
    "steps_to_next_use": (3.0, float("inf")),
    "reuse_probability": (0.5, 0.6),
    "turns_ago": (2.0, 3.0),
}
MOST = 1500  # points that are tried of one pair of policies


@dataclass
class Tried:
    """A state: what happened, and what functions answer."""

    happened: tuple[tuple[str, dict[str, object]], ...] = ()
    answers: dict[str, float | None] = field(default_factory=dict)
    open: dict[tuple[object, object], bool] | None = None
    now: float = 100.0

    def opening(self, interval: IntervalPattern, subject: Subject) -> Opening | None:
        if self.open is not None:
            return Opening(50.0, 3000.0) if self.open.get((interval.start, interval.until)) else None
        events = [Happening(50.0, name, stated) for name, stated in self.happened]
        return opening_of(interval, events, subject.attributes, self.now)

    def read(self, function: str, argument: object, subject: Subject) -> float | None:
        return self.answers.get(function, 1.0)


def sound(lines: list[str], used: list[str] | None = None) -> Policy:
    files = file_set(lines, used)
    assume(not any(fault.severity == ERROR for fault in analyse(files)))
    return compile(files)


def points(text: str) -> list[tuple[Subject, Tried]]:
    """Every span and state that the texts could tell apart; of very many, some."""
    names = [n for n in CONDITIONS if f"{n} " in text]
    spans = [
        Subject(kind, {n: v for n, v in zip(names, row, strict=True) if v is not None}, Owner())
        for kind in KINDS
        for row in itertools.product(*(VALUES[n] for n in names))
    ]
    asked = [f for f in NUMBERS if f"{f}(" in text]
    states = [
        Tried(history, dict(zip(asked, row, strict=True)))
        for history in HISTORIES
        for row in itertools.product(*(NUMBERS[f] for f in asked))
    ]
    everything = len(spans) * len(states)
    step = max(1, everything // MOST) | 1
    return [(spans[i % len(spans)], states[i // len(spans)]) for i in range(0, everything, step)]


def lies_in(space: Space, box: Box, subject: Subject, state: Tried) -> bool:
    for dimension, cells in zip(space.dimensions, box, strict=True):
        if cells == dimension.all:
            continue
        if dimension.kind == KIND:
            value: object = subject.kind
        elif dimension.kind == ATTRIBUTE:
            value = subject.attributes.get(str(dimension.name))
        elif dimension.kind == INTERVAL:
            value = state.opening(IntervalPattern(*dimension.name), subject) is not None
        else:
            value = code(dimension.name)(subject, state)
        chosen = [c for i, c in enumerate(dimension.cells) if cells >> i & 1]
        if not any(within(c, value, dimension.cells) for c in chosen):
            return False
    return True


def within(cell: object, value: object, cells: tuple[object, ...]) -> bool:
    if isinstance(cell, Between):
        return isinstance(value, int | float) and cell.low < value < cell.high
    if type(cell).__name__ == "_Other":
        return isinstance(value, str) and value not in cells[:-1]
    return cell == value and (cell is None) == (value is None)


def compare(before: Policy, after: Policy, text: str) -> Difference:
    """Try everything both ways."""
    found = difference(before, after)
    assert found.unsettled == ()
    for subject, state in points(text):
        one, two = before.resolve(subject, state), after.resolve(subject, state)
        for name, rows in found.found.items():
            values = [None if name not in v else value_text(v[name].value) for v in (one, two)]
            here = [r for r in rows.regions if lies_in(rows.space, r.box, subject, state)]
            if values[0] != values[1]:
                assert here, (name, subject, state, values)
            for region in here:
                for told, value, policy in zip((region.before, region.after), values, (before, after), strict=True):
                    if fixed(told.key):
                        assert told.text == (value or "not set"), (policy.name, name, subject, state)
    for name, rows in found.found.items():
        for region in rows.regions:
            subject, forced = inside(rows.space, region.box)
            values = []
            for told, policy in ((region.before, before), (region.after, after)):
                verdict = policy.resolve(subject, forced).get(name)
                values.append("not set" if verdict is None else value_text(verdict.value))
                assert not fixed(told.key) or told.text == values[-1]
                assert told.rule is None or verdict is None or not fixed(told.key) or told.limited or verdict.rule
            both = fixed(region.before.key) and fixed(region.after.key)
            assert not both or values[0] != values[1] or name == "retention"
    return found


def fixed(key: object) -> bool:
    return "computed" not in repr(key) and "frozenset" not in repr(key)


def inside(space: Space, box: Box) -> tuple[Subject, Tried]:
    """A span and a state in a box, whatever it takes to be there."""
    subject, state = Subject("turn", {}, Owner()), Tried(open={})
    attributes: dict[str, object] = {}
    kind = "turn"
    assert state.open is not None
    for at, dimension in enumerate(space.dimensions):
        cell = next(c for i, c in enumerate(dimension.cells) if box[at] >> i & 1)
        if dimension.kind == KIND:
            kind = str(cell)
        elif dimension.kind == ATTRIBUTE:
            if sample(cell) is not None:
                attributes[str(dimension.name)] = sample(cell)
        elif dimension.kind == INTERVAL:
            if box[at] == OPEN:
                state.open[dimension.name] = True
        elif dimension.kind == QUANTITY:
            state.answers[read_of(dimension.name).function] = None if cell is None else float(sample(cell))
    return Subject(kind, attributes, subject.owner), state


def read_of(term: Term) -> Read:
    while isinstance(term, Apply):
        term = term.operands[0]
    assert isinstance(term, Read)
    return term


@st.composite
def edited(draw: st.DrawFn, lines: list[str]) -> list[str]:
    """A policy with a statement lost, changed, moved or added."""
    other = draw(policies())
    rules = [i for i, line in enumerate(lines) if not line.startswith(("let", "layers", "layer"))]
    copy = list(lines)
    change = draw(st.integers(0, 4))
    if change == 0 and rules:
        del copy[draw(st.sampled_from(rules))]
    elif change == 1:
        copy = [line.replace("priority: 80", "priority: 79").replace(">= 1k", "> 1k") for line in copy]
    elif change == 2:
        copy = [line.replace("tool_call until tool_result", "turn_end until turn_start") for line in copy]
    elif change == 3:
        return other
    else:
        copy += [line for line in other if line.startswith("limit")]
    return copy


@settings(max_examples=60)
@given(policies(), st.data())
def test_what_changes_is_what_changes_somewhere(lines: list[str], data: st.DataObject) -> None:
    others = data.draw(edited(lines))
    compare(sound(lines), sound(others), "\n".join((*lines, *others)))


@settings(max_examples=15)
@given(used_and_own(), st.data())
def test_and_with_a_used_policy_below(pair: tuple[list[str], list[str]], data: st.DataObject) -> None:
    used, own = pair
    others = data.draw(edited(used))
    assume(all(f"base.b{i}" not in "\n".join(own) or f"b{i}: " in "\n".join(others) for i in range(9)))
    compare(sound(own, used), sound(own, others), "\n".join((*used, *own, *others)))


@settings(max_examples=40)
@given(policies(), st.randoms(use_true_random=False))
def test_a_policy_is_the_same_as_itself_in_another_order(lines: list[str], chance: object) -> None:
    moved = [line for line in lines if not line.startswith("layer")]
    chance.shuffle(moved)  # type: ignore[attr-defined]
    moved += [line for line in lines if line.startswith("layer")]
    assert difference(sound(lines), sound(moved)).same
