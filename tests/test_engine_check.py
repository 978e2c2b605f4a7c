"""What `kvp check --engine` tells agrees with what lowering a plan loses: the same scale, seen from the text."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kvpolicy
from kvpolicy import words
from kvpolicy.adapter import Capabilities, level
from kvpolicy.capabilities_json import read_capabilities
from kvpolicy.cli import main as dispatcher
from kvpolicy.engine_check import check_engine, find_engine
from kvpolicy.faults import InputFault
from kvpolicy.language.load import packaged_names
from kvpolicy.lowering import lower
from kvpolicy.plan import plan
from kvpolicy.policy.snapshot import Snapshot
from kvpolicy.request_json import read_request

KINDS = ("system", "tools", "document", "turn")


@st.composite
def engines(draw: st.DrawFn) -> Capabilities:
    low = draw(st.integers(0, 5))
    high = low + draw(st.sampled_from((1, 3, 10, 50, 94, 100)))
    return Capabilities(
        "E",
        lowest=low,
        highest=high,
        default=draw(st.integers(low, high)),
        direction=draw(st.sampled_from(("larger", "larger", "smaller", "unknown"))),
        unit_s=draw(st.sampled_from((0.001, 1.0, 60.0, None))),
    )


@st.composite
def policies(draw: st.DrawFn) -> str:
    lines = []
    for kind in KINDS:
        parts = []
        if draw(st.booleans()):
            parts.append(f"priority: {draw(st.sampled_from((0, 1, 20, 34, 36, 40, 60, 61, 90, 99, 100)))}")
        if draw(st.integers(0, 2)) == 0:
            parts.append(f"ttl: {draw(st.sampled_from(('250ms', '90s', '10min')))}")
        retention = draw(st.sampled_from(("", "", "hold 30s", "drop")))
        if retention:
            parts.append(f"retention: {retention}")
        if parts:
            lines.append(f"{kind} {{ {'  '.join(parts)} }}")
    return "\n".join(lines or ["turn { priority: 40 }"]) + "\n"


def request_of(policy: kvpolicy.Policy) -> object:
    spans = [{"kind": kind, "start": 32 * i, "end": 32 * (i + 1)} for i, kind in enumerate(KINDS)]
    owner = {"tenant": "t", "session": "s"}
    return read_request(
        {"id": "r", "owner": owner, "model": "m", "block_size": 16, "tokens": 128, "spans": spans}, "request"
    )


@given(policies(), engines())
def test_what_lowering_loses_is_told_before(text: str, engine: Capabilities) -> None:
    policy = kvpolicy.load(text)
    told = {fault.code for fault in check_engine(policy, engine)}
    request = request_of(policy)
    lost = {loss.code for loss in lower(plan(policy, request, Snapshot(), 0.0), request, engine).losses}
    foretold = {
        "DIRECTION_UNKNOWN": {"KVP301"},
        "UNSUPPORTED": {"KVP301"},
        "CANNOT_RANK_BELOW_DEFAULT": {"KVP302"},
        "CLIPPED": {"KVP303", "KVP304"},
    }
    for code in lost & foretold.keys():
        assert told & foretold[code], (code, told)


@given(policies(), engines())
def test_what_is_told_of_ranks_is_so(text: str, engine: Capabilities) -> None:
    """Each rank named in a message is at that level on that engine."""
    policy = kvpolicy.load(text)
    for fault in check_engine(policy, engine):
        assert fault.place.line <= text.count("\n")
        assert fault.fix
        if fault.code == "KVP302":
            rank = 0 if "a drop" in fault.message else int(fault.message.split("priority ")[1].split(" ")[0])
            assert rank < words.DEFAULT_PRIORITY
            assert level(rank, engine) == engine.default
        if fault.code == "KVP303" and "become one level" in fault.message:
            ranks = fault.message.split("priorities ")[1].split(" become")[0].split(" and ")
            assert len({level(int(rank), engine) for rank in ranks}) == 1
            assert len(set(ranks)) > 1


@pytest.mark.parametrize("name", packaged_names())
def test_the_embedded_engine_honours_all_of_the_pack(name: str) -> None:
    assert check_engine(kvpolicy.load(name), find_engine("memory")) == ()


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"name": "e", "tiers": ["gpu", "tape"]}, "tape"),
        ({"name": "e", "granularity": "block"}, "granularity"),
        ({"name": "e", "min": 5, "max": 1}, "min"),
    ],
)
def test_an_engine_that_cannot_be_is_refused(document: dict[str, object], said: str) -> None:
    with pytest.raises(InputFault, match=said):
        read_capabilities(document)


def test_the_command_tells_it_beside_the_rest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    policy, engine = tmp_path / "a.kvp", tmp_path / "e.json"
    policy.write_text("system { priority: 90 }\nturn { priority: 20 }\n")
    engine.write_text(json.dumps({"name": "e", "min": 0, "max": 99, "default": 0, "direction": "larger"}))
    assert dispatcher.main(["check", str(policy), "--engine", str(engine), "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    (row,) = document["files"][0]["diagnostics"]
    assert (row["code"], row["name"], row["line"]) == ("KVP302", "no-rank-below-default", 2)
    assert (document["errors"], document["warnings"]) == (0, 1)
    assert dispatcher.main(["check", str(policy), "--engine", "memory"]) == 0
    assert dispatcher.main(["check", str(policy), "--engine", "nowhere"]) == 2
    assert "nowhere" in capsys.readouterr().err
    policy.write_text("turn { priority: 20 }\nturn { priority: 30 }\n")
    assert dispatcher.main(["check", str(policy), "--engine", str(engine), "--format", "json"]) == 1
    rows = json.loads(capsys.readouterr().out)["files"][0]["diagnostics"]
    assert [row["code"] for row in rows] == ["KVP201"]
