"""What clients say: headers and the body field, each alone, together, and damaged."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvpolicy import words
from kvpolicy.service.meaning.annotations import CONFLICT, MALFORMED, NOTHING, UNKNOWN_TAG, Context, Mark, merged
from kvpolicy.service.meaning.body_field import from_body
from kvpolicy.service.meaning.headers import CONTEXT, EVENTS, POLICY, SPANS, from_headers
from kvpolicy.service.meaning.identity import SESSION_HEADERS, identified


def test_the_headers_of_the_interface_are_read() -> None:
    said = from_headers(
        {
            CONTEXT: 'session="s1", run="r7", workflow="research";v=3, node="writer", agent="writer", turn=12, '
            'branch="b2", parent="s0", final',
            SPANS: '(0 1);t=system, (1 3);t=document;name="repo_map", (7 8);t=branch;branch="b2", (tools);t=tools, '
            "(4 -1);part=2;t=scratchpad, (0 40);u=token;t=system",
            EVENTS: 'tool-call;tool="grep";call="c1";eta=4.5, tool-end, fork, complete',
            POLICY: "continuum;mode=shadow",
        }
    )
    assert said.warned == ()
    assert said.context == Context("s1", "r7", "research", "writer", "writer", 12, "b2", "s0", final=True)
    assert said.marks == (
        Mark("system", "message", 0, 1),
        Mark("document", "message", 1, 3, None, {"name": "repo_map"}),
        Mark("branch", "message", 7, 8, None, {"branch": "b2"}),
        Mark("tools", "tools"),
        Mark("scratchpad", "message", 4, -1, 2),
        Mark("system", "token", 0, 40),
    )
    assert [event.name for event in said.events] == ["tool_call", "tool_result", "branch_start", "workflow_end"]
    assert said.events[0].attributes == {"tool": "grep", "call": "c1", "eta": 4.5}
    assert (said.policy, said.mode) == ("continuum", "shadow")


def test_text_outside_ascii_is_a_display_string() -> None:
    assert from_headers({CONTEXT: 'agent=%"f%c3%bcr"'}).context.agent == "für"


@pytest.mark.parametrize("name", sorted(words.EVENTS))
def test_every_event_of_the_language_may_be_said(name: str) -> None:
    assert [event.name for event in from_headers({EVENTS: name.replace("_", "-")}).events] == [name]


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({CONTEXT: "session=a b"}, MALFORMED),
        ({CONTEXT: "Session=1"}, MALFORMED),
        ({CONTEXT: "turn=-1"}, MALFORMED),
        ({CONTEXT: 'colour="red"'}, UNKNOWN_TAG),
        ({CONTEXT: 'tenant="other"'}, UNKNOWN_TAG),
        ({SPANS: "(0 1);t=sistem"}, UNKNOWN_TAG),
        ({SPANS: "(0 1);t=system;p=90"}, UNKNOWN_TAG),
        ({SPANS: "(0);t=system"}, MALFORMED),
        ({SPANS: "(0 1"}, MALFORMED),
        ({EVENTS: "explode"}, UNKNOWN_TAG),
        ({POLICY: "continuum;mode=turbo"}, UNKNOWN_TAG),
        ({CONTEXT: 'session="' + "x" * 9000 + '"'}, MALFORMED),
    ],
)
def test_what_cannot_be_meant_is_ignored_and_answered(headers: dict[str, str], code: str) -> None:
    assert code in from_headers(headers).warned


def test_the_tenant_is_never_taken_from_a_client() -> None:
    said = from_headers({EVENTS: 'session-end;tenant="other";session="s"'})
    assert said.events[0].attributes == {"session": "s"}
    assert (
        "tenant" not in from_body({"kvp": {"events": [{"event": "session_end", "tenant": "b"}]}}).events[0].attributes
    )


def test_the_body_says_the_same() -> None:
    said = from_body(
        {
            "kvp": {
                "context": {"session": "s1", "turn": 2, "final": True},
                "spans": [{"messages": [0, 1], "kind": "system"}, {"tools": True, "kind": "tools"}],
                "events": [{"event": "tool_call", "tool": "grep", "eta": 4}],
                "policy": {"name": "continuum", "mode": "shadow"},
                "node": "writer",
            }
        }
    )
    assert said.warned == ()
    assert said.context == Context("s1", node="writer", turn=2, final=True)
    assert said.marks == (Mark("system", "message", 0, 1), Mark("tools", "tools"))
    assert said.events[0].attributes == {"tool": "grep", "eta": 4.0}
    assert (said.policy, said.mode) == ("continuum", "shadow")


def test_the_header_wins_and_a_difference_is_answered() -> None:
    both = merged(from_headers({CONTEXT: 'session="h"'}), from_body({"kvp": {"session": "b", "node": "n"}}))
    assert (both.context.session, both.context.node) == ("h", "n")
    assert both.warned == (CONFLICT,)
    agreed = merged(from_headers({CONTEXT: 'session="h"'}), from_body({"kvp": {"session": "h"}}))
    assert agreed.warned == ()


def test_identities_already_in_use_are_understood_in_their_order() -> None:
    every = {name: name for name in SESSION_HEADERS}
    for name in SESSION_HEADERS:
        assert identified(Context(), every, {"session_id": "b"}).session == name
        del every[name]
    assert identified(Context(), {}, {"session_id": "b", "prompt_cache_key": "k"}).session == "b"
    assert identified(Context(), {}, {"prompt_cache_key": "k"}).session == "k"
    assert identified(Context(session="own"), {"x-session-id": "other"}, {}).session == "own"
    told = identified(Context(), {"x-claude-code-agent-id": "a", "x-claude-code-parent-agent-id": "p"}, {})
    assert (told.agent, told.parent) == ("a", "p")


@given(st.text(alphabet=string.printable, max_size=200), st.sampled_from([CONTEXT, SPANS, EVENTS, POLICY]))
def test_no_header_whatever_raises(value: str, name: str) -> None:
    from_headers({name: value})


_KEYS = "context spans events event policy mode session turn kind messages tokens tools part name eta"
_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(_KEYS.split()), inner, max_size=5),
    max_leaves=12,
)


@given(_json)
def test_no_body_field_whatever_raises(value: object) -> None:
    said = from_body({"kvp": value})
    assert (said is NOTHING) == (value is None)
