"""Requests, run states, engines, timelines and traces to try: right ones, whose parts are then changed."""

from __future__ import annotations

import gzip
from itertools import pairwise
from random import Random
from typing import Any

from kvpolicy import words
from tests.fuzz import damage

Row = dict[str, Any]
EVENTS = tuple(words.EVENTS)
KINDS = tuple(words.SPAN_KINDS)
CALLS = (
    ("p95(tool.duration)", "800ms"), ("idle()", "2min"), ("steps_to_next_use()", 3), ("pressure(gpu)", "50%"),
    ("reuse_probability(within 30s)", 0.5), ("hit_density()", 1.5), ("steps_to_next_use()", "never"), ("age()", 3),
    ("eta(tool_result)", "4s"), ("turns_ago()", None), ("best_hold()", "1h"), ("bytes()", "3GiB"), ("hits(turn)", 2),
)  # fmt: skip


def request(chance: Random) -> Row:
    """A request of `kvp plan`."""
    size = chance.choice((1, 16, 16, 512))
    tokens = chance.choice((0, 1, 80, 80, 5000))
    cuts = sorted(chance.randrange(tokens + 1) for _ in range(chance.choice((0, 2, 4, 10))))
    spans = [{"kind": chance.choice(KINDS), "start": one, "end": two} for one, two in pairwise(cuts)]
    if chance.random() < 0.3:
        spans.append({"kind": "output", "start": tokens, "end": None})
    for span in spans:
        if chance.random() < 0.3:
            key, value = chance.choice((("tool", "grep"), ("name", "n"), ("branch", "b2"), ("agent", "a")))
            span[key] = value
    row: Row = {"id": "r1", "owner": owner(chance), "model": "m", "block_size": size, "tokens": tokens, "spans": spans}
    if chance.random() < 0.3:
        row |= {"plan": "free", "turn": 3, "depth": 2, "last_step": True, "node": "n1", "workflow": "w"}
    if chance.random() < 0.2:
        images = [{"start": 0, "length": 48, "digest": "d"}]
        row["extra"] = {"lora": "l", "salt": None, "images": images}
    return row


def owner(chance: Random) -> Row:
    """An owner, stated in part."""
    choices = {"tenant": ("t", "u"), "session": ("s", "s2"), "run": ("r", None), "agent": ("a", "b"), "branch": ("b1",)}
    return {key: chance.choice(values) for key, values in choices.items() if chance.random() < 0.5}


def event(chance: Random, at: float) -> Row:
    """An event with the owner fields it states."""
    row = {"at": at, "event": chance.choice(EVENTS), **owner(chance)}
    if chance.random() < 0.5:
        row |= {"tool": chance.choice(("grep", "ls")), "call": chance.choice(("c1", "c2"))}
    if chance.random() < 0.2:
        row |= chance.choice(({"rank": 2}, {"score": 0.5}, {"node": "n1"}, {"branch": "b2"}, {"status": "done"}))
    return row


def state(chance: Random) -> Row:
    """A run state of `kvp plan`."""
    at, events = 0.0, []
    for _ in range(chance.choice((0, 3, 20))):
        at += chance.choice((0.0, 0.5, 30.0, 4000.0))
        events.append(event(chance, at))
    functions = [{"call": c, "value": v, "span": None} for c, v in chance.sample(CALLS, chance.choice((0, 1, 4)))]
    return {"events": events, "functions": functions, "workflow": workflow(chance)}


def workflow(chance: Random) -> Row | None:
    """A graph of up to 60 nodes, or none."""
    count = chance.choice((0, 2, 4, 60))
    if not count:
        return None
    names = [f"n{i}" for i in range(count)]
    edges = [[chance.choice(names), chance.choice(names)] for _ in range(count * 2)]
    joins = {chance.choice(names): chance.choice(("and", "or"))}
    loops = [{"from": one, "to": two, "at_most": 3} for one, two in edges[:2]]
    return {"nodes": names, "edges": edges, "joins": joins, "loops": loops}


def engine(chance: Random) -> Row:
    """An engine's capabilities."""
    return {
        "name": "e",
        "version": "1",
        "min": chance.choice((0, -100, 1)),
        "max": chance.choice((100, 0, 5, 1 << 31)),
        "default": chance.choice((None, 0, 35)),
        "direction": chance.choice(("larger", "smaller", "unknown")),
        "ttl_unit": chance.choice(("s", "ms", None, "seconds")),
        "zero_means": chance.choice((None, "never", "at once")),
    }


