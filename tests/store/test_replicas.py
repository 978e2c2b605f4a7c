"""Several replicas, each a process, over one Redis: they agree, and one that is killed leaves nothing that stays."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from pathlib import Path

from kvpolicy.policy.model import NEVER
from kvpolicy.request import Owner, Request
from kvpolicy.store.contract import Gap
from kvpolicy.store.memory import MemoryStore
from kvpolicy.store.record import Record
from kvpolicy.store.replica import Replica, answer_record, apply, cancel_record, event_record, request_record
from kvpolicy.workflow.events import Event
from kvpolicy.workflow.state import RunState
from tests.store.conftest import Open
from tests.store.servers import Server, until

ROOT = Path(__file__).resolve().parents[2]
STEPS, REPLICAS = 300, 3


def start(*arguments: str) -> subprocess.Popen[str]:
    """A replica's process."""
    command = [sys.executable, "-m", "tests.store.worker", *arguments]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def test_replicas_agree(server: Server, prefix: str, open_store: Open) -> None:
    all_of_them = STEPS * REPLICAS + STEPS // 5  # what all three told counts once
    names = [f"replica{number}" for number in range(REPLICAS)]
    running = [start("tell", server.url, prefix, name, str(STEPS), str(all_of_them)) for name in names]
    try:
        answers = [json.loads(process.communicate(timeout=90)[0]) for process in running]
    finally:
        for process in running:
            process.kill()
            process.wait()
    assert [answer["counters"]["applied"] for answer in answers] == [all_of_them] * REPLICAS
    assert "gaps" not in answers[0]["counters"]
    assert len({answer["of"] for answer in answers}) == 1
    assert answers[0]["rows"] > 10 and answers[0]["tools"] == 1
    late = Replica(open_store(server.url), RunState())  # one that comes later reads what is kept
    until(lambda: late.catch_up() is not None and late.counters["applied"] == all_of_them)


def test_a_killed_replica_leaves_nothing_that_stays(own_server: Server, prefix: str, open_store: Open) -> None:
    process = start("hold", own_server.url, prefix, "victim")
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    store = open_store(own_server.url)
    until(lambda: store.status().replicas == 2)
    process.kill()
    process.wait()
    process.stdout.close()
    with contextlib.closing(own_server.client()) as client:
        ttls = {key: int(client.pttl(key)) for key in client.scan_iter()}  # type: ignore[arg-type]
        assert ttls and all(ttl > 0 for ttl in ttls.values()), ttls
    until(lambda: store.enter("t", "running", "me", 1, 60).granted)
    until(lambda: store.pinned("t", "s") is None)
    until(lambda: store.begin("t", "k", 60).first)
    until(lambda: store.kept("residency", "t") == ())
    with contextlib.closing(own_server.client()) as client:
        live = f"{prefix}:{{{prefix}.b}}:live"
        # Its time as a replica ends like everything else; here it is made shorter than its ten seconds.
        client.zadd(live, {b"victim": 1})
    until(lambda: store.status().replicas == 1)


# --- records and run states -----------------------------------------------------------------------------------

S = Owner("t", "s", "r", "a")


def replica() -> Replica:
    return Replica(MemoryStore(), RunState())


def test_a_document_ends_with_its_own_time_whatever_another_replica_keeps(server: Server, open_store: Open) -> None:
    one, two = open_store(server.url), open_store(server.url)
    one.keep("residency", "t", "long", {"n": 1}, ttl=60)
    two.keep("residency", "t", "short", {"n": 2}, ttl=0.3)
    until(lambda: [document.source for document in two.kept("residency", "t")] == ["long"])
    one.keep("residency", "t", "later", {"n": 3}, ttl=60)
    for store in (one, two):
        assert {document.source for document in store.kept("residency", "t")} == {"long", "later"}


