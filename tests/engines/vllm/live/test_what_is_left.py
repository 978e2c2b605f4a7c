"""After resets, aborts and two thousand mixed requests nothing of ours is left, and no block is missing."""

from __future__ import annotations

import http.client
import json
import os
import random
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.engines.vllm.live.serving import BLOCK, USABLE, Server, descendants, directive, prompt

REQUESTS = 2000


def claims(server: Server, *owners: str) -> list[dict[str, Any]]:
    """Those of the owners that hold blocks."""
    rows: list[dict[str, Any]] = server.tell(do="show")["claims"]
    return [row for row in rows if row["owner"] in owners and row["blocks"] and not row["ended"]]


def settled(server: Server) -> None:
    """Wait until no request holds a block."""
    ends = time.monotonic() + 60
    while server.used() > 0:
        assert time.monotonic() < ends, f"{server.used():.3f} of the blocks are still held"
        time.sleep(0.1)


def cut_off(server: Server, body: dict[str, Any], after_s: float, engine: int | None = None) -> None:
    """Send a request, read a little of its stream, and go away. engine: its process stands still until the server has
    had time to notice, so that a busy machine does not end the answer first."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    try:
        connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        connection.getresponse().read(10)
        time.sleep(after_s)
        if engine is not None:
            os.kill(engine, signal.SIGSTOP)
        connection.close()
        if engine is not None:
            time.sleep(0.5)
    finally:
        connection.close()
        if engine is not None:
            os.kill(engine, signal.SIGCONT)


def engine_of(server: Server) -> int:
    """The process in which the scheduler of a server runs."""
    assert server.process is not None
    names = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in descendants(server.process.pid)}
    (pid,) = [pid for pid, name in names.items() if b"EngineCore" in name]
    return pid


def body(ids: list[int], most: int, **more: Any) -> dict[str, Any]:
    return {"model": "tiny", "prompt": ids, "max_tokens": most, "temperature": 0, "ignore_eos": True, **more}


def generated(server: Server) -> float:
    """Tokens that it has generated since it began."""
    rows = server.get("/metrics").splitlines()
    return sum(float(row.rpartition(" ")[2]) for row in rows if row.startswith("vllm:generation_tokens_total{"))


def test_a_reset_leaves_no_claim_on_a_block(steered: Server) -> None:
    for n in range(4):
        steered.complete(prompt(2000 + n, 193), **directive(f"r{n}", 192, "turn", priority=90))
    owners = [f"r{n}" for n in range(4)]
    assert len(claims(steered, *owners)) >= 4
    steered.post("/reset_prefix_cache")
    assert claims(steered, *owners) == []
    assert steered.tell(do="ping")["engine"]["protected"] == 0
    assert steered.complete(prompt(2000, 193)).cached == 0
    assert steered.complete(prompt(2000, 193)).cached == 192  # and the cache works


def test_an_aborted_request_leaves_no_claim(steered: Server) -> None:
    """Its share is withdrawn after a grace of 30 s, unless somebody else made the claim, too."""
    engine = engine_of(steered)
    for n in range(30):  # an answer may be complete before the engine stands still
        before = generated(steered)
        more = directive(f"cut{n}", 192, "turn", priority=90)
        cut_off(steered, body(prompt(2100 + n, 193), 800, stream=True, **more), 0.05, engine)
        settled(steered)
        if generated(steered) - before < 800:
            break
        steered.tell(do="release", owner=f"cut{n}")
    else:
        raise AssertionError("no request was aborted")
    owner = f"cut{n}"
    assert claims(steered, owner)
    ends = time.monotonic() + 60
    while claims(steered, owner):
        assert time.monotonic() < ends, claims(steered, owner)
        time.sleep(1.0)


def test_two_thousand_mixed_requests_leave_the_blocks_as_they_were(steered: Server) -> None:
    settled(steered)
    dice = random.Random(7)
    heads = [prompt(2200 + n, 96) for n in range(12)]

    def one(number: int) -> None:
        chance = random.Random(number)
        ids = chance.choice(heads)[: chance.randrange(1, 97)] + prompt(5000 + number, chance.randrange(1, 160))
        owner, end = f"m{chance.randrange(20)}", max(1, len(ids) * chance.randrange(1, 5) // 4)
        wishes: list[dict[str, Any]] = [
            {},
            {},
            directive(owner, end, "turn", priority=chance.randrange(101)),
            directive(owner, end, "turn", priority=80, ttl=chance.uniform(0.01, 3)),
            directive(owner, end, "turn", retention="pin"),
            directive(owner, end, "turn", retention="drop"),
            directive(owner, end, "turn", hold=chance.uniform(0.01, 3), priority=20),
            {"kv_transfer_params": {"kvpolicy": chance.choice([None, 3, {"owner": 5}, {"spans": [{"kind": "x"}]}])}},
        ]
        more = chance.choice(wishes)
        if chance.random() < 0.2:
            more = {**more, "cache_salt": f"salt{chance.randrange(3)}"}
        if chance.random() < 0.05:
            cut_off(steered, body(ids, 100, stream=True, **more), chance.uniform(0, 0.05))
        else:
            steered.complete(ids, chance.randrange(1, 5), **more)
        if number % 50 == 0:
            steered.tell(do="rank", owner=owner, priority=chance.randrange(101))
        if number % 90 == 0:
            steered.tell(do="release", owner=owner)
        if number % 400 == 0:
            steered.post("/reset_prefix_cache")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(one, dice.sample(range(REQUESTS), REQUESTS)))
    settled(steered)
    status = steered.tell(do="ping")["engine"]
    assert status["off"] is None and status["counters"].get("failures", 0) == 0, status
    steered.tell(do="release_all")
    assert steered.tell(do="ping")["engine"]["protected"] == 0
    # Every block is there to be had: one request that needs nearly all of them runs, twice.
    longest = (USABLE - 16) * BLOCK
    for seed in (1, 2):
        assert len(steered.complete(prompt(9000 + seed, longest), 1).tokens) == 1
    settled(steered)
