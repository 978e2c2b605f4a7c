"""The keys that others script against: every JSON document has them, with values of the kind that was promised.

A shape names what must be there; more keys may come, none may go. `None` in a tuple: the value may be null.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kvpolicy.cli import main as dispatcher

NUMBER = (int, float)
TEXT = (str, None)
TIME = (int, float, str, None)

POLICY = """\
quick: turn { priority: 80 }
slow: turn[agent = coder] { ttl: 5min }
on tool_call until tool_result { held: turn when idle() < 1min { priority: 90  retention: hold 20s  tier: gpu } }
system { priority: 90 }
workflow w { agent a, b
  a -> b
  loop b -> a at most 3 }
test "right" { given turn  expect turn { priority: 80 } }
test "wrong" { given turn  expect turn { priority: 40 by slow } }
"""
REQUEST = {
    "id": "r1",
    "owner": {"tenant": "t", "session": "s", "run": None, "agent": "coder", "branch": None},
    "model": "m",
    "block_size": 16,
    "tokens": 80,
    "spans": [{"kind": "system", "start": 0, "end": 40, "name": "head"}, {"kind": "output", "start": 80, "end": None}],
}
STATE = {"events": [{"at": 0.0, "event": "tool_call", "tool": "grep", "call": "c1", "session": "s"}]}
ROWS = [{"timestamp": i, "input_length": 1024, "output_length": 1, "hash_ids": [0, i % 3 + 1]} for i in range(6)]
STEPS: list[dict[str, Any]] = [
    {"at": 0, "do": "request", "id": "r1", "owner": {"session": "s"}, "tokens": list(range(64)), "spans": []},
    {"at": 1, "do": "finish", "id": "r1"},
    {"at": 2, "do": "event", "event": {"event": "turn_end", "session": "s"}},
    {"at": 3, "do": "claim", "owner": {"session": "s"}, "blocks": ["r1:0"], "priority": 80, "ttl": "60s fixed"},
    {"at": 4, "do": "show", "blocks": ["r1:0"]},
    {"at": 5, "do": "stats"},
    {"at": 6, "do": "evict", "count": 1},
    {"at": 7, "do": "release_all"},
]

DIAGNOSTIC = {"code": str, "name": str, "severity": str, "line": int, "column": int, "message": str, "notes": [
    {"line": int, "column": int, "message": str}
]}  # fmt: skip
CHECK = {"files": [{"file": str, "diagnostics": [DIAGNOSTIC]}], "errors": int, "warnings": int}
TEST = {
    "tests": [{"file": str, "name": str, "passed": bool, "rows": [
        {"span": str, "property": str, "expected": object, "got": object, "rule": TEXT}
    ]}],
    "passed": int,
    "failed": int,
    "coverage": {"decided": int, "of": int, "never": [str]},
}  # fmt: skip
PROPERTY = {
    "value": object, "rule": TEXT, "layer": TEXT, "file": TEXT, "line": (int, None), "limited_by": TEXT,
    "beaten": [{"rule": str, "because": str}], "not_candidates": [{"rule": str, "because": str}],
}  # fmt: skip
EXPLAIN = {"span": {"kind": str, "agent": str}, "properties": {"priority": PROPERTY}, "sentences": [str]}
PLAN = {
    "directives": [{
        "span": int, "kind": str, "start": int, "end": (int, None), "priority": int, "retention": str,
        "protected_until": TIME, "expires": TIME, "ttl": TEXT, "for": str, "prefetch": object, "admit": bool,
        "replicas": object, "place": str, "rules": dict,
    }],
    "blocks": [{
        "index": int, "full": bool, "span": int, "straddles": bool, "rank": int, "protected": bool,
        "held_for": (int, None),
    }],
    "spans": [{"kind": str, "full_blocks": int, "owned_blocks": int}],
    "share": str,
    "valid_until": TIME,
    "notices": [{"code": str, "message": str}],
}  # fmt: skip
ENGINE = {"name": str, "version": TEXT, "verified": str, "payload": dict, "losses": [{"code": str, "message": str}]}
GRAPH = {
    "nodes": [{"name": str, "steps_to_next_use": (int, str)}], "edges": [list], "loops": [list], "diagnostics": list,
}  # fmt: skip
SIMULATE = {
    "trace": {
        "requests": int, "block_refs": int, "unique_blocks": int, "block_size": int, "sessions": int, "sha256": str,
    },
    "runs": [{
        "policy": str, "baseline": bool, "capacity_blocks": int, "block_refs": int, "block_hits": int,
        "hit_ratio": NUMBER, "prompt_tokens": int, "cached_tokens": int, "uncached_tokens": int,
        "recomputed_tokens": int, "cost": NUMBER, "evictions": int, "moved_bytes": int,
        "gap_closed": (int, float, None), "wall_s": NUMBER,
    }],
    "notices": [{"code": str, "message": str}],
}  # fmt: skip
ANSWERS: dict[str, dict[str, Any]] = {
    "request": {"cached_tokens": int, "stored": [str], "evicted": list, "hints": list},
    "finish": {},
    "event": {"hints": list, "resident": list, "missing": list},
    "claim": {"hints": [{"status": str}], "resident": list, "missing": list},
    "show": {"blocks": [{
        "rank": int, "protected": bool, "dropped": bool, "tier": TEXT, "evictable": bool, "state": str,
        "owners": object, "claims": [{"owner": dict, "priority": int, "expires": TIME}],
    }]},
    "stats": {
        "owners": int, "claims": int, "protected": int, "requests_remembered": int, "top_band_share": NUMBER,
    },
    "evict": {"evicted": [str]},
    "release_all": {},
}  # fmt: skip


def fits(value: Any, shape: Any, at: str = "$") -> None:
    """Fail where a document lacks a key or has a value of another kind. A list's shape holds for every row of it."""
    if isinstance(shape, dict):
        assert isinstance(value, dict), f"{at} is {value!r}"
        for key, inner in shape.items():
            assert key in value, f"{at} lacks {key}: {sorted(value)}"
            fits(value[key], inner, f"{at}.{key}")
    elif isinstance(shape, list):
        assert isinstance(value, list), f"{at} is {value!r}"
        for index, row in enumerate(value):
            fits(row, shape[0], f"{at}[{index}]")
    else:
        kinds = shape if isinstance(shape, tuple) else (shape,)
        wanted = tuple(type(None) if kind is None else kind for kind in kinds)
        assert isinstance(value, wanted), f"{at} is {value!r}"
        assert bool in kinds or object in kinds or not isinstance(value, bool), f"{at} is {value!r}"


