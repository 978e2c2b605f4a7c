"""What may break beside the gateway, for real: a stopped Redis, an engine's tokenizer that never answers, a policy
whose planning raises, a stream of events that says nothing.

Each is a gateway as a process of its own in front of the tests' upstream, and one without the fault that is otherwise
the same. Used by `test_fail_open` and by the benchmark `service_fail_open`.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import orjson

from tests.service.test_edge_failing_open import ANSWER, TOKENS, reply, silent
from tests.service.test_edge_passing import PATH
from tests.service.upstream import Asked, Upstream, upstream
from tests.simulated.running import ROOT
from tests.store.servers import Server

HANG_S = 30.0  # of what hangs; a request that waited for it would take at least so long
FAULTS = ("redis", "tokenizer", "policy", "events")
# What `kvp serve` is started with where its policy faults: every plan raises, as one with a bug of ours would.
FAULTY = """
import sys
from kvpolicy.service import planning
def plan(*_, **__): raise RuntimeError("planted")
planning.plan = plan
from kvpolicy.cli.main import main
sys.exit(main())
"""


@dataclass(slots=True)
class Pair:
    """Two gateways, alike but for the fault, and their engines."""

    well: str
    broken: str
    engine: Upstream
    broken_engine: Upstream


async def engine_like(asked: Asked, writer: asyncio.StreamWriter) -> None:
    """Answers at once."""
    if asked.line.startswith("POST /tokenize"):
        writer.write(reply(orjson.dumps({"count": len(TOKENS), "tokens": TOKENS})))
    else:
        writer.write(reply(ANSWER))


async def hanging_tokenizer(asked: Asked, writer: asyncio.StreamWriter) -> None:
    """The same, but for its tokenizer."""
    if asked.line.startswith("POST /tokenize"):
        await asyncio.sleep(HANG_S)
    else:
        writer.write(reply(ANSWER))


@contextmanager
def serving(settings: Path, *, faulty: bool = False) -> Iterator[str]:
    """The address of a gateway."""
    words = ["-c", FAULTY] if faulty else ["-m", "kvpolicy"]
    with subprocess.Popen(
        [sys.executable, *words, "serve", "--port", "0", "--config", str(settings)],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=settings.with_suffix(".log").open("wb"), cwd=ROOT,
    ) as process:  # fmt: skip
        try:
            assert process.stdout is not None
            yield json.loads(process.stdout.readline())["url"]
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()


@contextmanager
def pair(fault: str, folder: Path) -> Iterator[Pair]:
    """Both gateways, warm; the fault is there."""
    with ExitStack() as stack:
        folder.mkdir(parents=True, exist_ok=True)
        engine = stack.enter_context(upstream(engine_like))
        other = stack.enter_context(upstream(hanging_tokenizer if fault == "tokenizer" else engine_like))
        redis = [Server(folder / name).start() for name in ("well", "broken")] if fault == "redis" else []
        for server in redis:
            stack.callback(server.kill)
        found = []
        for place, behind in enumerate((engine, other)):
            told = f'[[upstream]]\nurl = "{behind.url}"\n'
            if fault == "events" and behind is other:
                told += f'events = "tcp://127.0.0.1:{stack.enter_context(silent())}"\n'
            if redis:
                told += f'[store]\nredis = "{redis[place].url}"\n'
            settings = folder / f"{place}.toml"
            settings.write_text(told)
            found.append(stack.enter_context(serving(settings, faulty=fault == "policy" and behind is other)))
        for at in found:
            for number in range(5):
                httpx.post(at + PATH, json=request(f"warm {number}"), timeout=60)
        if redis:
            redis[1].hang()
        yield Pair(found[0], found[1], engine, other)


def request(text: str) -> dict[str, object]:
    """A turn."""
    return {"model": "m", "messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": text}]}
