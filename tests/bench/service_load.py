"""What the gateway costs: time to the first byte at 100 streams, and throughput beside LiteLLM's proxy in the same run.

Load and upstream share one core, the service has the other (taskset). Every client asks the gateway for a stream (20
chunks a second) and then the upstream directly, so both are measured at the same time on the same machine; what is
printed are differences of quantiles, with 95 % intervals by bootstrap. LiteLLM's proxy is installed into
$KVPOLICY_ENGINES/litellm where it is not there yet (`--no-litellm` leaves it out). The time that a process's own
processor spent on a request says more than the clock where others use the machine, so that stands beside it; with
`--alone` the processes come before all others.

    python tests/bench/service_load.py [--streams 100] [--seconds 30] [--alone] [--no-litellm]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from hashlib import sha256
from pathlib import Path
from urllib.parse import urlsplit

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
ENGINES = Path(os.environ.get("KVPOLICY_ENGINES") or Path.home() / ".cache" / "kvpolicy")
P50_S, P99_S, TIMES = 0.003, 0.015, 3.0
KEY = "sk-1"  # asked by both gateways
CHUNKS, CLIENTS, ROUNDS = 40, 32, 4


def body(number: int, *, stream: bool) -> bytes:
    """A turn of a session, of about 2 KB."""
    words = " ".join(f"word{(number * 7 + n) % 997}" for n in range(300))
    rows = [{"role": "system", "content": "You are brief."}, {"role": "user", "content": words}]
    told = {"model": "m", "messages": rows, "stream": stream, "max_tokens": CHUNKS if stream else 1}
    return json.dumps(told, separators=(",", ":")).encode()


class Client:
    """One connection that is kept. path: of the chat route."""

    def __init__(self, url: str, session: str) -> None:
        parts = urlsplit(url)
        self._at, self._session = (parts.hostname or "", parts.port or 80), session
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, data: bytes) -> float:
        """Seconds to the first byte of the answer's body; returns when the answer has ended."""
        if self._streams is None:
            self._streams = await asyncio.open_connection(*self._at)
        reader, writer = self._streams
        head = (
            f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {KEY}\r\n"
            f"content-type: application/json\r\nx-session-id: {self._session}\r\ncontent-length: {len(data)}\r\n\r\n"
        )
        began = time.perf_counter()
        writer.write(head.encode() + data)
        said = (await reader.readuntil(b"\r\n\r\n")).lower()
        if b" 200 " not in said[:20]:
            raise RuntimeError(said[:300].decode())
        if b"chunked" not in said:
            length = next(int(r[15:]) for r in said.split(b"\r\n") if r.startswith(b"content-length:"))
            await reader.readexactly(length)
            return time.perf_counter() - began
        first = None
        while size := int(await reader.readline(), 16):
            await reader.readexactly(size + 2)
            first = first or time.perf_counter() - began
        await reader.readline()
        return first or time.perf_counter() - began


# --- processes ------------------------------------------------------------------------------------------------


@contextmanager
def process(core: int, *words: str, log: Path, env: dict[str, str] | None = None) -> Iterator[subprocess.Popen[bytes]]:
    pinned = ["taskset", "-c", str(core), *words] if (os.cpu_count() or 1) > 1 else list(words)
    with (
        log.open("wb") as err,
        subprocess.Popen(
            pinned, stdout=subprocess.PIPE, stderr=err, env={**os.environ, **(env or {})}, cwd=ROOT
        ) as started,
    ):
        try:
            yield started
        finally:
            started.terminate()
            try:
                started.wait(20)
            except subprocess.TimeoutExpired:
                started.kill()


def line(started: subprocess.Popen[bytes]) -> str:
    assert started.stdout is not None
    return started.stdout.readline().decode().strip()


def cpu(pid: int) -> float:
    """Processor seconds of a process and its children that live."""
    total = 0.0
    for each in (pid, *(int(c) for c in Path(f"/proc/{pid}/task/{pid}/children").read_text().split())):
        fields = Path(f"/proc/{each}/stat").read_text().rsplit(")", 1)[1].split()
        total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return total


# --- time to the first byte -----------------------------------------------------------------------------------


