"""The public face in Python: its names, its calls, what it refuses; importing it stays light."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import kvpolicy
from kvpolicy import Engine, Event, InputFault, Owner, PolicyFault, Request, Span

PAUSE = """
policy pause
system { priority: 90 }
on tool_call until tool_result { turn { retention: hold 30s  priority: 60 } }
"""
FLOWS = (
    "workflow support { agent planner, writer  planner -> writer }\nworkflow other { agent writer, planner }\n"
    "turn when steps_to_next_use() else 9 = 1 { priority: 80 }\n"
)


def test_exported_names() -> None:
    """Settled in docs/adr/0012 and 0030. A name that goes breaks somebody's program; one that comes is a promise."""
    assert sorted(kvpolicy.__all__) == [
        "Answer",
        "AsyncEngine",
        "AsyncService",
        "Diagnostic",
        "Directive",
        "Engine",
        "Event",
        "Graph",
        "InputFault",
        "KvpError",
        "Mark",
        "Notice",
        "Outcome",
        "Owner",
        "Plan",
        "Policy",
        "PolicyFault",
        "Request",
        "Run",
        "Service",
        "Span",
        "__version__",
        "annotate",
        "barrier",
        "base_url",
        "body",
        "branch",
        "check",
        "current_run",
        "event",
        "headers",
        "load",
        "mark",
        "run",
        "said",
        "spans",
        "step",
        "tool",
    ]
    for name in kvpolicy.__all__:
        assert getattr(kvpolicy, name) is not None
        assert name in dir(kvpolicy)


def test_calls_and_their_arguments() -> None:
    calls = {
        name: list(inspect.signature(call).parameters)[1:]
        for name, call in inspect.getmembers(Engine, inspect.isfunction)
        if not name.startswith("_")
    }
    assert calls == {
        "advance": ["now"],
        "cancel": ["request_id", "now"],
        "event": ["event", "now", "attributes"],
        "export_learned": ["tenant"],
        "finish": ["request_id", "tool_calls", "finished", "parts", "now"],
        "load_learned": ["document", "tenant"],
        "plan": ["request", "now"],
        "release_all": ["now"],
        "request": ["request", "tokens", "hashes", "now"],
        "reset_learned": ["tenant"],
        "run": ["workflow", "session", "run", "agent", "tenant"],
        "stats": [],
    }
    for name in calls:
        assert getattr(Engine, name).__doc__


def test_a_name_that_is_none() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Engin'"):
        kvpolicy.Engin  # type: ignore[attr-defined]  # noqa: B018


def test_names_are_loaded_when_they_are_asked_for() -> None:
    program = "import sys, kvpolicy; a = 'kvpolicy.embedded' in sys.modules; kvpolicy.Engine; print(a)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


# --- load and check --------------------------------------------------------------------------------------------------


def test_load_takes_a_text_a_file_and_a_packaged_name(tmp_path: Path) -> None:
    file = tmp_path / "mine.kvp"
    file.write_text(PAUSE)
    for source in (PAUSE, str(file), file, "base"):
        assert kvpolicy.load(source).rules


def test_load_raises_what_is_wrong_with_a_policy(tmp_path: Path) -> None:
    with pytest.raises(PolicyFault) as caught:
        kvpolicy.load("sistem { priority: 90 }\nturn { priority: 101 }\n")
    assert len(caught.value.diagnostics) == 2
    with pytest.raises(InputFault, match="nowhere"):
        kvpolicy.load(tmp_path / "nowhere.kvp")
    with pytest.raises(InputFault, match="no_such_policy"):
        kvpolicy.load("no_such_policy")


def test_check_returns_what_load_raises() -> None:
    found = kvpolicy.check("turn { priority: 101 }\n")
    assert [d.severity for d in found] == ["error"]
    assert kvpolicy.check(PAUSE) == ()


# --- an engine -------------------------------------------------------------------------------------------------------


def request(id: str, tokens: int = 64, session: str = "s") -> Request:
    return Request(id, Owner(session=session), tokens, 16, (Span("system", 0, 32),))


def asked(*spans: Any, owner: Any = Owner(), tokens: Any = 64, block_size: int = 16) -> None:  # noqa: B008 - frozen
    Engine(PAUSE).request(Request("a", owner, tokens, block_size, spans), list(range(64)), now=0.0)


def test_a_plan_changes_nothing() -> None:
    engine = Engine(PAUSE)
    plan = engine.plan(request("r"), now=1.0)
    assert [(d.kind, d.priority) for d in plan.directives] == [("system", 90)]
    assert engine.stats()["requests"] == 0
    document = {
        "id": "r",
        "owner": {"session": "s"},
        "tokens": 64,
        "spans": [{"kind": "system", "start": 0, "end": 32}],
    }
    assert engine.plan(document, now=1.0) == plan