def timeline(chance: Random) -> bytes:
    """Steps of `kvp replay`, a line each, now and then damaged."""
    at, lines = 0.0, []
    damaged = chance.random()
    for number in range(chance.choice((1, 5, 30, 80))):
        at += chance.choice((0.0, 0.0, 0.5, 10.0, 61.0, 4000.0))
        step = _step(chance, at, number)
        if chance.random() < damaged / 8:
            step = damage.document(chance, step, chance.choice((1, 2)))
        lines.append(damage.as_json(chance, step) if chance.random() < damaged / 4 else damage.json.dumps(step))
    data = ("\n".join(lines) + "\n").encode("utf-8", "surrogatepass")
    return damage.raw(chance, data) if chance.random() < 0.05 else data


def _step(chance: Random, at: float, number: int) -> Row:
    step: Row = {"at": at}
    known = f"r{chance.randrange(number + 1)}" if chance.random() < 0.8 else "nobody"
    blocks = [f"{chance.choice('ab')}{i}" for i in range(chance.choice((0, 1, 5)))]
    match chance.randrange(22):
        case 0 | 1 | 2 | 3 | 4 | 5:
            step |= _asked(chance, number)
        case 6 | 7:
            step |= {"do": chance.choice(("finish", "cancel", "preempt", "resume")), "id": known}
            if step["do"] == "finish" and chance.random() < 0.5:
                step |= chance.choice(({"tool_calls": ["grep"]}, {"finished": True}, {"tool_calls": [{"tool": "ls"}]}))
        case 8:
            step |= {"do": "progress", "id": known}
            step |= chance.choice(({"computed": 24}, {"accepted": [1, 2, 3]}, {"accepted": 40}, {"computed": 16}))
        case 9 | 10 | 11:
            step |= {"do": "event", "event": {k: v for k, v in event(chance, at).items() if k != "at"}}
        case 12 | 13:
            wish = chance.choice(
                ({"priority": 80}, {"hold": "60s"}, {"retention": "pin"}, {"ttl": "60s fixed"}, {"retention": "drop"})
            )
            step |= {"do": "claim", "owner": owner(chance), "blocks": blocks, **wish}
            if chance.random() < 0.3:
                step |= {"for": chance.choice(words.LIFETIMES), "max_age": "5min"}
        case 14:
            step |= {"do": "release", "owner": owner(chance), "blocks": chance.choice((None, blocks))}
        case 15 | 16 | 17:
            step |= chance.choice(
                (
                    {"do": "evict", "count": chance.choice((0, 1, 7, 10**6))},
                    {"do": "show", "blocks": blocks},
                    {"do": chance.choice(("stats", "advance", "release_all"))},
                    {"do": "split", "block": chance.choice(("a0", "b3", "r0:2"))},
                )
            )
        case _:
            step |= _of_worker(chance, blocks)
    return step


def _asked(chance: Random, number: int) -> Row:
    named = {key: value for key, value in request(chance).items() if key not in ("tokens", "block_size", "id")}
    step: Row = {"do": "request", **named, "id": f"r{number}"}
    length, family = chance.choice((1, 3, 20, 200)), chance.choice("ab")
    if chance.random() < 0.5:
        step["hashes"] = [f"{family}{i}" for i in range(length)]
    else:
        step["tokens"] = list(range(length * 7))
    step["spans"] = [{"kind": chance.choice(KINDS), "start": 0, "end": length}] if chance.random() < 0.8 else []
    if chance.random() < 0.2:
        step["computed"] = chance.choice((0, 16, 40))
    if chance.random() < 0.2:
        step["key"] = "k"
    return step


def _of_worker(chance: Random, blocks: list[str]) -> Row:
    name = chance.choice(("w0", "w1"))
    match chance.randrange(3):
        case 0:
            row: Row = {"do": "worker", "worker": name, "block_size": chance.choice((None, 16, 32))}
            return row | {"groups": [0, 1], "reannounces": chance.random() < 0.5, "incarnation": "i"}
        case 1:
            told = {
                "type": chance.choice(("stored", "stored", "removed", "cleared")),
                "hashes": blocks,
                "parent": None,
                "medium": chance.choice(("gpu", "cpu")),
                "block_size": 16,
                "tokens": list(range(16 * len(blocks))),
                "via": chance.choice(("live", "replay")),
            }
            return {"do": "kv_event", "worker": name, "rank": 0, "sequence": chance.randrange(6), "event": told}
        case _:
            asked = chance.choice(({"blocks": blocks}, {"tokens": list(range(40))}))
            return {"do": "lookup", "worker": name, "rank": 0, **asked}


