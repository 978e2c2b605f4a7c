"""What is written of a scope is what the service reads, in each of the three ways, whatever the names are."""

from __future__ import annotations

import logging
from urllib.parse import urlsplit

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvpolicy.client import once
from kvpolicy.client.scope import Mark, Scope, mark
from kvpolicy.client.wire import CONTEXT, SPANS, base_url, body, headers
from kvpolicy.service.inpath import moved
from kvpolicy.service.meaning.annotations import Annotations, Context
from kvpolicy.service.meaning.body_field import from_body
from kvpolicy.service.meaning.headers import from_headers

NAMES = st.one_of(st.none(), st.text(st.characters(codec="utf-8"), min_size=1, max_size=40).filter(str.isprintable))
COUNTS = st.one_of(st.none(), st.integers(0, 10**14))
ANY = st.text(st.characters(codec="utf-8"), max_size=40)  # line breaks and other controls among it
FLAGS = st.one_of(st.none(), st.booleans())
MARKS = st.builds(
    Mark,
    st.sampled_from(["system", "document", "branch", "scratchpad"]),
    st.integers(0, 99),
    st.integers(-1, 99),
    st.sampled_from(["message", "token"]),
    st.none(),
    st.dictionaries(st.sampled_from(["name", "tool", "branch"]), ANY, max_size=2).map(
        lambda d: tuple(sorted(d.items()))
    ),
)
SCOPES = st.builds(Scope, *[NAMES] * 7, COUNTS, COUNTS, FLAGS, FLAGS, marks=st.lists(MARKS, max_size=3).map(tuple))


def expected(scope: Scope) -> Context:
    return Context(
        scope.session, scope.run, scope.workflow, scope.node, scope.agent, scope.turn, scope.branch, scope.parent,
        scope.depth, scope.last_step, scope.final,
    )  # fmt: skip


def same_marks(read: Annotations, scope: Scope) -> bool:
    told = [(m.kind, m.unit, m.start, m.end, dict(m.attributes)) for m in read.marks]
    return told == [(m.kind, m.unit, m.start, m.end, dict(m.attributes)) for m in scope.marks]


@settings(max_examples=150, deadline=None)
@given(SCOPES)
def test_headers_and_body_say_the_scope(scope: Scope) -> None:
    for read in (from_headers(dict(headers(scope))), from_body({"kvp": body(scope)})):
        assert read.context == expected(scope)
        assert same_marks(read, scope)
        assert read.warned == ()
    assert all(value.isascii() and value.isprintable() for _, value in headers(scope))


@settings(max_examples=150, deadline=None)
@given(SCOPES)
def test_a_base_url_says_the_scope(scope: Scope) -> None:
    url = base_url("http://127.0.0.1:8700/v1", scope)
    raw = f"{urlsplit(url).path}/chat/completions".encode()
    if scope == Scope(marks=scope.marks):
        assert url == "http://127.0.0.1:8700/v1"
        return
    there = moved({"type": "http", "raw_path": raw, "path": raw.decode(), "headers": [(b"host", b"x")]})
    assert (there["raw_path"], there["path"]) == (b"/v1/chat/completions", "/v1/chat/completions")
    told = {name.decode(): value.decode("latin-1") for name, value in there["headers"]}
    assert from_headers(told).context == expected(scope)


@pytest.mark.parametrize(
    "part", ["session", "session=", "colour=red", "turn=-1", "turn=two", "session=%ff", "a" * 5000]
)
def test_a_part_that_cannot_be_read_is_answered_as_malformed(part: str) -> None:
    raw = f"/kvp/{part}/v1/models".encode()
    there = moved({"type": "http", "raw_path": raw, "path": "", "headers": []})
    assert there["path"] == "/v1/models"
    read = from_headers({name.decode(): value.decode() for name, value in there["headers"]})
    assert read.context == Context() and read.warned == ("malformed",)


def test_a_header_wins_over_the_path() -> None:
    there = moved({"type": "http", "raw_path": b"/kvp/session=a/x", "path": "", "headers": [(CONTEXT.encode(), b"s")]})
    assert there["headers"] == [(CONTEXT.encode(), b"s")]


def test_tools_and_parts() -> None:
    scope = Scope(marks=(mark("tools", unit="tools"), mark("scratchpad", 4, 5, part=2)))
    assert dict(headers(scope))[SPANS] == "(tools);t=tools, (4 5);part=2;t=scratchpad"
    assert from_headers(dict(headers(scope))).warned == ()


def test_what_cannot_be_said_is_left_out_and_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "kvpolicy"):
        for number in range(3):
            assert dict(headers(Scope(session="s" * 300 + str(number), node="a\nb", run="r"))) == {CONTEXT: 'run="r"'}
        assert headers(Scope(marks=(mark("document", name="n" * 9000),))) == ()
    assert [record.message.partition(":")[0] for record in caplog.records] == ["kvpolicy"] * 3


@pytest.mark.parametrize(
    "bad",
    [
        mark("documents"),
        mark("document\r\nx-other: 1"),
        mark("document", unit="word"),
        mark("document", "0\n", 1),  # type: ignore[arg-type]
        mark("document", 0, -2),
        mark("document", 0, 1, part="1\n"),  # type: ignore[arg-type]
        mark("document", 0, 1, **{"na\nme": "x"}),
        mark("document", 0, 1, name=3),  # type: ignore[arg-type]
        mark("document", 0, 1, name="half of a pair \ud800"),
    ],
)
def test_a_mark_that_cannot_be_said_is_left_out_alone(bad: Mark, caplog: pytest.LogCaptureFixture) -> None:
    scope = Scope(session="s", marks=(bad, mark("tools", unit="tools")))
    with caplog.at_level(logging.WARNING, "kvpolicy"):
        for _ in range(2):
            assert dict(headers(scope)) == {CONTEXT: 'session="s"', SPANS: "(tools);t=tools"}
            assert body(scope)["spans"] == [{"tools": True, "kind": "tools"}]
    assert len(caplog.records) == 1 and "a mark is not sent" in caplog.text


def test_what_is_wrong_with_marks_is_said_once_whatever_they_say(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "kvpolicy"):
        for number in range(20):
            headers(Scope(marks=(mark(f"doc{number}"), mark("document", 0, 1, **{f"x{number}": "y"}))))
    assert once.counts == {"mark kind": 20, "mark attributes": 20} and len(caplog.records) == 2
