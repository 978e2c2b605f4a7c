"""One replica as a process of its own: `python -m tests.store.worker TASK URL PREFIX NAME …`."""

from __future__ import annotations

import json
import random
import sys
import time
from hashlib import sha256
from typing import Any

from kvpolicy.policy.model import EventPattern, IntervalPattern, Subject
from kvpolicy.request import Owner, Request
from kvpolicy.store.redis import RedisStore
from kvpolicy.store.replica import Replica, answer_record, event_record, request_record
from kvpolicy.store.settings import Settings
from kvpolicy.workflow.events import Event
from kvpolicy.workflow.state import RunState

PATTERNS = [
    IntervalPattern(EventPattern("tool_call"), EventPattern("tool_result")),
    IntervalPattern(EventPattern("turn_end"), EventPattern("turn_start")),
]


def digest(state: RunState) -> dict[str, Any]:
    """Everything that a replica knows of its runs, as far as rules can read it."""
    rows = []
    for owner in sorted(state.owners(), key=repr):
        subject = Subject("turn", {"tokens": 100}, owner)
        openings = [repr(state.opening(pattern, subject)) for pattern in PATTERNS]
        rows.append([repr(owner), state.phase(owner), state.idle_since(owner), *openings])
    learned = [state.learned.export(tenant) for tenant in ("t", "u")]
    return {
        "rows": len(rows),
        "of": sha256(json.dumps([rows, learned], sort_keys=True).encode()).hexdigest(),
        "tools": len(learned[0]["tool"]),
    }


def tell(store: RedisStore, name: str, steps: int, until: int) -> None:
    """Tell `steps` things about runs that all replicas tell things about; print what is known after `until` of all."""
    replica = Replica(store, RunState(PATTERNS))
    chance = random.Random(name)
    for step in range(steps):
        session = chance.randrange(12)
        owner = Owner(chance.choice("tu"), f"s{session}", f"r{session % 3}" if session % 2 else None)
        request = Request(f"{name}-{step}", owner, 100 + step, 16)
        kind = chance.randrange(4)
        if kind == 0:
            replica.tell(request_record(request, store.now()))
        elif kind == 1:
            calls = [("grep", f"{name}-{step}")]
            replica.tell(answer_record(request, store.now(), tool_calls=calls))
        elif kind == 2:
            fields = {"tenant": owner.tenant, "session": owner.session, "tool": "grep"}
            replica.tell(event_record(Event(store.now(), "tool_result", fields)))
        else:
            late = store.now() - chance.random()  # some come late
            replica.tell(event_record(Event(late, chance.choice(["turn_end", "turn_start", "pause"])), owner))
        if step % 5 == 0:  # told twice, by two replicas
            replica.tell(event_record(Event(store.now(), "turn_end"), owner, key=f"twice-{step}"))
    end = time.monotonic() + 60
    while replica.counters["applied"] < until and time.monotonic() < end:
        replica.catch_up()
        time.sleep(0.002)
    time.sleep(0.2)  # nothing more comes
    replica.catch_up()
    print(json.dumps({**digest(replica.state), "counters": dict(replica.counters)}), flush=True)


def hold(store: RedisStore, name: str) -> None:
    """Take of everything, say so, and wait to be killed."""
    store.enter("t", "running", name, 1, 2.0)
    store.pin("t", "s", name, 2.0)
    store.begin("t", "k", 2.0)
    store.keep("residency", "t", name, {"n": 1}, 2.0)
    store.append(event_record(Event(store.now(), "tool_call", {"tool": "grep"}), Owner("t", "s")))
    store.settle()
    print("ready", flush=True)
    while True:
        store.append(event_record(Event(store.now(), "turn_start"), Owner("t", "s")))
        store.settle()


if __name__ == "__main__":
    task, url, prefix, name, *rest = sys.argv[1:]
    settings = Settings(prefix=prefix, replica=name, budget=10.0, timeout=10.0)
    opened = RedisStore(url, settings)
    if task == "tell":
        tell(opened, name, *(int(number) for number in rest))
    else:
        hold(opened, name)
    opened.close()