@pytest.fixture
def said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs a command in a folder with the files above; its status and its one document."""
    (tmp_path / "p.kvp").write_text(POLICY)
    (tmp_path / "bad.kvp").write_text("a: turn { priority: 3 }\nb: turn { priority: 5 }\ndocument { ttl: 300 }\n")
    (tmp_path / "two.kvp").write_text("a: turn { priority: 3 }\nb: turn { priority: 5 }\n")
    (tmp_path / "r.json").write_text(json.dumps(REQUEST))
    (tmp_path / "s.json").write_text(json.dumps(STATE))
    for name, rows in (("trace.jsonl", ROWS), ("steps.jsonl", STEPS)):
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    monkeypatch.chdir(tmp_path)

    def call(words: str, *more: str) -> tuple[int, str]:
        status = dispatcher.main([*words.split(), *more, "--format", "json"])
        return status, capsys.readouterr().out

    return call


def test_check(said: Any) -> None:
    status, out = said("check two.kvp")
    fits(json.loads(out), CHECK)
    (found,) = json.loads(out)["files"][0]["diagnostics"]
    assert (status, found["code"], found["name"]) == (1, "KVP201", "two-rules-disagree")
    assert found["witness"] == {"kind": "turn"}
    assert isinstance(found["fix"], str)
    status, out = said("check p.kvp")
    assert (status, json.loads(out)["errors"]) == (0, 0)


def test_test(said: Any) -> None:
    status, out = said("test p.kvp")
    found = json.loads(out)
    fits(found, TEST)
    assert (status, found["passed"], found["failed"]) == (1, 1, 1)
    assert found["tests"][1]["rows"][0] | {"line": 0} == {
        "span": "turn", "property": "priority", "expected": 40, "got": 80, "rule": "quick", "expected_rule": "slow",
        "line": 0,
    }  # fmt: skip


def test_explain(said: Any) -> None:
    call = ("--span", "turn[agent=coder, tokens=12k]", "--at", "tool_call[tool=grep]", "--assume", "idle()=1s")
    status, out = said("explain p.kvp", *call)
    found = json.loads(out)
    fits(found, EXPLAIN)
    assert status == 0
    assert found["span"] == {"kind": "turn", "agent": "coder", "tokens": 12000}
    assert found["properties"]["retention"]["value"] == "hold 20s"
    assert found["properties"]["priority"]["beaten"] == [{"rule": "quick", "because": "narrower"}]
    assert json.loads(said("explain p.kvp", "--span", "turn")[1])["properties"]["priority"]["not_candidates"] == [
        {"rule": "held", "because": "interval"}
    ]


def test_plan(said: Any) -> None:
    status, out = said("plan p.kvp --request r.json --state s.json --now 1")
    found = json.loads(out)
    fits(found, PLAN)
    assert status == 0
    assert [row["full_blocks"] for row in found["spans"]][:1] == [2]
    assert len(found["blocks"]) == 5
    Path("engine.json").write_text(json.dumps({"name": "e", "version": "1", "min": 0, "max": 100}))
    fits(json.loads(said("plan p.kvp --request r.json --engine engine.json")[1])["engine"], ENGINE)


def test_graph(said: Any) -> None:
    status, out = said("graph p.kvp")
    fits(json.loads(out), GRAPH)
    assert status == 0
    assert json.loads(out)["edges"] == [["a", "b"], ["b", "a"]]


def test_simulate(said: Any) -> None:
    status, out = said("simulate trace.jsonl --policy lru --policy p.kvp --capacity 2,3")
    found = json.loads(out)
    fits(found, SIMULATE)
    assert status == 0
    assert [(run["policy"], run["baseline"], run["capacity_blocks"]) for run in found["runs"]] == [
        ("lru", True, 2), ("p.kvp", False, 2), ("lru", True, 3), ("p.kvp", False, 3),
    ]  # fmt: skip


def test_replay_answers_one_line_a_step(said: Any) -> None:
    status, out = said("replay steps.jsonl --policy p.kvp --blocks 8")
    answers = [json.loads(line) for line in out.splitlines()]
    assert status == 0
    assert [(a["step"], a["at"], a["do"]) for a in answers] == [(i, s["at"], s["do"]) for i, s in enumerate(STEPS, 1)]
    for answer in answers:
        fits(answer, ANSWERS[answer["do"]], answer["do"])


def test_a_shape_refuses_what_it_does_not_name() -> None:
    for value, shape in (({}, {"a": int}), ({"a": True}, {"a": int}), ({"a": "x"}, {"a": [int]}), ([None], [str])):
        with pytest.raises(AssertionError):
            fits(value, shape)
