"""Directives that come over the control channel, and clocks that run while nothing is served."""

from __future__ import annotations

import os
import re
import socket
import time
from pathlib import Path
from typing import Any

from kvpolicy.channel.client import ChannelClient
from kvpolicy.channel.wire import read_address
from tests.engines.vllm.live.serving import USABLE, Server, directive, prompt

PART = 6 * 32  # tokens of a prompt's full blocks
FLOOD = 12


def flood(server: Server, seed: int, count: int = FLOOD) -> None:
    """More new blocks than the cache has."""
    assert count * 5 > USABLE or count < FLOOD
    for n in range(count):
        server.complete(prompt(seed + n, 5 * 32 - 3))


def heads(server: Server, owner: str) -> list[dict[str, Any]]:
    """The claims called `head` of an owner."""
    return [row for row in server.tell(do="show", owner=owner)["claims"] if row["claim"] == "head"]


def test_ranking_an_idle_engine_changes_which_block_goes_next(steered: Server) -> None:
    older, newer = prompt(1, PART + 1), prompt(2, PART + 1)
    for name, ids in (("older", older), ("newer", newer)):
        steered.complete(ids, **directive(name, PART, "turn", priority=60))
    flood(steered, 1000)
    for name, priority in (("older", 90), ("newer", 10)):
        row = steered.tell(do="rank", owner=name, claim="head", priority=priority)
        assert (row["status"], row["granted"]) == ("accepted", 6), row
    steered.complete(prompt(3, 12 * 32 - 3))  # `newer` goes with the first blocks that go, though `older` is older
    (shown,) = heads(steered, "older")
    assert (shown["priority"], shown["blocks"]) == (90, 6)
    assert steered.complete(older).cached == PART
    assert steered.complete(newer).cached == 0


def test_an_answer_comes_from_an_idle_engine_at_once(steered: Server) -> None:
    steered.complete(prompt(4, PART + 1), **directive("idle", PART, "turn", priority=60))
    began = time.monotonic()
    row = steered.tell(do="rank", owner="idle", claim="head", priority=70)
    assert row["status"] == "accepted", row
    assert time.monotonic() - began < 5.0
    (claim,) = heads(steered, "idle")
    assert claim["priority"] == 70


def test_a_lifetime_lapses_while_nothing_is_served(steered: Server) -> None:
    """Two alike, but for the lifetime of one; after it neither a request nor a message comes before the flood."""
    short, long = prompt(5, PART + 1), prompt(6, PART + 1)
    steered.complete(short, **directive("short", PART, "turn", priority=90, ttl=2.0))
    steered.complete(long, **directive("long", PART, "turn", priority=90, ttl=3600.0))
    flood(steered, 1100)
    assert steered.complete(short, **directive("short", PART, "turn", priority=90, ttl=2.0)).cached == PART
    time.sleep(3.0)
    flood(steered, 1200)
    assert steered.complete(long).cached == PART
    assert steered.complete(short).cached == 0


def test_a_pause_for_a_tool_is_survived_and_its_hold_ends_with_the_event(steered: Server) -> None:
    turn, plain = prompt(7, PART + 1), prompt(8, PART + 1)
    wish = {"retention": "hold", "protected_for": 60.0, "until": "step_start", "priority": 20}
    steered.complete(turn, **directive("agent", PART, "turn", **wish))
    steered.complete(plain)
    flood(steered, 1300)
    assert steered.complete(plain).cached == 0
    assert steered.complete(turn, **directive("agent", PART, "turn", **wish)).cached == PART
    assert steered.tell(do="event", owner="agent", event="step_start")["status"] == "accepted"
    time.sleep(3.0)  # what an answer's end found protected stands for 2 s in any case
    flood(steered, 1400)
    assert steered.complete(turn).cached == 0


def test_a_release_gives_the_blocks_back(steered: Server) -> None:
    ids = prompt(9, PART + 1)
    steered.complete(ids, **directive("gone", PART, "turn", priority=95))
    assert steered.tell(do="release", owner="gone")["status"] == "accepted"
    flood(steered, 1500)
    assert steered.complete(ids).cached == 0


def test_blocks_can_be_claimed_by_the_hashes_of_their_events(steered: Server) -> None:
    from kvpolicy.adapters.vllm.events import Feed
    from kvpolicy.residency import Residency

    residency, ids = Residency(), prompt(10, PART + 1)
    feed = Feed("w", *events_of(steered))
    try:
        steered.complete(ids)
        hashes: list[object] = []
        ends = time.monotonic() + 20
        while (not hashes or None in hashes) and time.monotonic() < ends:
            feed.take(residency, time.monotonic(), 0.1)
            hashes = list(residency.blocks_of("w", 0, ids))
    finally:
        feed.close()
    assert len(hashes) == 6
    row = steered.tell(do="claim", owner="late", priority=90, hashes=hashes)
    assert (row["status"], row["granted"]) == ("accepted", 6), row
    flood(steered, 1600)
    assert steered.complete(ids).cached == PART


def events_of(server: Server) -> tuple[str, str]:
    """Where it publishes, and where it replays."""
    found = re.search(r"KV events (\S+), replay (\S+)", server.log)
    assert found is not None
    return found[1], found[2]


def test_nonsense_on_the_channel_changes_nothing(steered: Server) -> None:
    ids = prompt(11, PART + 1)
    before = steered.complete(ids, 8).tokens
    address = read_address(steered.channel)
    with socket.socket(address.family) as peer:
        peer.connect(address.target)
        peer.sendall(os.urandom(100_000) + b'\n{"do": "rank"}\n{"do": "rank", "owner": "x", "priority": 1}\n')
        peer.settimeout(10)
        assert b"rejected" in peer.recv(4096)
    again = steered.complete(ids, 8)
    assert (again.tokens, again.cached) == (before, PART)
    assert steered.tell(do="rank", owner="nobody", priority=1)["status"] == "unknown"


def test_a_killed_channel_changes_nothing(steered: Server) -> None:
    """Its socket is taken away and a client with a full queue dies: claims stand, requests are served."""
    ids = prompt(12, PART + 1)
    steered.complete(ids, **directive("kept", PART, "turn", priority=90))
    client = ChannelClient(steered.channel)
    for n in range(500):
        client.send({"do": "rank", "owner": f"nobody{n}", "priority": 50})
    path = Path(str(read_address(steered.channel).path))
    moved = path.with_name("moved")
    path.rename(moved)
    try:
        client.close()
        flood(steered, 1700)
        assert steered.complete(ids).cached == PART
    finally:
        moved.rename(path)
    assert steered.tell(do="ping")["engine"]["off"] is None
