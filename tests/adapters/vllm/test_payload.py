"""What the vLLM adapter writes is what its engine side reads: the same claims with the same clocks."""

from __future__ import annotations

import json
from dataclasses import replace
from math import inf

import pytest

from kvpolicy.adapter import find_adapter
from kvpolicy.channel.payload import changed, read
from kvpolicy.directive import Directive, Plan, Retention, TierRung
from kvpolicy.faults import InputFault
from kvpolicy.request import Owner, Request, Span

REQUEST = Request(
    "r1",
    Owner("t", session="s", agent="coder"),
    96,
    16,
    (Span("system", 0, 40), Span("turn", 40, 90), Span("output", 96, None)),
)


def directive(span: int, **changes: object) -> Directive:
    base: dict[str, object] = {
        "span": span,
        "kind": REQUEST.spans[span].kind,
        "start": REQUEST.spans[span].start,
        "end": REQUEST.spans[span].end,
        "priority": 90,
        "retention": Retention(),
        "protected_until": None,
        "expires": None,
        "ttl": None,
        "ttl_fixed": False,
        "lifetime": "session",
    }
    return Directive(**{**base, **changes})  # type: ignore[arg-type]


def test_what_is_written_is_read_back_on_another_clock() -> None:
    plan = Plan(
        "r1",
        100.0,
        (
            directive(0, retention=Retention("pin"), protected_until=inf, lifetime="agent"),
            directive(
                1, ttl=60.0, ttl_fixed=True, retention=Retention("hold", until="tool_result"), protected_until=130.0
            ),
            directive(2, priority=20, hold_after_release=5.0, drop_by_kind=False),
        ),
        "tenant",
        None,
    )
    lowered = find_adapter("vllm").lower(plan, REQUEST)
    told = read(lowered.payload["vllm_xargs"]["kvpolicy"], "r1", 96, 16, 7.0)
    assert told.request.owner == REQUEST.owner
    assert [(s.kind, s.start, s.end) for s in told.request.spans] == [(s.kind, s.start, s.end) for s in REQUEST.spans]
    system, turn, output = (told.directives[n] for n in range(3))
    assert (system.protected_until, system.lifetime, system.priority) == (inf, "agent", 90)
    assert (turn.ttl, turn.ttl_fixed, turn.protected_until, turn.retention.until) == (60.0, True, 37.0, "tool_result")
    assert (output.priority, output.hold_after_release, output.drop_by_kind) == (20, 5.0, False)
    assert lowered.answer["status"] == "accepted"


def test_whose_tool_calls_are_open_is_told() -> None:
    plan = Plan("r1", 0.0, (), "tenant", None)
    for waits in ((), ("r0",), ("r0", None)):
        lowered = find_adapter("vllm").lower(plan, replace(REQUEST, waits=waits))
        assert read(lowered.payload["vllm_xargs"]["kvpolicy"], "r1", 96, 16, 7.0).request.waits == waits


def test_what_vllm_cannot_do_is_a_loss() -> None:
    plan = Plan("r1", 0.0, (directive(0, tier=(TierRung("cpu", 30.0),), prefetch=True),), "tenant", None)
    lowered = find_adapter("vllm").lower(plan, REQUEST)
    assert [loss.code for loss in lowered.losses] == ["CLIPPED", "CLIPPED"]
    assert lowered.answer["status"] == "clipped"


@pytest.mark.parametrize(
    ("told", "place"),
    [
        ("{", "kvpolicy"),
        ({"spans": [{"start": "0"}]}, "spans[0]"),
        ({"spans": [{"kind": "turn", "start": 0, "end": 16, "priority": -1}]}, "spans[0].priority"),
        ({"spans": [{"kind": "turn", "start": 0, "end": 16, "ttl": -5}]}, "spans[0].ttl"),
        ({"spans": [{"kind": "turn", "start": 0, "end": 16, "for": "ever"}]}, "spans[0].for"),
        ({"owner": ["s"]}, "owner"),
        ({"spans": [{"kind": "turn", "start": 0, "end": 16, "protected_for": 5, "ends": "soon"}]}, "spans[0].ends"),
        ({"spans": [{"kind": "turn", "start": 0, "end": 16, "protected_for": 5, "ends": True}]}, "spans[0].ends"),
        ({"waits": True}, "waits"),
        ({"waits": [1]}, "waits"),
    ],
)
def test_what_cannot_be_read_names_its_place(told: object, place: str) -> None:
    text = told if isinstance(told, str) else json.dumps(told)
    with pytest.raises(InputFault) as fault:
        read(text, "r1", 96, 16, 0.0)
    assert place in str(fault.value)


def test_a_message_s_null_takes_away_and_a_missing_key_leaves() -> None:
    old = directive(1, ttl=60.0, retention=Retention("hold", until="tool_result"), protected_until=130.0, priority=70)
    assert changed(old, {"priority": 80}, 100.0) == replace(old, priority=80)
    assert changed(old, {"ttl": None}, 100.0) == replace(old, ttl=None)
    assert changed(old, {"hold": None}, 100.0) == replace(old, protected_until=None, retention=Retention())
    pinned = changed(old, {"protected": True}, 100.0)
    assert (
        changed(pinned, {"hold": None}, 100.0)
        == pinned
        == replace(old, protected_until=inf, retention=Retention("pin"))
    )
    held = changed(directive(1), {"hold": 5.0}, 100.0)
    assert (held.protected_until, str(held.retention)) == (105.0, "hold 5s")
    assert changed(held, {"hold": None}, 101.0) == directive(1)
