"""docs/store.md with real servers: its set-ups are run as they stand, its Python against them, its table of keys."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvpolicy.request import Owner
from kvpolicy.store.record import Record
from tests.store.conftest import Open
from tests.store.servers import BINARY, MISSING, Server, free_port, until

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "store.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(python|sh)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
CHECKED = "\nassert store.status().mode == 'shared', store.status()\n"


@contextlib.contextmanager
def set_up(text: str, folder: Path) -> Iterator[None]:
    """Run a block of the shell; whatever it started ends with this."""
    try:
        done = subprocess.run(
            ["bash", "-ec", text], cwd=folder, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        yield
    finally:
        for pid in folder.glob("*/pid"):
            with contextlib.suppress(OSError, ValueError):
                os.kill(int(pid.read_text()), signal.SIGKILL)


def python(text: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a block of Python."""
    return subprocess.run([sys.executable, "-c", text], cwd=folder, capture_output=True, text=True, check=False)


def block(language: str, holds: str) -> str:
    """The block of the page that holds this."""
    (found,) = [text for kind, text in BLOCKS if kind == language and holds in text]
    return found


def moved(text: str, *ports: int) -> tuple[str, dict[int, int]]:
    """The text with these ports replaced by free ones."""
    to = {port: free_port() for port in ports}
    for port, free in to.items():
        text = text.replace(str(port), str(free))
    return text, to


@pytest.mark.parametrize("holds", ['replica-0"), folder', "asyncio.run"])
def test_python_of_the_page_over_a_server(server: Server, tmp_path: Path, holds: str) -> None:
    text = block("python", holds).replace("127.0.0.1:6379", f"127.0.0.1:{server.port}")
    assert str(server.port) in text
    text = text.replace("store.close()", CHECKED + "store.close()")
    done = python(text, tmp_path)
    assert done.returncode == 0, done.stderr
    if "print" in text:
        assert done.stdout.split() == ["shared"]


@pytest.mark.parametrize(
    "holds, ports", [("--cluster create", (7000, 7001, 7002)), ("sentinel monitor", (6390, 6391, 26379))]
)
def test_set_ups_of_the_page(tmp_path: Path, holds: str, ports: tuple[int, ...]) -> None:
    if BINARY is None:
        pytest.skip(MISSING)
    shell, to = moved(block("sh", holds), *ports)
    program = block("python", "redis+cluster" if "cluster" in holds else "redis+sentinel")
    for port, free in to.items():
        program = program.replace(str(port), str(free))
    with set_up(shell, tmp_path):
        # A server that was just started may take a moment to be what it is told to be.
        until(lambda: python(program, tmp_path).stdout.strip() == "shared", every=0.2)


def test_the_table_of_keys_is_what_is_on_the_server(own_server: Server, open_store: Open) -> None:
    store = open_store(own_server.url, prefix="kvp")
    store.append(Record("event", Owner("t", "s"), {"n": 1}))
    store.settle()
    store.publish("p", {"a": "1"})
    store.keep("learned", "t", "a", {})
    store.pin("t", "s", "w0", 60)
    store.begin("t", "k", 60)
    store.spend("t", "w", 1, 5, 60)
    store.enter("t", "running", "a", 5, 60)
    store.pinned("t", "s")
    with contextlib.closing(own_server.client()) as client:
        found = {re.sub(r"[0-9a-f]{24}", "…", key.decode()).removeprefix("kvp:") for key in client.scan_iter()}
    assert found == set(re.findall(r"\| `(\{kvp\S+)` \|", PAGE))


def test_the_permissions_of_the_page_suffice(tmp_path: Path, open_store: Open) -> None:
    (rights,) = re.findall(r"`(~kvp:\* [^`]*)`", PAGE)
    with Server(tmp_path, user=f"app on >word {rights}") as server:
        store = open_store(f"redis://app:word@127.0.0.1:{server.port}/0", prefix="kvp")
        assert store.status().mode == "shared", store.status()
        assert store.publish("p", {"a": "1"}).shared
