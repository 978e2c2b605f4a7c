"""How long other requests are held up while a long body comes through the gateway, by what is in it.

    python tests/bench/service_long_bodies.py [MIB] [--rounds 5] [--only BODY] [--alone]

One gateway, the senders of long bodies, an upstream for them and another for short requests are processes of their
own; one client sends short requests one after the other, and the time to each answer is taken: while nothing else
comes, and from the long body's first byte until two seconds after its answer, while its tokens are asked for.
With `--alone` all of it runs before the machine's
other processes (nice -20, where real-time priorities would have the gateway's own threads wait for each other), the
gateway on a core of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import httpx
import orjson

from tests.bench.conditions import processor
from tests.service.test_edge_passing import CHAT, PATH
from tests.service.upstream import OK, Asked, upstream
from tests.simulated.running import started

AFTER_S = 2.0


def words(size: int, seed: int = 0) -> str:
    return " ".join(f"w{(seed + k) % 9973:04d}" for k in range(size // 6))


def turns(*texts: str) -> dict[str, Any]:
    return {"model": "long", "messages": [{"role": "user", "content": text} for text in texts]}


SHAPES: dict[str, Callable[[int], dict[str, Any]]] = {
    "one message": lambda size: turns(words(size)),
    "40 messages": lambda size: turns(*(words(size // 40, n) for n in range(40))),
    "40 messages with a dash": lambda size: turns(*(words(size // 40, n) + "\N{EN DASH}" for n in range(40))),
    "40 messages of code": lambda size: turns(*('x = "1"\n\t' * (size // 400) + str(n) for n in range(40))),
    "4,000 messages": lambda size: turns(*(words(size // 4000, n) for n in range(4000))),
    "a message of 100,000 parts": lambda size: {
        "model": "long",
        "messages": [
            {
                "role": "user",
                "content": [{"type": "text", "text": words(max(size // 100_000 - 30, 6), n)} for n in range(100_000)],
            }
        ],
    },
    "a picture": lambda size: {
        "model": "long",
        "messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "A" * size}}]}],
    },
    "token numbers": lambda size: {"model": "long", "prompt": [n % 150_000 for n in range(size // 7)]},
}


TOKENS = b",".join(b"%d" % (100_000 + n % 50_000) for n in range(4_000_000))  # seven bytes each, with the comma


async def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
    """An engine: six bytes are a token."""
    if not asked.line.startswith("POST /tokenize"):
        writer.write(OK)
        return
    count = min(len(asked.body) // 6, 4_000_000)
    tokens = TOKENS[: 7 * count - 1]
    head = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % (len(tokens) + len(b'{"count":%d,"tokens":[]}' % count))
    writer.write(head + b'{"count":%d,"tokens":[' % count)
    writer.write(tokens)
    writer.write(b"]}")


def serve() -> None:
    """The upstream, until its standard input ends."""
    with upstream(answer) as found:
        print(found.url, flush=True)
        sys.stdin.read()


def once(client: httpx.Client, at: str, sender: subprocess.Popen[bytes] | None, seconds: float) -> list[float]:
    """Seconds to each answer, until a sender has ended and so long behind that."""
    found, ends = [], time.monotonic() + seconds
    while sender is not None and sender.poll() is None or time.monotonic() < ends:
        if sender is not None and sender.poll() is None:
            ends = time.monotonic() + seconds
        began = time.monotonic()
        assert client.post(at + PATH, json={**CHAT, "model": "short"}).status_code == 200
        found.append(time.monotonic() - began)
        time.sleep(0.002)
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("mib", nargs="?", type=float, default=12)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--alone", action="store_true", help="before all else on the machine (needs the right)")
    parser.add_argument("--only", choices=SHAPES, help="one of the bodies")
    args = parser.parse_args()
    cores = (os.cpu_count() or 1) > 1 and hasattr(os, "sched_setaffinity")
    if cores:
        os.sched_setaffinity(0, {0})
    if args.alone:
        os.setpriority(os.PRIO_PROCESS, 0, -20)
    print(f"{processor()}, load average before {os.getloadavg()[0]:.1f}; {args.mib:g} MiB, {args.rounds} rounds")
    engines = [
        subprocess.Popen([sys.executable, __file__, "upstream"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for _ in range(2)
    ]
    try:
        with tempfile.TemporaryDirectory() as folder, httpx.Client(timeout=120) as client, ExitStack() as stack:
            file, settings = Path(folder) / "body", Path(folder) / "serve.toml"
            urls = [(engine.stdout or sys.stdin.buffer).readline().decode().strip() for engine in engines]
            rows = zip(urls, ("long", "short"), strict=True)
            settings.write_text("".join(f'[[upstream]]\nurl = "{url}"\nmodels = ["{name}"]\n' for url, name in rows))
            if cores:
                os.sched_setaffinity(0, {1})  # all threads of the gateway have it from here
            at = stack.enter_context(started("serve", "--config", str(settings), "--mode", "shadow"))["url"]
            if cores:
                os.sched_setaffinity(0, {0})
            print("milliseconds to the answer of a short request; the longest of each round, their median and the most")
            print(
                f"{'body':28} {'alone, median':>14} {'longest':>8} {'beside it: median':>18} {'most':>8} {'its own':>9}"
            )
            for name, shape in SHAPES.items():
                if args.only not in (None, name):
                    continue
                path = "/v1/completions" if name == "token numbers" else PATH
                file.write_bytes(orjson.dumps(shape(int(args.mib * 2**20))))
                quiet, beside, own = [], [], []
                for _ in range(args.rounds):
                    quiet += once(client, at, None, 0.5)
                    took = ["-o", "/dev/null", "-s", "-w", "%{time_total}", "-H", "content-type: application/json"]
                    sender = subprocess.Popen(
                        ["curl", *took, "--data-binary", f"@{file}", at + path], stdout=subprocess.PIPE
                    )
                    beside.append(max(once(client, at, sender, AFTER_S)))
                    assert sender.stdout is not None
                    own.append(float(re.sub(rb"[^0-9.]", b"", sender.stdout.read())))
                figures = [median(quiet), max(quiet), median(beside), max(beside), median(own)]
                a, b, c, d, e = (1000 * row for row in figures)
                print(f"{name:28} {a:14.1f} {b:8.1f} {c:18.1f} {d:8.1f} {e:9.0f}", flush=True)
    finally:
        for engine in engines:
            engine.kill()


if __name__ == "__main__":
    serve() if sys.argv[1:] == ["upstream"] else main()