async def streams(gateway: str, direct: str, count: int, seconds: float) -> tuple[list[float], list[float]]:
    """Times through the gateway, and directly, by clients that do both in turn."""
    through: list[float] = []
    straight: list[float] = []
    ends = time.perf_counter() + seconds

    async def work(number: int) -> None:
        one, other = Client(gateway, f"s{number}"), Client(direct, f"s{number}")
        await asyncio.sleep(number * CHUNKS * 0.05 / count)  # streams begin at all times, not at once
        turn = 0
        while time.perf_counter() < ends:
            turn += 1
            data = body(number * 1000 + turn, stream=True)
            took = await one.ask(data)
            direct_took = await other.ask(data.replace(b'"max_tokens":%d' % CHUNKS, b'"max_tokens":1'))
            if turn > 1:  # the first opens the connections
                through.append(took)
                straight.append(direct_took)

    await asyncio.gather(*(work(number) for number in range(count)))
    return through, straight


def quantile(rows: list[float], part: float) -> float:
    ordered = sorted(rows)
    return ordered[min(int(part * len(ordered)), len(ordered) - 1)]


def added(through: list[float], straight: list[float], part: float) -> tuple[float, float, float]:
    """The difference of quantiles, and its 95 % interval."""
    chance, pairs = random.Random(1), list(zip(through, straight, strict=True))
    found = []
    for _ in range(400):
        drawn = chance.choices(pairs, k=len(pairs))
        found.append(quantile([p[0] for p in drawn], part) - quantile([p[1] for p in drawn], part))
    return quantile(through, part) - quantile(straight, part), quantile(found, 0.025), quantile(found, 0.975)


def verdict(low: float, high: float, goal: float, *, more: bool = False) -> str:
    if more:
        low, high, goal = -high, -low, -goal
    return "reached" if high < goal else "not reached" if low > goal else "not resolved"


# --- throughput -----------------------------------------------------------------------------------------------


async def closed_loop(url: str, seconds: float, clients: int = CLIENTS) -> float:
    """Requests a second by clients that ask again at once."""
    done, ends = [0], time.perf_counter() + seconds

    async def work(number: int) -> None:
        one, turn = Client(url, f"t{number}"), 0
        while time.perf_counter() < ends:
            turn += 1
            await one.ask(body(number * 1000 + turn % 5, stream=False))
            done[0] += 1

    began = time.perf_counter()
    await asyncio.gather(*(work(number) for number in range(clients)))
    return done[0] / (time.perf_counter() - began)


def litellm() -> Path | None:
    """LiteLLM's program, installed where it was not there yet."""
    home = ENGINES / "litellm"
    if not (home / "bin" / "litellm").exists():
        subprocess.run([sys.executable, "-m", "venv", str(home)], check=False)
        subprocess.run([str(home / "bin" / "pip"), "install", "--quiet", "litellm[proxy]"], check=False)
    found = home / "bin" / "litellm"
    return found if found.exists() else None


async def answers(url: str, within: float) -> bool:
    ends = time.perf_counter() + within
    while time.perf_counter() < ends:
        try:
            await Client(url, "w").ask(body(1, stream=False))
            return True
        except (OSError, RuntimeError, asyncio.IncompleteReadError):
            await asyncio.sleep(0.5)
    return False


