"""Real vLLM servers for the live tests: started by `kvp run vllm`, asked over HTTP, ended without leaving anything.

48 blocks of 32 tokens and a model of random weights: a dozen requests are pressure.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kvpolicy.adapters.vllm.run_places import places_of
from kvpolicy.channel.client import ask

BLOCKS, BLOCK = 48, 32
USABLE = BLOCKS - 1  # one is vLLM's null block
SYSTEM_TOKENS = 192
UP_WITHIN_S, DOWN_WITHIN_S = 480.0, 60.0
FLAGS = (
    "--served-model-name tiny --enforce-eager --dtype float32 --max-model-len 1024 --block-size 32 --max-num-seqs 8 "
    f"--num-gpu-blocks-override {BLOCKS} --host 127.0.0.1 --enable-auto-tool-choice --tool-call-parser pythonic"
).split()
# A tool's arguments come without blanks between them, which a model of random weights would go on with for ever.
FLAGS += ["--structured-outputs-config", json.dumps({"backend": "xgrammar", "disable_any_whitespace": True})]
ENVIRONMENT = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "auto",
    "VLLM_SERVER_DEV_MODE": "1",  # opens the reset of the prefix cache
    "HF_HUB_OFFLINE": "1",
    "KVPOLICY_BUDGET": "0.4",
}


@dataclass(slots=True)
class Answer:
    """What one request got. tokens: ids of the answer."""

    tokens: list[int]
    cached: int
    prompt: int
    text: str


@dataclass(slots=True)
class Server:
    """One server. process: `kvp run`, its parent. blocks: more than the tests' few, where nothing is to be lost."""

    model: Path
    folder: Path
    flags: Sequence[str] = ()
    environment: dict[str, str] = field(default_factory=dict)
    port: int = 0
    process: subprocess.Popen[bytes] | None = None
    blocks: int = BLOCKS

    @property
    def url(self) -> str:
        """Without a path."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def log(self) -> str:
        """All that it printed."""
        return (self.folder / "log").read_text(encoding="utf-8", errors="replace")

    def start(self) -> Server:
        """Start it, and return at once."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.port = self.port or free_port()
        command = [sys.executable, "-m", "kvpolicy", "run", "vllm", *self.flags, "--model", str(self.model), *FLAGS]
        with (self.folder / "log").open("wb") as out:
            self.process = subprocess.Popen(
                [*command, "--num-gpu-blocks-override", str(self.blocks), "--port", str(self.port)],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env={**os.environ, **ENVIRONMENT, **self.environment, "XDG_RUNTIME_DIR": str(self.folder)},
            )
        return self

    def up(self) -> Server:
        """Wait until it answers."""
        assert self.process is not None
        ends = time.monotonic() + UP_WITHIN_S
        while True:
            with contextlib.suppress(OSError):
                urllib.request.urlopen(self.url + "/health", timeout=5)
                break
            if self.process.poll() is not None or time.monotonic() > ends:
                self.stop()
                raise AssertionError(f"the server did not come up:\n{self.log[-4000:]}")
            time.sleep(0.2)
        return self

    def stop(self, word: int = signal.SIGTERM) -> int:
        """End it; its exit status. What outlives it is a fault."""
        assert self.process is not None
        below = descendants(self.process.pid)
        if self.process.poll() is None:
            self.process.send_signal(word)
        try:
            status = self.process.wait(DOWN_WITHIN_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        left = [pid for pid in below if alive(pid)]
        assert not left, f"processes outlived the server: {left}"
        return status

    @property
    def channel(self) -> str:
        """Its control channel."""
        before = os.environ.get("XDG_RUNTIME_DIR")
        os.environ["XDG_RUNTIME_DIR"] = str(self.folder)
        try:
            return places_of(self.port).channel
        finally:
            os.environ.pop("XDG_RUNTIME_DIR")
            if before is not None:
                os.environ["XDG_RUNTIME_DIR"] = before

    def tell(self, **message: Any) -> dict[str, Any]:
        """A message over the control channel, and its answer."""
        return ask(self.channel, message, within_s=20.0)

    def post(self, path: str, body: object = None, timeout: float = 120.0) -> Any:
        """POST JSON; the answer, parsed where it is JSON."""
        data = b"" if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            said = answer.read()
        return json.loads(said) if said else None

    def get(self, path: str) -> str:
        """GET text."""
        with urllib.request.urlopen(self.url + path, timeout=30) as answer:
            return str(answer.read().decode())

    def chat(self, messages: list[dict[str, str]], most: int = 8, **more: Any) -> Answer:
        """A greedy chat completion."""
        body = {"model": "tiny", "messages": messages, "max_tokens": most, "temperature": 0, "return_token_ids": True}
        row = self.post("/v1/chat/completions", {**body, **more})
        details, choice = row["usage"]["prompt_tokens_details"] or {}, row["choices"][0]
        tokens, text = choice.get("token_ids") or [], choice["message"]["content"] or ""
        assert tokens, "the server tells no token ids"
        return Answer(tokens, details.get("cached_tokens") or 0, row["usage"]["prompt_tokens"], text)

    def complete(self, prompt: list[int], most: int = 1, **more: Any) -> Answer:
        """A greedy completion of token ids."""
        body = {"model": "tiny", "prompt": prompt, "max_tokens": most, "temperature": 0, "return_token_ids": True}
        row = self.post("/v1/completions", {**body, **more})
        details, choice = row["usage"]["prompt_tokens_details"] or {}, row["choices"][0]
        cached = details.get("cached_tokens") or 0
        return Answer(choice.get("token_ids") or [], cached, row["usage"]["prompt_tokens"], choice["text"])

    def used(self) -> float:
        """The share of the blocks that requests hold now."""
        line = next(row for row in self.get("/metrics").splitlines() if row.startswith("vllm:kv_cache_usage_perc{"))
        return float(line.rpartition(" ")[2])


def directive(owner: str, end: int = SYSTEM_TOKENS, kind: str = "system", **wish: Any) -> dict[str, Any]:
    """`kv_transfer_params` that ask something for the first `end` tokens, as a claim called `head`."""
    spans = [{"kind": kind, "start": 0, "end": end, "claim": "head", **wish}]
    return {"kv_transfer_params": {"kvpolicy": {"owner": owner, "spans": spans}}}


def prompt(seed: int, tokens: int) -> list[int]:
    """Token ids that no other seed shares a block with."""
    dice = random.Random(seed)
    return [dice.randrange(5, 300) for _ in range(tokens)]


def letters(seed: int, count: int) -> str:
    """As many letters: a token each, nearly."""
    dice = random.Random(seed)
    return "".join(dice.choice("bcdfghjklmnpqrstvwxz ") for _ in range(count))


def free_port() -> int:
    """A port that nobody listens at."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def descendants(pid: int) -> list[int]:
    """All processes below one."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError, ValueError, IndexError):
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                parents.setdefault(parent, []).append(int(entry.name))
    found, waiting = [], [pid]
    while waiting:
        below = parents.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


def alive(pid: int) -> bool:
    """Whether it runs; one that has ended and was not waited for does not."""
    try:
        return (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False
