"""Real Redis servers for tests: each in a folder of its own, on a free port of the loopback, stopped in any case."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import TypeVar

import pytest
import redis

T = TypeVar("T")
BINARY = shutil.which("redis-server")
MISSING = "these tests start real servers: install redis-server (Debian, Ubuntu: apt-get install redis-server)"


# Servers end with the tests, however those end (Linux; elsewhere they are only stopped where tests end as they should).
WRAPPED = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []


def free_port() -> int:
    """A port that nobody listens on, of which the cluster's second one (+10000) is free, too."""
    for _ in range(100):
        with socket.socket() as first, socket.socket() as second:
            first.bind(("127.0.0.1", 0))
            port: int = first.getsockname()[1]
            with contextlib.suppress(OSError, OverflowError):
                second.bind(("127.0.0.1", port - 10000 if port > 55000 else port + 10000))
                return port if port <= 55000 else port - 10000
    raise RuntimeError("no free port")


def until(true: Callable[[], T], seconds: float = 20.0, every: float = 0.005) -> T:
    """Wait until something is so, and say what it is then; an assertion where it never is."""
    end = time.monotonic() + seconds
    while not (found := true()):
        assert time.monotonic() < end, f"not so within {seconds} s"
        time.sleep(every)
    return found


class Server:
    """One redis-server. options: of its command line, without dashes."""

    def __init__(self, folder: Path, port: int | None = None, **options: str) -> None:
        self.folder, self.port = folder, port or free_port()
        self.options = options
        self.late_s = 0  # how far its clock is behind this machine's
        self.tls: dict[str, str] = {}
        self.process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def url(self) -> str:
        """Its address."""
        return f"redis://127.0.0.1:{self.port}/0"

    def client(self) -> redis.Redis:
        """A client of its own, for what a test wants to look at or to change."""
        return redis.Redis(host="127.0.0.1", port=self.port, socket_timeout=10, **self.tls)  # type: ignore[arg-type]

    def start(self) -> Server:
        """Start it and wait until it answers. Without the program the test is skipped, and says so."""
        if BINARY is None:
            pytest.skip(MISSING)
        plain = {
            "port": str(self.port),
            "bind": "127.0.0.1",
            "dir": str(self.folder),
            "save": "",
            "loglevel": "warning",
        }
        rows = {**plain, **{name.replace("_", "-"): value for name, value in self.options.items()}}
        arguments = [part for name, value in rows.items() for part in (f"--{name}", *self._parts(name, value))]
        with open(self.folder / "log", "ab") as log:
            self.process = subprocess.Popen(
                [*WRAPPED, BINARY, *arguments], stdout=log, stderr=log, start_new_session=True, env=self._environment()
            )
        try:
            until(self.answers)
        except BaseException:
            self.kill()
            raise
        return self

    def _environment(self) -> dict[str, str]:
        """With another clock where the test wants one. Without a compiler the test is skipped, and says so."""
        if not self.late_s:
            return dict(os.environ)
        compiler = shutil.which("cc")
        if compiler is None or sys.platform != "linux":
            pytest.skip("a server with a clock of its own needs Linux and a C compiler")
        built, source = self.folder / "late_clock.so", Path(__file__).with_name("late_clock.c")
        subprocess.run([compiler, "-shared", "-fPIC", f"-DLATE={self.late_s}", "-o", built, source], check=True)
        return {**os.environ, "LD_PRELOAD": str(built)}

    @staticmethod
    def _parts(name: str, value: str) -> list[str]:
        return value.split(" ") if name in ("user", "replicaof") else [value]

    def answers(self) -> bool:
        """Whether it answers; an assertion where it is dead."""
        assert self.process is not None and self.process.poll() is None, (self.folder / "log").read_text()[-2000:]
        with contextlib.suppress(redis.RedisError, OSError), contextlib.closing(self.client()) as client:
            return bool(client.ping())
        return False

    def hang(self) -> None:
        """From now on it accepts and never answers."""
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """It answers again."""
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        """As if the power failed."""
        if self.process is not None:
            self._signal(signal.SIGKILL)
            self.process.wait(10)
            self.process = None

    def restart(self) -> None:
        """Kill it and start it again."""
        self.kill()
        self.start()

    def _signal(self, number: int) -> None:
        if self.process is not None and self.process.poll() is None:
            os.kill(self.process.pid, number)

    def __enter__(self) -> Server:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, fault: BaseException | None, at: TracebackType | None) -> None:
        self.kill()


@contextlib.contextmanager
def cluster(folder: Path, nodes: int = 3) -> Iterator[list[Server]]:
    """A cluster whose nodes share the slots evenly."""
    with contextlib.ExitStack() as stack:
        servers = [
            stack.enter_context(
                Server(folder / str(number), cluster_enabled="yes", cluster_node_timeout="700", appendonly="no")
            )
            for number in range(nodes)
        ]
        bounds = [16384 * number // nodes for number in range(nodes + 1)]
        for number, server in enumerate(servers):
            with contextlib.closing(server.client()) as client:
                client.execute_command("CLUSTER", "ADDSLOTSRANGE", bounds[number], bounds[number + 1] - 1)
                client.execute_command("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
                if number:
                    client.execute_command("CLUSTER", "MEET", "127.0.0.1", servers[0].port)
        for server in servers:
            until(lambda server=server: _known(server, nodes))  # type: ignore[misc]
        yield servers


def _known(server: Server, nodes: int) -> bool:
    with contextlib.closing(server.client()) as client:
        info: bytes = client.execute_command("CLUSTER", "INFO")
    return b"cluster_state:ok" in info and f"cluster_known_nodes:{nodes}\r".encode() in info


@contextlib.contextmanager
def sentinel(folder: Path, master: Server, name: str = "main") -> Iterator[int]:
    """A Sentinel that watches the master alone; yields its port."""
    port = free_port()
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / "sentinel.conf"
    config.write_text(
        f"port {port}\nbind 127.0.0.1\ndir {folder}\n"
        f"sentinel monitor {name} 127.0.0.1 {master.port} 1\n"
        f"sentinel down-after-milliseconds {name} 300\nsentinel failover-timeout {name} 1500\n"
    )
    assert BINARY is not None
    with open(folder / "log", "ab") as log:
        process = subprocess.Popen(
            [*WRAPPED, BINARY, str(config), "--sentinel"], stdout=log, stderr=log, start_new_session=True
        )
    try:
        client = redis.Redis(host="127.0.0.1", port=port, socket_timeout=5)

        def knows_a_replica() -> bool:
            with contextlib.suppress(redis.RedisError, OSError):
                return bool(client.sentinel_slaves(name))
            return False

        until(knows_a_replica)
        client.close()
        yield port
    finally:
        process.kill()
        process.wait(10)
