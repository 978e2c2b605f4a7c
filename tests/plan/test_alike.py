"""Groups that kinds tell are those that are found span by span."""

from __future__ import annotations

from typing import Any, cast

from hypothesis import given, settings
from hypothesis import strategies as st

from kvpolicy import words
from kvpolicy.language.load import load_text
from kvpolicy.plan import alike, plan, say
from kvpolicy.plan.alike import groups_of
from kvpolicy.plan.outline import Outline
from kvpolicy.policy.compile import compile as compile_policy
from kvpolicy.policy.policy import Policy
from kvpolicy.request import Owner, Request, Span
from kvpolicy.workflow.state import RunState


def policy(rules: str) -> Policy:
    files = load_text(f'policy p "x" {rules}', "p.kvp").files
    assert files is not None
    return compile_policy(files)


PLAIN = policy(
    "system when hits(system) else 0 > 0 { priority: 50 } scratchpad { retention: drop } "
    "on tool_call until tool_result { turn, tool_result { priority: 60 } }"
)
OF_THE_SPAN = policy("turn when turns_ago() > 2 { priority: 50 }")
KINDS = [kind for kind in words.SPAN_KINDS if kind != "output"]


def rows_of(length: int) -> list[tuple[str, int]]:
    return [("system", length), ("scratchpad", length)]


def spans_of(rows: list[tuple[str, int]]) -> tuple[Span, ...]:
    spans, at = [], 0
    for kind, length in rows:
        spans.append(Span(kind, at, at + length))
        at += length
    return tuple(spans)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 20)), min_size=1, max_size=12))
def test_kinds_tell_what_spans_tell(rows: list[tuple[str, int]]) -> None:
    spans = spans_of(rows)
    request = Request("r", Owner(session="s"), spans[-1].end or 0, 8, spans)
    state: Any = RunState(PLAIN.intervals)
    quick = Outline(PLAIN, request, state)
    slow = Outline(PLAIN, request, state)
    slow._tell_apart(PLAIN.menu_of, state)
    assert list(quick.groups) == list(slow.groups)
    assert list(map(id, quick.menus)) == list(map(id, slow.menus))
    assert list(quick.lifetimes) == list(slow.lifetimes)
    for group in range(len(quick.menus)):
        assert quick.subject(group) == slow.subject(group)


def test_what_is_said_while_nothing_is_open_is_said_once() -> None:
    state: Any = RunState(PLAIN.intervals)

    def said(number: int, length: int, agent: str) -> Any:
        owner, spans = Owner(session=f"s{number}", agent=agent), spans_of(rows_of(length))
        request = Request(f"r{number}", owner, 2 * length, 8, spans)
        state.arrive(request, 0.0)
        return cast(Any, plan(PLAIN, request, state, 0.0).directives)

    first, longer, other = said(1, 8, "a"), said(2, 40, "a"), said(3, 8, "b")
    assert longer.wishes is first.wishes and longer.rows != first.rows
    assert other.wishes is not first.wishes
    state.record_hit(Owner(session="s9", agent="a"), "system")
    assert said(4, 8, "a").wishes[0].priority == 50


def test_what_another_thread_says_meanwhile_is_not_taken_for_what_was_looked_at() -> None:
    """Two engines may share a policy: what one keeps under an agent's name is the other's to replace."""
    state: Any = RunState(PLAIN.intervals)

    def outline(agent: str) -> Any:
        spans = spans_of(rows_of(8))
        request = Request(agent, Owner(session=agent, agent=agent), spans[-1].end or 0, 8, spans)
        state.arrive(request, 0.0)
        return Outline(PLAIN, request, state)

    one, other = outline("one"), outline("other")
    own, others = say(PLAIN, one, state, 0.0), say(PLAIN, other, state, 0.0)
    about_others = one.alike.said
    assert about_others[1] is others is not own
    say(PLAIN, one, state, 0.0)

    class Replaced(tuple[Any, ...]):
        def __getitem__(self, place: Any) -> Any:
            one.alike.said = about_others
            return super().__getitem__(place)

    own = one.alike.said[1]
    one.alike.said = Replaced(one.alike.said)
    assert say(PLAIN, one, state, 0.0) is own


def test_a_kind_whose_rules_look_at_the_span_tells_nothing() -> None:
    assert groups_of(OF_THE_SPAN, ("system",), True) is not None
    assert groups_of(OF_THE_SPAN, ("system", "turn"), True) is None


def test_what_is_kept_of_long_prompts_is_bounded_in_all() -> None:
    """Not by their number alone: with what is said of each, long ones take as much more."""
    rules, most = policy("turn { priority: 60 }"), 0
    for number in range(600):
        kinds = tuple(KINDS[number >> at & 1] if at < 10 else "turn" for at in range(256))
        found = groups_of(rules, kinds, True)
        assert groups_of(rules, kinds, True) is found
        size = sum(len(kept) for kept, _ in rules.groups)
        assert size <= alike._KINDS_KEPT
        most = max(most, size)
    assert most > alike._KINDS_KEPT - 256  # and emptied no sooner
