"""A policy that the checks pass never meets two unbeaten values, whatever happens to an owner."""

from __future__ import annotations

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from kvpolicy.faults import ERROR
from kvpolicy.language.check import check
from kvpolicy.policy.analysis import analyse
from kvpolicy.policy.compile import compile
from kvpolicy.policy.compiled import DEFAULT
from kvpolicy.policy.explain import explain
from kvpolicy.policy.model import IntervalPattern, Opening, Subject
from kvpolicy.policy.timeline import Happening, opening_of
from tests.policy.reference import World
from tests.policy.strategies import file_set, policies, subjects, worlds

EVENTS = (
    ("tool_call", {"tool": "grep", "call": "c1"}),
    ("tool_call", {"tool": "ls"}),
    ("tool_result", {"call": "c1"}),
    ("tool_result", {}),
    ("turn_end", {}),
    ("turn_end", {"agent": "a"}),
    ("turn_start", {}),
    ("compact", {}),
    ("barrier", {}),
    ("session_end", {}),
)


class History(World):
    """A state whose intervals follow from events."""

    events: tuple[Happening, ...] = ()

    def opening(self, interval: IntervalPattern, subject: Subject) -> Opening | None:
        return opening_of(interval, self.events, subject.attributes, self.now)


@st.composite
def histories(draw: st.DrawFn) -> History:
    state = History(functions=draw(worlds()).functions)
    at, events = 0.0, []
    for name, attributes in draw(st.lists(st.sampled_from(EVENTS), max_size=6)):
        at += draw(st.sampled_from((0.0, 1.0, 40.0)))
        events.append(Happening(at, name, attributes))
    state.events, state.now = tuple(events), at + draw(st.sampled_from((0.0, 29.0, 31.0)))
    return state


@settings(max_examples=120)
@given(policies(), st.lists(subjects(), min_size=1, max_size=3), st.lists(histories(), min_size=1, max_size=3))
def test_a_checked_policy_never_meets_two_unbeaten_values(lines, spans, states):
    files = file_set(lines)
    assume(not any(d.severity == ERROR for d in check(files)))
    assume(not any(d.severity == ERROR for d in analyse(files)))
    policy = compile(files)
    for state in states:
        for span in spans:
            for decided in explain(policy, span, state).properties:
                values = [r.values[decided.property].run(span, state) for r in decided.unbeaten]
                different = [v for i, v in enumerate(values) if v not in values[:i]]
                assert len(different) <= 1, (decided.property, [r.name for r in decided.unbeaten], different)
                if decided.rule is not None and different != [DEFAULT]:
                    assert decided.verdict is not None
