"""Every form of trace: what a reader makes of it, told by its first line."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path

import pytest

from kvpolicy.request import Owner, Span
from kvpolicy.simulate.interleaving import Interleaving
from kvpolicy.simulate.own import SCHEMA
from kvpolicy.simulate.read import FileTrace
from kvpolicy.simulate.trace import Facts
from tests.simulate.traces_for_tests import data_file, mooncake_rows, read, write


def kinds(spans: tuple[Span, ...]) -> list[tuple[str, int, int | None]]:
    return [(span.kind, span.start, span.end) for span in spans]


@pytest.mark.parametrize("name", ["t.jsonl", "t.jsonl.gz"])
def test_mooncake(name: str, tmp_path: Path) -> None:
    rows = mooncake_rows([[0, 1, 2], [0, 1, 3]])
    rows[1]["input_length"] = 1200  # a partial last block has an id of its own
    calls, facts = read(write(tmp_path / name, rows))
    assert [call.at for call in calls] == [0.0, 1.0]
    assert [call.seen for call in calls] == [0, 2]
    assert calls[0].request.owner == Owner()
    assert calls[0].request.spans == ()
    assert (facts.requests, facts.block_refs, facts.unique_blocks, facts.block_size) == (2, 6, 4, 512)
    assert facts.sessions == 0


def test_the_last_partial_block_may_be_left_out(tmp_path: Path) -> None:
    row = {"timestamp": 0, "input_length": 1025, "output_length": 0, "hash_ids": [1, 2]}
    assert len(read(write(tmp_path / "t.jsonl", [row]))[0]) == 1


def claude_row(tokens: int, ids: list[int], **fields: object) -> dict[str, object]:
    return {"timestamp": 0, "input_length": tokens, "output_length": 9, "block_size": 100, "session_id": "s",
            "tool_tokens": 150, "system_tokens": 50, "hash_ids": ids, **fields}  # fmt: skip


def test_spans_of_a_growing_session(tmp_path: Path) -> None:
    rows = [
        claude_row(300, [1, 2, 3], input_types=["text"], stop="tool_use"),
        claude_row(520, [1, 2, 3, 4, 5], input_types=["tool_result"], stop="tool_use"),
        claude_row(700, [1, 2, 3, 4, 5, 6, 7], input_types=["tool_result"], stop="end_turn"),
        claude_row(800, [1, 2, 3, 4, 5, 6, 7, 8], input_types=["text"], stop="end_turn"),
        claude_row(900, [1, 2, 3, 20, 21, 22, 23, 24, 25], input_types=["tool_result"]),  # rewritten behind block 3
        claude_row(400, [1, 2, 30, 31], input_types=["text"]),  # compacted
    ]
    calls, _ = read(write(tmp_path / "t.jsonl", rows))
    head = [("tools", 0, 150), ("system", 150, 200)]
    assert [kinds(call.request.spans) for call in calls] == [
        [*head, ("turn", 200, 300)],
        [*head, ("turn", 200, 300), ("tool_result", 300, 520)],
        [*head, ("turn", 200, 300), ("tool_result", 300, 700)],
        [*head, ("turn", 200, 300), ("tool_result", 300, 700), ("turn", 700, 800)],
        [*head, ("turn", 200, 300), ("tool_result", 300, 900)],
        [*head, ("turn", 200, 400)],
    ]
    assert [call.answer.tool_calls for call in calls[:3]] == [(None,), (None,), ()]
    assert all(call.request.owner is calls[0].request.owner for call in calls)
    assert [call.request.attributes["turn"] for call in calls] == [1, 1, 1, 2, 2, 3]


def test_models_and_short_side_calls_are_chains_of_their_own(tmp_path: Path) -> None:
    rows = [
        claude_row(300, [1, 2, 3], model="large", input_types=["text"]),
        claude_row(90, [50], model="small", input_types=["text"]),  # too short for tools and system
        claude_row(400, [1, 2, 3, 4], model="large", input_types=["tool_result"]),
    ]
    calls, _ = read(write(tmp_path / "t.jsonl", rows))
    assert kinds(calls[1].request.spans) == [("turn", 0, 90)]
    assert kinds(calls[2].request.spans)[-1] == ("tool_result", 300, 400)


def test_bailian(tmp_path: Path) -> None:
    rows = [
        {"chat_id": 1, "parent_chat_id": -1, "timestamp": 0.25, "type": "text", "turn": 1, "input_length": 30,
         "output_length": 4, "hash_ids": [1, 2]},
        {"chat_id": 7, "parent_chat_id": 1, "timestamp": 9, "type": "text", "turn": 2, "input_length": 48,
         "output_length": 4, "hash_ids": [1, 2, 3]},
    ]  # fmt: skip
    calls, facts = read(write(tmp_path / "t.jsonl", rows))
    assert [call.request.owner.session for call in calls] == ["1", "1"]
    assert [call.at for call in calls] == [0.25, 9.0]
    assert (facts.block_size, facts.sessions) == (16, 1)
    assert calls[1].request.attributes["turn"] == 2


def session_row(name: str, requests: list[dict[str, object]]) -> dict[str, object]:
    return {"id": name, "block_size": 64, "hash_id_scope": "local", "tool_tokens": 64, "system_tokens": 64,
            "requests": requests}  # fmt: skip


def request_row(t: float, blocks: int, **fields: object) -> dict[str, object]:
    return {"t": t, "model": "m", "in": 64 * blocks + 3, "out": 5, "input_types": ["text"], "stop": "tool_use",
            "hash_ranges": [[1, blocks]], **fields}  # fmt: skip


def test_sessions_are_interleaved_with_ids_of_their_own(tmp_path: Path) -> None:
    agent = {"t": 4.0, "agent_id": "a1", "subagent_type": "Explore", "tool_tokens": 64, "system_tokens": 0,
             "requests": [request_row(1.0, 2, hash_ranges=[[90, 91]], stop="end_turn")]}  # fmt: skip
    rows = [
        session_row("one", [request_row(0.0, 3), agent, request_row(9000.0, 4, hash_ids=[1, 2, 3, 4])]),
        session_row("two", [request_row(0.0, 3), request_row(2.0, 3, hash_ranges=[[1, 2], [5, 5]])]),
    ]
    how = Interleaving(seed=3, window_s=100.0, gap_cap_s=60.0)
    calls, facts = read(write(tmp_path / "t.jsonl.gz", rows), how)
    assert [call.at for call in calls] == sorted(call.at for call in calls)
    one = [call for call in calls if call.request.owner.session == "one"]
    two = [call for call in calls if call.request.owner.session == "two"]
    assert [round(call.at - one[0].at, 3) for call in one] == [0.0, 5.0, 65.0]  # the gap is capped at 60 s
    assert not {*one[0].hashes, *one[1].hashes, *one[2].hashes} & {*two[0].hashes, *two[1].hashes}
    assert two[1].seen == 2
    assert one[1].request.owner == Owner(session="one", agent="Explore", branch="a1", parent="one")
    assert one[1].after == ({"event": "agent_end", "session": "one", "agent": "Explore", "branch": "a1"},)
    assert facts.sessions == 2
    again, _ = read(tmp_path / "t.jsonl.gz", how)
    assert [(call.at, call.hashes) for call in again] == [(call.at, call.hashes) for call in calls]
    other, _ = read(tmp_path / "t.jsonl.gz", Interleaving(seed=4, window_s=100.0, gap_cap_s=60.0))
    assert [call.at for call in other] != [call.at for call in calls]


def test_coarse_blocks_name_whole_groups(tmp_path: Path) -> None:
    rows = [session_row("s", [request_row(0.0, 5), request_row(1.0, 9, hash_ranges=[[1, 3], [7, 12]])])]
    calls, facts = read(write(tmp_path / "t.jsonl", rows), Interleaving(coarsen=2))
    assert facts.block_size == 128
    assert [len(call.hashes) for call in calls] == [2, 4]
    assert calls[1].seen == 1  # blocks 1 and 2; the second group differs in its second half


def test_parts_are_apart_and_everything_is_in_one(tmp_path: Path) -> None:
    rows = [session_row(f"s{i}", [request_row(0.0, 3)]) for i in range(40)]
    path = write(tmp_path / "t.jsonl", rows)
    inside = {call.request.owner.session for call in read(path, Interleaving(part="0/4"))[0]}
    outside = {call.request.owner.session for call in read(path, Interleaving(part="!0/4"))[0]}
    assert inside
    assert outside
    assert not inside & outside
    assert len(inside | outside) == 40


def test_the_derived_trace_is_what_the_sessions_give() -> None:
    """`claude-code` can be made again by anybody: same calls, times, spans and prefixes."""
    derived = FileTrace(data_file("claude_code/claude_code_100x4h_seed7.mooncake.jsonl.gz"), "derived")
    sessions = data_file("claude_code/claude_code_sessions.jsonl.gz")
    made = FileTrace(sessions, "made", Interleaving(seed=7, sample=100, coarsen=8))
    count = 0
    for one, other in zip(derived.calls(Facts()), made.calls(Facts()), strict=True):
        assert one.request.owner == other.request.owner
        assert (one.request.tokens, one.request.spans) == (other.request.tokens, other.request.spans)
        assert (round(one.at, 3), len(one.hashes), one.seen) == (other.at, len(other.hashes), other.seen)
        assert one.answer == other.answer
        count += 1
    assert count == 5644


def test_our_own_form(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [
        {"kvpolicy_trace": 1, "block_size": 16, "time_unit": "ms", "label": "made by hand"},
        {"at": 0, "id": "a", "owner": {"session": "s", "agent": "coder"}, "model": "m", "tokens": 40,
         "hashes": ["x", "y"], "spans": [{"kind": "system", "start": 0, "end": 20, "name": "rules"},
                                         {"kind": "turn", "start": 20, "end": 40}],
         "attributes": {"plan": "free"}, "answer": {"stop": "tool_use", "tool_calls": ["grep"], "output_tokens": 3}},
        {"at": 1500, "event": "tool_result", "session": "s", "tool": "grep"},
        {"at": 2000, "tokens": 32, "hashes": ["x", "z"]},
    ]  # fmt: skip
    calls, facts = read(write(tmp_path / "t.jsonl", rows))
    first, second = calls
    assert first.request.id == "a"
    assert first.request.owner == Owner(session="s", agent="coder")
    assert first.request.spans[0] == Span("system", 0, 20, {"name": "rules"})
    assert first.request.attributes == {"plan": "free"}
    assert first.answer.tool_calls == ("grep",)
    assert second.before == ({"at": 1.5, "event": "tool_result", "session": "s", "tool": "grep"},)
    assert (second.at, second.seen) == (2.0, 1)
    assert (facts.label, facts.form) == ("made by hand", "kvpolicy")


def test_the_schema_names_what_the_reader_reads() -> None:
    described = json.dumps(SCHEMA)
    for word in ("kvpolicy_trace", "block_size", "time_unit", "hashes", "spans", "owner", "tool_calls", "tool_result"):
        assert word in described


def test_calls_stream(tmp_path: Path) -> None:
    """The same blocks ten times as often need no more memory."""
    peaks = []
    for repeats in (30, 300):
        path = write(tmp_path / f"{repeats}.jsonl", mooncake_rows([list(range(400))]))
        line = path.read_bytes()
        path.write_bytes(line * repeats)
        tracemalloc.start()
        for _ in FileTrace(path, "t").calls(Facts()):
            pass
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.5 * peaks[0]


def test_rows_out_of_order_are_told(tmp_path: Path) -> None:
    rows = mooncake_rows([[0], [0, 1], [0, 2]])
    rows[1]["timestamp"], rows[2]["timestamp"] = 9000, 4000
    calls, facts = read(write(tmp_path / "t.jsonl", rows))
    assert [call.at for call in calls] == [0.0, 9.0, 9.0]
    assert "earlier than the one before" in facts.notices[0].message