def test_requests_events_and_time() -> None:
    engine = Engine(kvpolicy.load(PAUSE), adapter="memory", blocks=100, block_size=16)
    tokens = list(range(64))
    first = engine.request(request("a"), tokens, now=0.0)
    assert first.cached == 0 and len(first.stored) == 4
    assert [hint.status for hint in first.hints] == ["accepted"]
    assert engine.finish("a", tool_calls=[("grep", "c1")], now=1.0)
    assert engine.stats()["protected"] == 4
    assert not engine.finish("a", now=1.0)
    engine.advance(now=31.0)
    assert engine.stats()["protected"] == 0
    assert engine.request(request("b"), tokens, now=32.0).cached == 4
    assert engine.cancel("b", now=33.0)
    (answer,) = engine.event("session_end", session="s", now=34.0)
    assert answer.status == "accepted"
    (answer,) = engine.event(Event(35.0, "session_end", {"session": "nobody"}), now=35.0)
    assert answer.status == "ignored"
    assert engine.release_all(now=36.0) == 0


def test_tenants_do_not_meet() -> None:
    engine = Engine(PAUSE)
    tokens = list(range(64))
    one = Request("a", Owner(tenant="t1"), 64, 16)
    two = Request("b", Owner(tenant="t2"), 64, 16)
    assert engine.request(one, tokens, now=0.0).cached == 0
    assert engine.request(two, tokens, now=0.0).cached == 0
    again = Request("c", Owner(tenant="t1", session="other"), 64, 16)
    assert engine.request(again, tokens, now=0.0).cached == 4


def test_hashes_of_an_engine_are_taken_as_they_are() -> None:
    engine = Engine(PAUSE)
    assert engine.request(request("a"), hashes=["h0", "h1", "h2", "h3"], now=0.0).stored == ["h0", "h1", "h2", "h3"]


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda: Engine(PAUSE, adapter="memori"), "no adapter for engine 'memori'"),
        (lambda: Engine(PAUSE, blocks=0), "at least one block"),
        (lambda: Engine(PAUSE, block_size=0), "at least one token"),
        (lambda: Engine(PAUSE).request(request("a")), "needs its token ids"),
        (lambda: Engine(PAUSE).request(request("a"), [1, 2]), "states 64 tokens, and 2 were given"),
        (lambda: Engine(PAUSE).plan({"id": "r"}), "tokens"),
        (lambda: Engine(PAUSE).event("tool_cal"), "'tool_cal' is no event; did you mean `tool_call`"),
        (lambda: Engine(PAUSE).event("tool_end"), "is no event; did you mean `tool_result`"),
        (lambda: Engine(PAUSE).event("session_end", sesion="s1"), "no field 'sesion'; did you mean `session`"),
        (lambda: Engine(PAUSE).event(Event(0.0, "session_end", {"sesion": "s1"})), "no field 'sesion'"),
        (lambda: Engine(PAUSE).finish("a", tool_calls="grep"), r"write tool_calls=\['grep'\]"),
        (lambda: Engine(PAUSE).finish("a", tool_calls=[3]), r"a name or \(name, call id\) is needed, not 3"),
        (lambda: Engine(PAUSE).finish("a", tool_calls=4), "a list of names"),
        (lambda: asked(Span("sytem", 0, 4)), "span 0: unknown kind 'sytem'; did you mean system"),
        (lambda: asked(Span("system", 0, 99)), "span 0: reaches token 99, but the request has 64 tokens"),
        (lambda: asked(Span("system", "0", 4)), "start and end are whole numbers of tokens, not '0' and 4"),
        (
            lambda: asked(Span("tool_result", 0, 4, {"tol": "grep"})),
            "span 0: there is no attribute 'tol'; did you mean",
        ),
        (lambda: asked(("system", 0, 4)), r"a Span is needed, such as Span\('system', 0, 40\), not a tuple"),
        (lambda: asked(owner="s1"), r"owner: an Owner is needed, such as Owner\(session='s1'\), not 's1'"),
        (lambda: asked(owner=Owner(session=7)), "owner: session: a string is needed, not 7"),
        (lambda: asked(block_size=32), "the engine's blocks have 16 tokens, not 32"),
        (lambda: asked(tokens=list(range(64))), "the number of tokens is needed, not a list; write 64"),
        (lambda: Engine(PAUSE).request(3, [1]), "a Request or its JSON form is needed, not one of type int"),
        (lambda: Engine(PAUSE).request(request("a"), 64), "a sequence of token ids is needed"),
        (lambda: Engine(PAUSE).run().request(tokens=1000), r"such as \[17, 4, 81\], not 1000"),
        (
            lambda: Engine(PAUSE).run().request([1], dept=3),
            "request: there is no attribute 'dept'; did you mean `depth`",
        ),
        (lambda: Engine(PAUSE).request(request("a"), hashes=["h"]), "64 tokens are 4 full blocks of 16, and 1 hashes"),
        (
            lambda: Engine(PAUSE).request(request("a"), hashes="abcd"),
            "a sequence of block hashes is needed, not 'abcd'",
        ),
        (lambda: Engine(PAUSE).plan(request(5)), "id: a string is needed, not 5"),  # type: ignore[arg-type]
        (lambda: Engine(PAUSE).run(session=5), "owner: session: a string is needed, not 5"),  # type: ignore[arg-type]
        (lambda: Engine(PAUSE).run(workflow=3), "a workflow is"),
        (lambda: Engine(PAUSE).run().request(), "needs its token ids"),
    ],
)
def test_what_cannot_be_used_is_an_input_fault(act: Any, message: str) -> None:
    with pytest.raises(InputFault, match=message):
        act()


