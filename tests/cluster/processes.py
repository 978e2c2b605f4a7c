"""The demo cluster's processes: simulated engines, and a gateway in front of them. Started together, ended together."""

from __future__ import annotations

import contextlib
import json
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
READY_WITHIN_S = 240


@dataclass(frozen=True, slots=True)
class Engine:
    """One simulated engine that runs, by its addresses."""

    url: str
    channel: str
    events: str
    replay: str


@contextmanager
def engines(count: int, options: Sequence[str]) -> Iterator[list[Engine]]:
    """So many `kvp engine` processes with these options."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        started = []
        for number in range(count):
            places = ["--channel", f"unix:{folder}/{number}", "--events", "tcp://127.0.0.1:0"]
            places += ["--replay", "tcp://127.0.0.1:0"]
            started.append(stack.enter_context(_process("engine", [*options, *places])))
        told = [_ready(process) for process in started]
        yield [Engine(row["url"], row["channel"], row["events"], row["replay"]) for row in told]


@contextmanager
def gateway(cluster: Sequence[Engine], policy: str, mode: str, load_tokens: float, block_size: int) -> Iterator[str]:
    """`kvp serve` in front of all of them; its address."""
    rows = [
        f'[[upstream]]\nurl = "{each.url}"\nchannel = "{each.channel}"\nevents = "{each.events}"\n'
        f'replay = "{each.replay}"\nblock_size = {block_size}\n'
        for each in cluster
    ]
    rows.append(f'[policy]\nname = "{policy}"\nmode = "{mode}"\n[routing]\nload_tokens = {load_tokens}\n')
    rows.append("[limits]\ndecide_within_s = 0.2\n")
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as settings:
        settings.write("".join(rows))
        settings.flush()
        with _process("serve", ["--config", settings.name]) as process:
            yield _ready(process)["url"]


@contextmanager
def _process(command: str, options: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "kvpolicy", command, "--port", "0", *options],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=ROOT,
    )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()


def _ready(process: subprocess.Popen[bytes]) -> dict[str, Any]:
    assert process.stdout is not None
    ready, _, _ = select.select([process.stdout], [], [], READY_WITHIN_S)
    line = process.stdout.readline() if ready else b""
    if not line:
        raise SystemExit("a process of the cluster did not start")
    return dict(json.loads(line))
