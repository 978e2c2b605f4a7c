"""Directives reach the simulated engine's blocks: with a request by either carrier, and over the control channel.

What counts is `cached_tokens` of a later request, not that a directive was accepted.
"""

from __future__ import annotations

import itertools
import json
import random
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from kvpolicy.channel.client import ask
from tests.simulated.running import started

BLOCKS, SIZE = 48, 16
HEAD = 6 * SIZE


class Engine:
    """One simulated engine, asked with token ids."""

    def __init__(self, told: dict[str, Any]) -> None:
        self.url, self.channel = told["url"], told["channel"]
        self.client = httpx.Client(base_url=self.url, timeout=30)

    def complete(self, prompt: list[int], most: int = 1, **more: Any) -> int:
        """Cached tokens of a completion."""
        body = {"model": "sim", "prompt": prompt, "max_tokens": most, "ignore_eos": True, **more}
        answer = self.client.post("/v1/completions", json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"]

    def flood(self, seed: int) -> None:
        """More new blocks than there are."""
        for number in range(12):
            self.complete(ids(1000 * seed + number, 5 * SIZE - 3))

    def tell(self, **message: Any) -> dict[str, Any]:
        return ask(self.channel, message)

    def claims(self, owner: str) -> list[dict[str, Any]]:
        return self.tell(do="show", owner=owner)["claims"]

    def look(self) -> dict[str, Any]:
        return self.client.get("/sim/blocks").json()


@pytest.fixture(scope="module")
def started_engine() -> Iterator[Engine]:
    with tempfile.TemporaryDirectory() as folder:
        options = ("--blocks", str(BLOCKS), "--block-size", str(SIZE), "--decode-s", "0.002", "--prefill-s", "0")
        with started("engine", *options, "--channel", f"unix:{folder}/c") as told:
            yield Engine(told)


@pytest.fixture
def engine(started_engine: Engine) -> Engine:
    """Without claims, and with an empty cache."""
    for row in started_engine.look()["claims"]:
        started_engine.tell(do="release", owner=row["owner"] or {"tenant": "default"})
    assert started_engine.client.post("/reset_prefix_cache").status_code == 200
    return started_engine


def ids(seed: int, count: int) -> list[int]:
    dice = random.Random(seed)
    return [dice.randrange(5, 30_000) for _ in range(count)]


def payload(owner: str, end: int = HEAD, kind: str = "system", request: str | None = None, **wish: Any) -> dict:
    told = {"owner": owner, "spans": [{"kind": kind, "start": 0, "end": end, "claim": "head", **wish}]}
    return told if request is None else {**told, "request": request}


def transfer(told: object) -> dict[str, Any]:
    return {"kv_transfer_params": {"kvpolicy": told}}


def xargs(told: object) -> dict[str, Any]:
    return {"vllm_xargs": {"kvpolicy": json.dumps(told)}}


@pytest.mark.parametrize("carry", [transfer, xargs])
def test_a_head_that_a_request_ranks_high_survives_a_flood(engine: Engine, carry) -> None:
    kept, plain = ids(1, HEAD + 1), ids(2, HEAD + 1)
    engine.complete(kept, **carry(payload("s", priority=90)))
    engine.complete(plain)
    engine.flood(1)
    assert engine.complete(plain) == 0
    assert engine.complete(kept) == HEAD


@pytest.mark.parametrize("told", [3, "{", {"owner": 5}, {"spans": [{"kind": "ghost", "start": 0, "end": 16}]}, None])
def test_what_cannot_be_read_is_served_as_saying_nothing(engine: Engine, told: object) -> None:
    prompt = ids(3, HEAD + 1)
    assert engine.complete(prompt, **transfer(told)) == 0
    assert engine.complete(prompt) == HEAD


def test_a_look_shows_ranks_protection_and_claims(engine: Engine) -> None:
    engine.complete(ids(4, HEAD + 1), **transfer(payload("s", priority=70)))
    engine.complete(ids(5, HEAD + 1), **transfer(payload("p", retention="pin", priority=80)))
    seen = engine.look()
    assert seen["protected"] == 6
    by_rank = {(row["rank"], row["protected"]) for row in seen["blocks"]}
    assert by_rank == {(70, False), (80, True)}
    rows = {(row["owner"], row["claim"]): row for row in seen["claims"] if not row["implicit"]}
    assert rows["s", "head"]["priority"] == 70
    assert rows["p", "head"]["protected"] and rows["p", "head"]["blocks"] == 6
    assert seen["leaves_first"][-1] in {row["hash"] for row in seen["blocks"] if row["protected"]}


def test_ranking_an_idle_engine_changes_which_block_goes_next(engine: Engine) -> None:
    older, newer = ids(6, HEAD + 1), ids(7, HEAD + 1)
    for name, prompt in (("older", older), ("newer", newer)):
        engine.complete(prompt, **transfer(payload(name, priority=60)))
    assert engine.tell(do="rank", owner="older", claim="head", priority=90)["granted"] == 6
    assert engine.tell(do="rank", owner="newer", claim="head", priority=10)["status"] == "accepted"
    for number in range(6):
        engine.complete(ids(6000 + number, 7 * SIZE))
    assert engine.complete(older) == HEAD
    assert engine.complete(newer) == 0


def test_null_takes_a_hold_away(engine: Engine) -> None:
    engine.complete(ids(9, HEAD + 1), **transfer(payload("n", priority=60)))

    def head() -> dict[str, Any]:
        return next(row for row in engine.look()["claims"] if row["claim"] == "head")

    assert engine.tell(do="rank", owner="n", claim="head", hold=60.0)["status"] == "accepted"
    assert head()["protected"]
    assert engine.tell(do="rank", owner="n", claim="head", hold=None)["status"] == "accepted"
    assert not head()["protected"] and head()["priority"] == 60
    assert engine.tell(do="rank", owner="n", claim="head", protected=True)["status"] == "accepted"
    assert engine.tell(do="rank", owner="n", claim="head", hold=None)["status"] == "accepted"
    assert head()["protected"]  # a pin is no hold
    assert engine.tell(do="rank", owner="n", claim="head", priority=None)["status"] == "rejected"


def test_a_pause_is_survived_and_its_hold_ends_with_the_event(engine: Engine) -> None:
    turn = ids(8, HEAD + 1)
    wish = {"retention": "hold", "protected_for": 60.0, "until": "step_start", "priority": 20}
    engine.complete(turn, **transfer(payload("agent", kind="turn", **wish)))
    engine.flood(2)
    assert engine.complete(turn, **transfer(payload("agent", kind="turn", **wish))) == HEAD
    assert engine.tell(do="event", owner="agent", event="step_start")["status"] == "accepted"
    time.sleep(2.2)  # what an answer's end found protected stands for 2 s in any case
    engine.flood(3)
    assert engine.complete(turn) == 0


def test_blocks_can_be_claimed_by_the_names_of_their_events(engine: Engine) -> None:
    prompt = ids(9, HEAD + 1)
    engine.complete(prompt)
    hashes = [row["hash"] for row in engine.look()["blocks"]]
    assert len(hashes) == 6
    numbers = [int(each[-16:], 16) for each in hashes]
    assert engine.tell(do="claim", owner="late", priority=90, hashes=numbers)["granted"] == 6
    assert engine.tell(do="show", owner="late", hashes=hashes)["blocks"][5]["rank"] == 90
    engine.flood(4)
    assert engine.complete(prompt) == HEAD
    engine.tell(do="release", owner="late")
    engine.flood(5)
    assert engine.complete(prompt) == 0


# --- plans without their request ----------------------------------------------------------------------------------


def test_a_finished_request_is_planned_again(engine: Engine) -> None:
    high, low = ids(10, HEAD + 1), ids(11, HEAD + 1)
    for name, prompt, first, then in (("a", high, 10, 90), ("b", low, 90, 10)):
        engine.complete(prompt, **transfer(payload(name, request=f"r-{name}", priority=first)))
        again = payload(name, request=f"r-{name}", priority=then)
        row = engine.tell(do="plan", owner=name, request=f"r-{name}", payload=again)
        assert (row["status"], row["granted"]) == ("accepted", 6), row
    engine.flood(6)
    assert engine.complete(high) == HEAD
    assert engine.complete(low) == 0


def test_a_plan_that_asks_for_nothing_any_more_is_done(engine: Engine) -> None:
    prompt = ids(20, HEAD + 1)
    engine.complete(prompt, **transfer(payload("calm", request="r", priority=90)))
    row = engine.tell(do="plan", owner="calm", request="r", payload=payload("calm", request="r"))
    assert row["status"] == "accepted", row
    assert {each["priority"] for each in engine.claims("calm")} == {35}
    assert engine.tell(do="ping")["engine"]["counters"].get("failures", 0) == 0
    engine.flood(11)
    assert engine.complete(prompt) == 0


def test_planning_again_moves_no_clock(engine: Engine) -> None:
    """It is planned again until its lifetime, which runs from the first plan, is over."""
    prompt, seen, ends = ids(12, HEAD + 1), set(), time.monotonic() + 30
    wish = {"ttl": 3.0, "fixed": True}
    engine.complete(prompt, **transfer(payload("fixed", request="r", priority=90, **wish)))
    for priority in itertools.cycle((91, 92)):
        told = payload("fixed", request="r", priority=priority, **wish)
        engine.tell(do="plan", owner="fixed", request="r", payload=told)
        ranks = {row["rank"] for row in engine.look()["blocks"]}
        if ranks == {35}:
            break
        seen |= ranks
        assert time.monotonic() < ends
    assert seen and seen <= {91, 92}
    engine.flood(7)
    assert engine.complete(prompt) == 0


def test_a_plan_that_comes_after_its_request_has_ended(engine: Engine) -> None:
    """It went out with its owner alone; then the spans come, which it did not have."""
    prompt, other = ids(13, HEAD + 40), ids(14, HEAD + 40)
    for name, each in (("l", prompt), ("m", other)):
        engine.complete(each, **transfer({"owner": name, "request": f"late-{name}", "spans": []}))
    row = engine.tell(
        do="plan", owner="l", request="late-l", payload=xargs(payload("l", request="late-l", priority=90))
    )
    assert (row["status"], row["granted"]) == ("accepted", 6), row
    (head,) = [row for row in engine.claims("l") if row["claim"] == "head"]
    assert (head["priority"], head["kind"], head["blocks"]) == (90, "system", 6)
    engine.flood(8)
    assert engine.complete(prompt) == HEAD  # and no more: what stands behind the head is a turn at the default
    assert engine.complete(other) == 0


def test_a_plan_that_comes_before_its_request(engine: Engine) -> None:
    prompt, other = ids(21, HEAD + 1), ids(22, HEAD + 1)
    early = payload("e", request="early", priority=90)
    assert engine.tell(do="plan", owner="e", request="early", payload=early)["status"] == "unknown"
    engine.complete(other, **transfer({"owner": "e", "request": "another", "spans": []}))
    engine.complete(prompt, **transfer({"owner": "e", "request": "early", "spans": []}))
    engine.flood(12)
    assert engine.complete(prompt) == HEAD
    assert engine.complete(other) == 0


def test_a_plan_that_comes_while_its_request_runs(engine: Engine) -> None:
    prompt = ids(15, HEAD + 1)
    told = {"owner": "run", "request": "now", "spans": []}
    body = {"model": "sim", "prompt": prompt, "max_tokens": 400, "ignore_eos": True, "stream": True, **transfer(told)}
    with httpx.stream("POST", f"{engine.url}/v1/completions", json=body, timeout=30) as answer:
        lines = answer.iter_lines()
        next(lines)
        row = engine.tell(do="plan", owner="run", request="now", payload=payload("run", request="now", priority=90))
        assert (row["status"], row["granted"]) == ("accepted", 6), row
        for _ in lines:
            pass
    engine.flood(9)
    assert engine.complete(prompt) == HEAD


def test_a_plan_that_comes_while_its_request_waits_for_room(tmp_path: Path) -> None:
    options = ("--blocks", str(BLOCKS), "--decode-s", "0.05", "--prefill-s", "0", "--channel", f"unix:{tmp_path}/c")
    with started("engine", *options) as told:
        engine, answers = Engine(told), []
        big = {
            "model": "sim",
            "prompt": ids(16, SIZE),
            "max_tokens": (BLOCKS - 4) * SIZE,
            "ignore_eos": True,
            "stream": True,
        }
        prompt, silent = ids(17, HEAD + 1), transfer({"owner": "w", "request": "waits", "spans": []})
        waiting = threading.Thread(target=lambda: answers.append(engine.complete(prompt, 1, **silent)))
        with httpx.stream("POST", f"{engine.url}/v1/completions", json=big, timeout=60) as running:
            lines = running.iter_lines()  # kept: an iterator that goes away ends the stream
            next(lines)
            waiting.start()
            deadline = time.monotonic() + 25
            while (
                'num_requests_waiting{model_name="sim",simulated="1"} 1' not in httpx.get(f"{engine.url}/metrics").text
            ):
                assert time.monotonic() < deadline
            planned = payload("w", request="waits", priority=90)
            row = engine.tell(do="plan", owner="w", request="waits", payload=planned)
            assert row["status"] == "accepted" and "waits" in row["reason"], row
        waiting.join(20)  # the other one has left, and there is room
        assert answers == [0]
        (head,) = [row for row in engine.claims("w") if row["claim"] == "head"]
        assert (head["priority"], head["blocks"]) == (90, 6)


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ({"do": "plan", "owner": "nobody", "request": "r", "payload": {}}, "no claim"),
        ({"do": "plan", "owner": "x", "request": "r", "payload": payload("y", request="r", priority=1)}, "another"),
        (
            {"do": "plan", "owner": "x", "request": "r", "payload": payload("x", 9999, request="r", priority=1)},
            "span 0",
        ),
        ({"do": "plan", "owner": "x", "request": "r", "payload": "{"}, "JSON"),
        ({"do": "plan", "owner": "x", "request": "r"}, "payload"),
        ({"do": "plan", "owner": "x", "payload": {}}, "request"),
    ],
)
def test_a_plan_that_cannot_be_meant_is_refused_in_words(engine: Engine, message: dict, said: str) -> None:
    engine.complete(ids(18, HEAD + 1), **transfer(payload("x", request="r", priority=60)))
    row = engine.tell(**message)
    assert row["status"] in ("rejected", "unknown") and said in row["reason"], row
    assert {r["priority"] for r in engine.claims("x") if r["claim"] == "head"} == {60}


def test_a_ping_says_that_it_is_simulated(engine: Engine) -> None:
    row = engine.tell(do="ping")["engine"]
    assert row["simulated"] and row["blocks"] == BLOCKS and row["block_size"] == SIZE


def test_a_client_that_leaves_takes_its_claim_along(engine: Engine) -> None:
    body = {"model": "sim", "prompt": ids(19, HEAD + 1), "max_tokens": 400, "ignore_eos": True, "stream": True}
    told = transfer(payload("gone", priority=90))
    with httpx.stream("POST", f"{engine.url}/v1/completions", json={**body, **told}, timeout=30) as answer:
        lines = answer.iter_lines()
        next(lines)
        assert engine.claims("gone")
    deadline = time.monotonic() + 10
    while engine.look()["available"] < BLOCKS:
        assert time.monotonic() < deadline
    assert engine.claims("gone")  # for its grace of 30 s, as in vLLM


def test_the_folder_of_a_channel_is_left_clean(tmp_path: Path) -> None:
    with started("engine", "--channel", f"unix:{tmp_path}/c") as told:
        assert told["channel"] == f"unix:{tmp_path}/c"
    assert list(tmp_path.iterdir()) == []