def test_without_a_policy_the_engine_is_alone() -> None:
    engine = Engine(blocks=10)
    outcome = engine.request(request("a"), list(range(64)), now=0.0)
    assert outcome.plan is None and outcome.hints == []
    assert engine.plan(request("b"), now=1.0).directives == ()


def test_its_own_clock() -> None:
    times = iter([5.0, 3.0, 9.0])
    engine = Engine(PAUSE, clock=lambda: next(times))
    for expected in (5.0, 5.0, 9.0):  # a clock that goes back is not followed
        engine.advance()
        assert engine.steering.now == expected


def test_the_adapter_says_what_it_can_do() -> None:
    able = Engine(PAUSE).adapter.capabilities
    assert (able.name, able.verified, able.default, able.ranks_change) == ("memory", "engine-executed", 35, True)
    assert able.tiers == ("gpu", "cpu", "disk") and able.events


def test_a_policy_is_shown_in_a_line() -> None:
    from kvpolicy.service.policies import digest_of

    policy = kvpolicy.load(FLOWS)
    assert repr(policy) == f"<Policy '<text>': 1 rule, 2 workflows, digest {digest_of(policy)[:12]}>"
    assert len(repr(kvpolicy.load("base"))) < 100
    assert "<table>" in policy._repr_html_()


def test_learned_times_are_taken_along_to_another_engine_and_given_to_new_tenants() -> None:
    text = "on tool_call until tool_result { turn { retention: hold p95(tool.duration) else 1s } }\n"
    engine = Engine(text, blocks=100)
    engine.request(request("r1"), list(range(64)), now=0.0)
    engine.finish("r1", tool_calls=["build"], now=1.0)
    engine.request(request("r2"), list(range(64)), now=31.0)
    document = engine.export_learned()

    def held(other: Engine, tenant: str = "default") -> float:
        asked = Request("r", Owner(tenant=tenant, session="new"), 64, 16)
        other.request(asked, list(range(64)), now=100.0)
        other.finish("r", tool_calls=["build"], now=100.0)
        (directive,) = other.plan(asked).directives
        assert isinstance(directive.protected_until, float)
        return directive.protected_until - 100.0

    fresh = Engine(text, blocks=100)
    assert held(fresh) == 1.0
    fresh.load_learned(document)
    fresh.load_learned(document, "third")
    assert (held(fresh), held(fresh, "third"), held(fresh, "other")) == (30.0, 30.0, 1.0)
    fresh.reset_learned()
    assert fresh.export_learned() == Engine(text).export_learned()
    assert held(Engine(text, blocks=100, prior=document), "whoever") == 30.0
    with pytest.raises(InputFault, match="version"):
        fresh.load_learned({**document, "version": 99})
    with pytest.raises(InputFault, match="version"):
        Engine(text, prior={})


def test_a_step_at_a_node_that_the_graph_lacks_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    engine = kvpolicy.Engine("kvflow", blocks=100)
    with engine.run(workflow={"nodes": ["a"], "name": "of one"}, session="s") as run:
        for node in ("a", "b", "b"):
            with run.step(node):
                pass
    assert [record.message for record in caplog.records] == [
        "kvpolicy: the workflow of one has no node 'b' (said once)"
    ]


def test_sizes_that_are_no_numbers_are_told() -> None:
    with pytest.raises(kvpolicy.InputFault, match="blocks: a whole number is needed, not '10'"):
        kvpolicy.Engine("base", blocks="10")  # type: ignore[arg-type]
    with pytest.raises(kvpolicy.InputFault, match=r"block_size: a whole number is needed, not 1\.5"):
        kvpolicy.Engine("base", blocks=10, block_size=1.5)  # type: ignore[arg-type]


def test_an_outcome_shows_what_happened_and_nothing_of_how() -> None:
    outcome = kvpolicy.Engine("base", blocks=10).request({"id": "r", "tokens": 16}, list(range(16)), now=0.0)
    assert repr(outcome).startswith("Outcome(cached=0, stored=[") and "function" not in repr(outcome)