async def side_by_side(gateway: str, gateway_pid: int, direct: str, folder: Path, seconds: float) -> None:
    program = litellm()
    if program is None:
        print("beside LiteLLM: it could not be installed here; not measured")
        return
    version = subprocess.run(
        [str(program.parent / "python"), "-c", "from importlib.metadata import version; print(version('litellm'))"],
        capture_output=True,
        text=True,
        check=False,
    ).stdout.strip()
    row = {"model_name": "m", "litellm_params": {"model": "openai/m", "api_base": f"{direct}/v1", "api_key": KEY}}
    settings = folder / "litellm.json"
    settings.write_text(json.dumps({"model_list": [row], "litellm_settings": {"telemetry": False}}))
    port = 4871
    words = [str(program), "--config", str(settings), "--port", str(port), "--host", "127.0.0.1", "--num_workers", "1"]
    with process(
        1, *words, log=folder / "litellm.log", env={"LITELLM_LOG": "ERROR", "LITELLM_MASTER_KEY": KEY}
    ) as other:
        url = f"http://127.0.0.1:{port}"
        if not await answers(url, 180):
            tail = (folder / "litellm.log").read_text(errors="replace")[-300:]
            print(f"beside LiteLLM {version}: it did not start; not measured\n{tail}")
            return
        rates: list[tuple[float, float]] = []
        costs: list[tuple[float, float]] = []
        for _ in range(ROUNDS):
            pair, spent = [], []
            for at, pid in ((gateway, gateway_pid), (url, other.pid)):
                before = cpu(pid)
                rate = await closed_loop(at, seconds)
                pair.append(rate)
                spent.append((cpu(pid) - before) / (rate * seconds))
            rates.append((pair[0], pair[1]))
            costs.append((spent[0], spent[1]))
    ratios = sorted(a / b for a, b in rates)
    cheaper = sorted(b / a for a, b in costs)
    mean = [sum(r[i] for r in rates) / len(rates) for i in (0, 1)]
    each = [1000 * sum(c[i] for c in costs) / len(costs) for i in (0, 1)]
    print(
        f"throughput, {CLIENTS} clients: kvpolicy {mean[0]:.0f}/s, LiteLLM {version} {mean[1]:.0f}/s; "
        f"ratio {ratios[len(ratios) // 2]:.1f} (of {ROUNDS} pairs: {ratios[0]:.1f} to {ratios[-1]:.1f}), "
        f"at least {TIMES:g}: {verdict(ratios[0], ratios[-1], TIMES, more=True)}"
    )
    print(
        f"processor time a request: kvpolicy {each[0]:.2f} ms, LiteLLM {each[1]:.2f} ms; "
        f"ratio {cheaper[len(cheaper) // 2]:.1f} ({cheaper[0]:.1f} to {cheaper[-1]:.1f})"
    )


# --- all of it ------------------------------------------------------------------------------------------------


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--no-litellm", action="store_true")
    parser.add_argument(
        "--alone", action="store_true", help="before all else on the machine (SCHED_RR; needs the right)"
    )
    parser.add_argument("--mode", default="enforce", choices=("off", "shadow", "enforce"))
    args = parser.parse_args()
    if hasattr(os, "sched_setaffinity") and (os.cpu_count() or 1) > 1:
        os.sched_setaffinity(0, {0})
    else:
        print("one core, or no way to pin processes: load and service disturb each other")
    if args.alone:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(10))
        print("all of it runs before everything else on the machine (SCHED_RR)")
    print(f"load average before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        engine = stack.enter_context(
            process(0, sys.executable, str(HERE / "service_upstream.py"), "serve", log=folder / "upstream.log")
        )
        direct = f"http://127.0.0.1:{line(engine)}"
        settings = folder / "serve.toml"
        hashed = sha256(KEY.encode()).hexdigest()
        settings.write_text(f'[[upstream]]\nurl = "{direct}"\n[[tenant]]\nname = "t"\nkeys = ["{hashed}"]\n')
        words = [sys.executable, "-m", "kvpolicy", "serve", "--config", str(settings), "--mode", args.mode]
        ours = stack.enter_context(process(1, *words, log=folder / "serve.log"))
        told = json.loads(line(ours))
        before, began = cpu(told["pid"]), time.perf_counter()
        through, straight = asyncio.run(streams(told["url"], direct, args.streams, args.seconds))
        busy = (cpu(told["pid"]) - before) / (time.perf_counter() - began)
        print(f"{args.streams} streams of {CHUNKS} chunks, 20 a second each, {len(through)} pairs, mode {args.mode}")
        for part, goal in ((0.5, P50_S), (0.99, P99_S)):
            value, low, high = added(through, straight, part)
            print(
                f"added time to the first byte, p{part * 100:g}: {value * 1e3:.2f} ms "
                f"({low * 1e3:.2f} to {high * 1e3:.2f}; directly {quantile(straight, part) * 1e3:.2f} ms), "
                f"under {goal * 1e3:g} ms: {verdict(low, high, goal)}"
            )
        print(f"the gateway used {busy * 100:.0f} % of its core")
        if not args.no_litellm:
            asyncio.run(side_by_side(told["url"], told["pid"], direct, folder, max(args.seconds / 6, 2)))
    print(f"load average after: {os.getloadavg()[0]:.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