def trace(chance: Random) -> bytes:
    """A trace in one of the forms, plain or gzip, now and then damaged."""
    rows = chance.choice((_mooncake, _bailian, _sessions, _own))(chance, chance.choice((1, 5, 40)))
    damaged = chance.random()
    lines = []
    for row in rows:
        changed = damage.document(chance, row, 1) if chance.random() < damaged / 8 else row
        lines.append(damage.as_json(chance, changed) if chance.random() < damaged / 8 else damage.json.dumps(changed))
    data = ("\n".join(lines) + "\n").encode("utf-8", "surrogatepass")
    if chance.random() < 0.05:
        data = damage.raw(chance, data)
    if chance.random() < 0.2:
        data = gzip.compress(data, 1)
        if chance.random() < 0.3:
            data = damage.raw(chance, data)
    return data


def _ids(chance: Random) -> list[int]:
    """Block ids that name all before them: few beginnings, several ways on."""
    name, ids = chance.randrange(2), []
    for _ in range(chance.choice((1, 3, 10))):
        ids.append(name)
        name = 1000 * len(ids) + name % 1000 * 2 + (chance.random() < 0.3)
        name = 1000 * len(ids) + (name % 1000) % 900
    return ids


def _mooncake(chance: Random, count: int) -> list[Row]:
    rows = []
    for i in range(count):
        ids = _ids(chance)
        row: Row = {"timestamp": 700 * i, "input_length": 512 * len(ids) - 3, "output_length": 20, "hash_ids": ids}
        if chance.random() < 0.5:
            row |= {"session_id": chance.choice("st"), "agent": "a", "stop": chance.choice(("tool_use", "end_turn"))}
            row |= {"tool_tokens": 500, "system_tokens": 40, "input_types": ["user", "tool_result"], "think_time": 0.6}
        rows.append(row)
    return rows


def _bailian(chance: Random, count: int) -> list[Row]:
    rows = []
    for i in range(count):
        ids = _ids(chance)
        rows.append(
            {
                "chat_id": i,
                "parent_chat_id": chance.choice((-1, max(i - 1, 0))),
                "timestamp": 1.5 * i,
                "input_length": 16 * len(ids),
                "output_length": 4,
                "type": "text",
                "turn": 1,
                "hash_ids": ids,
            }
        )
    return rows


def _sessions(chance: Random, count: int) -> list[Row]:
    rows = []
    for i in range(count):
        calls: list[Row] = []
        for number in range(chance.choice((1, 4))):
            ids = _ids(chance)
            call: Row = {"t": 5.0 * number, "type": "n", "model": "m", "in": 64 * len(ids), "out": 9, "hash_ids": ids}
            call |= {"stop": "tool_use", "input_types": ["text"], "output_types": ["text", "tool_use"]}
            if chance.random() < 0.2:
                call["hash_ranges"] = [[0, len(call.pop("hash_ids"))]]
            calls.append(call)
        if chance.random() < 0.3:
            inner = {"t": 7.0, "type": "subagent", "agent_id": "x", "subagent_type": "explore", "requests": calls[:1]}
            calls.append(inner)
        rows.append({"id": f"s{i}", "block_size": 64, "tool_tokens": 64, "system_tokens": 64, "requests": calls})
    return rows


def _own(chance: Random, count: int) -> list[Row]:
    rows: list[Row] = [{"kvpolicy_trace": 1, "block_size": 16, "time_unit": "s"}]
    for i in range(count):
        if chance.random() < 0.3:
            rows.append(event(chance, 2.0 * i))
            continue
        ids = _ids(chance)
        tokens = 16 * len(ids)
        spans = [{"kind": chance.choice(KINDS), "start": 0, "end": tokens // 2}]
        answer = {"stop": "tool_use", "tool_calls": ["grep"], "output_tokens": 12}
        row = {"at": 2.0 * i, "id": f"c{i}", "owner": owner(chance), "tokens": tokens, "hashes": ids, "spans": spans}
        rows.append({**row, "answer": answer, "attributes": {"turn": i}})
    return rows