def test_a_run_state_told_by_records_is_the_one_told_directly() -> None:
    told, direct = replica(), RunState()
    request = Request("r1", S, 100, 16, model="m", attributes={"node": "writer", "turn": 2})
    told.tell(request_record(request, 1.0))
    direct.arrive(request, 1.0)
    told.tell(answer_record(request, 2.0, tool_calls=["grep", ("ls", "c2")], output_tokens=7))
    direct.answer(request, 2.0, tool_calls=["grep", ("ls", "c2")], output_tokens=7)
    assert told.state.phase(S) == direct.phase(S) == "tool_pause"
    event = Event(5.0, "tool_result", {"tenant": "t", "session": "s", "call": "c2"})
    told.tell(event_record(event))
    direct.observe(event)
    next_one = Request("r2", S, 120, 16)
    told.tell(request_record(next_one, 6.0, results=["grep"]))
    direct.arrive(next_one, 6.0, ["grep"])
    assert told.state.phase(S) == direct.phase(S) == "running"
    told.tell(cancel_record(next_one, 7.0))
    direct.cancel("r2", 7.0)
    told.tell(answer_record(next_one, 8.0, finished=True))
    direct.answer(next_one, 8.0, finished=True)
    for state in (told.state, direct):
        assert state.phase(S) == "human_pause" and state.idle_since(S) == 8.0
    assert told.state.learned.times("t").tools.sorted == direct.learned.times("t").tools.sorted == [3.0, 4.0]
    assert NEVER is not None


def test_records_that_do_not_fit_are_counted_and_stop_nothing() -> None:
    one = replica()
    for body in ({}, {"event": "gossip", "attributes": []}, {"event": "tool_call", "attributes": [["nonsense", 1]]}):
        one.tell(Record("event", S, body))
    one.tell(Record("answer", S, {"id": "r", "calls": [["only a name"]]}))
    one.tell(Record("request", S, {"id": "r", "tokens": "many"}))
    one.tell(Record("claim", S, {"anything": 1}))
    one.tell(event_record(Event(1.0, "turn_end"), S))
    assert one.counters["refused"] == 5 and one.counters["applied"] == 2
    assert one.state.phase(S) == "human_pause"


def test_records_carry_no_text_of_a_prompt() -> None:
    request = Request("r1", S, 100, 16, attributes={"node": "n", "secret text": "of the prompt"}, key="k")
    record = request_record(request, 1.0)
    assert "prompt" not in repr(record) and record.key == "request:k"


def test_where_records_were_lost_the_runs_are_forgotten() -> None:
    store = MemoryStore(keep=3)
    one = Replica(store, RunState())
    one.tell(answer_record(Request("r1", S, 100, 16), 1.0, tool_calls=["grep"]))
    assert one.state.phase(S) == "tool_pause"
    for number in range(5):
        store.append(event_record(Event(2.0 + number, "turn_start"), Owner("t", f"s{number}")))
    gone = one.catch_up()
    assert S in gone and one.counters["gaps"] == 1
    assert S not in one.state.owners()
    assert {owner.session for owner in one.state.owners()} == {"s2", "s3", "s4"}


def test_a_gap_in_one_shard_leaves_the_others_alone() -> None:
    class Sharded(MemoryStore):
        def __init__(self) -> None:
            super().__init__()
            self.shards = 8
            self.gap: list[Record | Gap] = []

        def take(self, limit: int = 1000) -> list[Record | Gap]:
            taken, self.gap = self.gap or super().take(limit), []
            return taken

    store = Sharded()
    one = Replica(store, RunState())
    for number in range(40):
        one.tell(event_record(Event(1.0, "turn_end"), Owner("t", f"s{number}")))
    store.gap = [Gap(3, 5, "trimmed")]
    gone = one.catch_up()
    assert 0 < len(gone) < 20
    assert len(one.state.owners()) == 40 - len(gone)
    store.gap = [Gap(4, None, "the stream is gone")]
    assert one.catch_up() == () and len(one.state.owners()) == 40 - len(gone)
    assert one.counters["gaps"] == 2


def test_apply_says_who_is_to_be_planned_again() -> None:
    state = RunState()
    apply(state, event_record(Event(1.0, "turn_end"), S))
    assert apply(state, event_record(Event(2.0, "turn_start", {"tenant": "t"}))) == (S,)
