"""`kvp run vllm` and `kvp doctor vllm` on real servers: flags, signals, exit status, and what is told by effect."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

from kvpolicy.residency import LIVE
from tests.engines.vllm.live.serving import Server, alive, descendants, prompt
from tests.engines.vllm.live.watching import Watch


def doctor(server: Server, *words: str) -> tuple[int, dict[str, dict[str, Any]]]:
    """Exit status, and the findings by name."""
    command = [sys.executable, "-m", "kvpolicy", "doctor", "vllm", server.url, "--format", "json", *words]
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(server.folder)}
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment, stdin=subprocess.DEVNULL, timeout=120, check=False
    )
    assert done.stderr == "", done.stderr
    return done.returncode, {row["name"]: row for row in json.loads(done.stdout)["findings"]}


def test_a_server_started_by_kvp_run_is_healthy(steered: Server) -> None:
    status, found = doctor(steered, "--flood")
    assert {name: row["state"] for name, row in found.items()} == {
        "version": "good",
        "prefix caching": "good",
        "control channel": "good",
        "scheduler": "good",
        "KV events": "good",
        "cached tokens": "good",
        "effect": "good",
    }
    assert status == 0
    assert found["effect"]["details"]["dropped"] < found["effect"]["details"]["other"]
    claims = steered.tell(do="show")["claims"]
    assert not [row for row in claims if str(row["owner"]).startswith("kvp-doctor") and row["blocks"]]


def test_a_plain_server_takes_directives_and_ignores_them(stock: Server) -> None:
    status, found = doctor(stock, "--flood")
    assert status == 1
    assert found["effect"]["state"] == "broken" and "accepted and ignored" in found["effect"]["message"]
    assert (found["control channel"]["state"], found["KV events"]["state"]) == ("missing", "missing")
    assert "--kv-events-config" in found["KV events"]["mend"]


def test_without_a_flood_an_empty_cache_tells_nothing(stock: Server) -> None:
    stock.post("/reset_prefix_cache")
    _, found = doctor(stock)
    assert found["effect"]["state"] in ("broken", "unknown")  # 64 blocks are more than this small cache has


def test_two_lives_of_a_server(short_lived: Server) -> None:
    """It is ended by SIGTERM and starts again; events tell of the new life; then its `kvp run` is killed."""
    server = short_lived
    with closing(Watch(server)) as watch:
        ids, other = prompt(3300, 100), prompt(3301, 100)
        server.complete(ids)
        watch.until(lambda: watch.cached(ids) == 96 and watch.state() == LIVE)
        status = server.stop(signal.SIGTERM)  # which looks for what outlives it
        assert status in (0, 128 + signal.SIGTERM), server.log[-2000:]
        watch.until(lambda: watch.state() != LIVE)
        assert watch.cached(ids) == 0
        server.start().up()
        server.complete(other)
        watch.until(lambda: watch.cached(other) == 96 and watch.state() == LIVE)
        assert watch.cached(ids) == 0
        assert watch.feed.counts["restarts"] == 1
    assert server.process is not None
    below = descendants(server.process.pid)
    assert len(below) >= 2
    server.process.kill()
    server.process.wait()
    ends = time.monotonic() + 60
    while left := [pid for pid in below if alive(pid)]:
        assert time.monotonic() < ends, f"left: {left}"
        time.sleep(0.2)


def test_a_server_that_cannot_start_ends_with_its_own_status(model: Path, tmp_path: Path) -> None:
    server = Server(model / "nowhere", tmp_path / "n").start()
    assert server.process is not None
    assert server.process.wait(120) == 1
    assert "nowhere" in server.log
