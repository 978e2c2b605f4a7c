"""No collection of the whole process holds a request, and what is never looked through again holds no garbage."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import httpx

from kvpolicy.service.collecting import in_small_parts
from tests.service.test_edge_passing import CHAT, PATH
from tests.simulated.running import ROOT, running

# `kvp serve` that says at SIGUSR1 what a full collection would look at, and what it finds.
SAYING = """
import gc, json, signal, sys
def say(*_):
    left = len(gc.get_objects())
    gc.unfreeze()
    all_of_it = len(gc.get_objects())
    print(json.dumps({"left": left, "all": all_of_it, "garbage": gc.collect()}), flush=True)
    gc.freeze()
signal.signal(signal.SIGUSR1, say)
from kvpolicy.cli.main import main
sys.exit(main())
"""


def test_what_lives_on_is_set_aside_and_no_part_of_it_is_garbage(tmp_path: Path) -> None:
    with running("engine", "--blocks", "512", "--decode-s", "0.0005") as engine, subprocess.Popen(
        [sys.executable, "-c", SAYING, "serve", "--port", "0", "--upstream", engine],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=(tmp_path / "log").open("wb"), cwd=ROOT,
    ) as process:  # fmt: skip
        try:
            assert process.stdout is not None
            at = json.loads(process.stdout.readline())["url"]

            def said() -> dict[str, int]:
                process.send_signal(10)
                assert process.stdout is not None
                httpx.get(f"{at}/healthz", timeout=30)  # a signal is handled between two steps of the loop
                return json.loads(process.stdout.readline())

            def work(round_: int) -> None:
                with httpx.Client(base_url=at, timeout=30) as client:
                    for number in range(100):
                        head = {"x-session-id": f"s{round_}-{number}"}
                        body = {**CHAT, "model": "sim", "max_tokens": 3, "stream": number % 3 == 0}
                        client.post(PATH, json=body, headers=head)
                        client.post(PATH, json={**body, "max_tokens": -1}, headers=head)
                        client.post(PATH, content=b"[")
                        with client.stream("POST", PATH, json={**body, "max_tokens": 50, "stream": True}) as left:
                            next(left.iter_raw())

            work(0)
            said()
            work(1)
            after = said()
            assert after["left"] * 3 < after["all"], after
            assert after["garbage"] < 50, after  # 400 requests, a quarter of them left in the middle
        finally:
            process.terminate()
            process.wait(20)


def test_no_collection_has_much_to_look_at_from_the_first_one_on() -> None:
    looked: list[int] = []

    def begins(phase: str, info: Mapping[str, int]) -> None:
        if phase == "start" and info["generation"] == 2:
            looked.append(len(gc.get_objects()))

    with in_small_parts():
        gc.callbacks.append(begins)
        try:
            kept = [[number] for number in range(200_000)]
        finally:
            gc.callbacks.remove(begins)
    assert len(kept) == 200_000
    assert looked and max(looked) < 20_000
