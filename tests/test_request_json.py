"""What others write as JSON: read into the package's own shapes, or refused in one line that names the key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvpolicy.assumed import Assumption
from kvpolicy.capabilities_json import read_capabilities
from kvpolicy.faults import InputFault
from kvpolicy.policy.model import NEVER, EventPattern, Subject
from kvpolicy.request import Owner, Request, Span
from kvpolicy.request_json import load_json, read_request, read_state

SMALL: dict[str, Any] = {"id": "r1", "block_size": 16, "tokens": 80}


def test_a_whole_request() -> None:
    document = {
        "id": "r1",
        "owner": {"tenant": "t", "session": "s", "run": None, "agent": "coder", "branch": None, "parent": "s0"},
        "model": "m",
        "block_size": 16,
        "tokens": 80,
        "spans": [
            {"kind": "system", "start": 0, "end": 40, "name": "repo_map"},
            {"kind": "tool_result", "start": 40, "end": 80, "tool": "grep", "branch": None, "agent": "writer"},
            {"kind": "output", "start": 80, "end": None},
        ],
        "plan": "free",
        "workflow": "research",
        "node": "writer",
        "turn": 12,
        "depth": 0,
        "last_step": True,
        "extra": {"lora": None, "salt": "x", "images": [{"start": 32, "length": 48, "digest": "d"}]},
        "key": "k1",
    }
    assert read_request(document) == Request(
        "r1",
        Owner("t", "s", None, "coder", None, "s0"),
        80,
        16,
        (
            Span("system", 0, 40, {"name": "repo_map"}),
            Span("tool_result", 40, 80, {"tool": "grep", "agent": "writer"}),
            Span("output", 80, None),
        ),
        "m",
        {"plan": "free", "workflow": "research", "node": "writer", "turn": 12, "depth": 0, "last_step": True},
        {"salt": "x", "images": [{"start": 32, "length": 48, "digest": "d"}]},
        "k1",
        True,
    )


def test_a_small_request() -> None:
    assert read_request(SMALL) == Request("r1", Owner(), 80, 16)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tokens": "80"}, "R.json: tokens: "),
        ({"tokens": 80.5}, "R.json: tokens: "),
        ({"tokens": -1}, "R.json: tokens: "),
        ({"tokens": True}, "R.json: tokens: "),
        ({"block_size": 0}, "R.json: block_size: "),
        ({"tokens": 1 << 39}, "R.json: tokens: 549755813888 tokens are more than 200000 blocks"),
        ({"owner": {"tennant": "t"}}, "R.json: owner.tennant: there is no such key; did you mean tenant?"),
        ({"owner": "t"}, "R.json: owner: "),
        ({"spans": [{"kind": "system", "start": 0, "end": 40}, {"kind": "turn"}]}, "R.json: spans[1].start is missing"),
        ({"spans": [{"kind": "sistem", "start": 0, "end": 40}]}, "R.json: span 0: unknown kind 'sistem'; did you mean"),
        ({"spans": [{"kind": "system", "start": 0, "end": 90}]}, "R.json: span 0: reaches token 90"),
        ({"spans": [{"kind": "turn", "start": 0, "end": 9, "tol": "x"}]}, "R.json: spans[0]: unknown key 'tol'; did"),
        ({"spans": [{"kind": "turn", "start": 0, "end": 9, "tool": 3}]}, "R.json: spans[0]: tool: a string is needed"),
        ({"spans": [{"kind": "turn", "start": 0, "end": 9, "tenant": "x"}]}, "R.json: spans[0].tenant: tenant belongs"),
        ({"turns": 3}, "R.json: unknown key 'turns'; did you mean turn?"),
        ({"turn": "3"}, "R.json: turn: a whole number is needed, not a string"),
        ({"last_step": 1}, "R.json: last_step: true or false is needed, not a number"),
        ({"extra": {"images": [{"length": 3}]}}, "R.json: extra.images[0].start is missing"),
    ],
)
def test_a_fault_of_a_request_names_its_key(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputFault) as fault:
        read_request({**SMALL, **change}, "R.json")
    assert message in str(fault.value)
    assert "\n" not in str(fault.value)


def test_what_is_no_object_is_refused() -> None:
    with pytest.raises(InputFault, match=r"R.json: a JSON object is needed, not a list"):
        read_request([], "R.json")
    with pytest.raises(InputFault, match=r"R\.json: id, block_size and tokens are missing"):
        read_request({}, "R.json")


ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 200) | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                sorted(
                    [
                        "id",
                        "owner",
                        "tokens",
                        "spans",
                        "kind",
                        "start",
                        "end",
                        "extra",
                        "images",
                        "turn",
                        "tool",
                        "events",
                        "name",
                    ]
                )
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(ANY_JSON)
def test_no_document_ends_in_anything_but_an_answer_or_a_fault(document: object) -> None:
    whole = {**SMALL, **document} if isinstance(document, dict) else document
    for read in (read_request, read_state, read_capabilities):
        try:
            read(whole)
        except InputFault as fault:
            assert "\n" not in str(fault).replace("\\n", "")


# --- run state ------------------------------------------------------------------------------------------


def functions(*rows: dict[str, Any]) -> tuple[Assumption, ...]:
    return read_state({"functions": list(rows)}).functions


def test_functions_are_read_in_the_languages_notation() -> None:
    rows = functions(
        {"call": "p95(tool.duration)", "value": "800ms", "span": None},
        {"call": "count(tool.duration)", "value": 4},
        {"call": "steps_to_next_use()", "value": "never", "span": "turn[agent = coder, tokens >= 12k]"},
        {"call": "eta(tool_result)", "value": None, "span": 3},
        {"call": "pressure(hbm)", "value": 0.5, "span": "any"},
        {"call": "hits(turn)", "value": 2, "span": "document"},
    )
    assert [(row.function, row.argument, row.value, row.index) for row in rows] == [
        ("p95", "tool.duration", 0.8, None),
        ("count", "tool.duration", 4.0, None),
        ("steps_to_next_use", None, NEVER, None),
        ("eta", EventPattern("tool_result"), None, 3),
        ("pressure", "gpu", 0.5, None),
        ("hits", "turn", 2.0, None),
    ]
    owner = Owner()
    long, short = (Subject("turn", {"agent": "coder", "tokens": n}, owner) for n in (12_000, 11_999))
    assert rows[2].holds_for(long)
    assert not rows[2].holds_for(short)
    assert rows[4].holds_for(short)
    assert not rows[5].holds_for(short)


def test_a_horizon_is_an_argument_in_seconds() -> None:
    (row,) = functions({"call": "reuse_probability( within 30s )", "value": "40%"})
    assert (row.function, row.argument, row.value) == ("reuse_probability", 30.0, 0.4)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"call": "p95 tool", "value": 1}, "S.json: functions[0]: "),
        ({"call": "p99(tool.duration)", "value": 1}, "S.json: functions[0]: 'p99' is no function"),
        ({"call": "idle()", "value": "5 minuts"}, "S.json: functions[0]: "),
        ({"call": "idle()", "value": "5s } turn { priority: 3"}, "S.json: functions[0]: "),
        ({"call": "idle()", "value": "patience"}, "S.json: functions[0]: "),
        ({"call": "idle()", "value": "5s", "span": "trun"}, "S.json: functions[0]: 'trun' is no span kind"),
        ({"call": "idle()", "value": "5s", "span": "turn[color = red]"}, "'color' is no attribute"),
        ({"call": "max(1s, 2s)", "value": "5s"}, "worked out, not measured"),
        (
            {"call": "p90(tool.duration)", "value": 800},
            "is a duration, and 800 has no unit; write 800s, 800min or 800h, as",
        ),
        (
            {"call": "p90(tool.duration)", "value": "800"},
            "is a duration, and 800 has no unit; write 800s, 800min or 800h",
        ),
        ({"call": "p90(tool.duration)", "value": "80%"}, "is a duration, and '80%' is a percentage; write one such as"),
        ({"call": "p95(tool)", "value": "3s"}, "'tool' is not what it measures; did you mean `tool.duration`?"),
        ({"call": "bytes()", "value": 3}, "'bytes()' is a size in bytes, and 3 has no unit"),
        ({"call": "steps_to_next_use()", "value": 2.5}, "'steps_to_next_use()' is a count, and '2.5' is a number"),
        ({"call": "idle()"}, "S.json: functions[0].value is missing"),
        ({"call": "idle()", "value": 1, "spam": 2}, "S.json: functions[0].spam: there is no such key"),
    ],
)
def test_a_fault_of_a_function_names_its_row(row: dict[str, Any], message: str) -> None:
    with pytest.raises(InputFault) as fault:
        read_state({"functions": [row]}, "S.json")
    assert message in str(fault.value)


def test_the_key_that_was_meant_is_named() -> None:
    with pytest.raises(InputFault, match=r"S\.json: functons: there is no such key; did you mean functions\?"):
        read_state({"functons": []}, "S.json")


# --- capabilities ---------------------------------------------------------------------------------------


def test_a_default_that_is_not_stated_is_ours_in_the_engines_direction() -> None:
    assert read_capabilities({"name": "e", "min": 0, "max": 99}).default == 35
    assert read_capabilities({"name": "e", "min": 0, "max": 100, "direction": "smaller"}).default == 65
    assert read_capabilities({"name": "e", "min": 50, "max": 100}).default == 50


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"direction": "up"}, "direction: write larger, smaller or unknown, not 'up'"),
        ({"min": 5, "max": 1}, "E.json: min 5 is above max 1"),
        ({"default": 200}, "E.json: default 200 is outside 0 to 100"),
        ({"ttl_unit": "fortnights"}, "E.json: ttl_unit: 'fortnights' is not a unit"),
        ({"max": "high"}, "E.json: max: "),
    ],
)
def test_a_fault_of_capabilities_is_named(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputFault) as fault:
        read_capabilities({"name": "e", **change}, "E.json")
    assert message in str(fault.value)


# --- files ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "empty; a JSON object is needed"),
        (b'{"id": 1,\n "tokens" 3}', ":2:11: not JSON"),
        (b"\x00\xff\xfe\x01", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b'{"tokens": Infinity}', "not JSON"),
    ],
)
def test_a_file_that_is_no_json_is_named_with_the_place(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "R.json"
    path.write_bytes(content)
    with pytest.raises(InputFault) as fault:
        load_json(str(path))
    assert str(fault.value).startswith(str(path))
    assert message in str(fault.value)
