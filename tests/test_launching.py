"""`kvp run` as a parent: signals go on, the exit status comes back, and nothing outlives it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kvpolicy.faults import InputFault
from kvpolicy.launching import find_launcher

ROOT = Path(__file__).resolve().parents[1]
PARENT = """
import sys
from kvpolicy.launching import Launch, supervise
sys.exit(supervise(Launch([sys.executable, "-c", sys.argv[1], *sys.argv[2:]], {"SET": "yes"})))
"""


def start(engine: str, *words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", PARENT, engine, *words]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, cwd=ROOT)


def wait(until: Callable[[], object], within_s: float = 20.0) -> None:
    ends = time.monotonic() + within_s
    while not until():
        assert time.monotonic() < ends, "did not come true"
        time.sleep(0.02)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False


@pytest.mark.parametrize(
    ("engine", "status"),
    [
        ("pass", 0),
        ("import sys; sys.exit(7)", 7),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", 137),
        ("import os, sys; sys.exit(0 if os.environ['SET'] == 'yes' else 1)", 0),
    ],
)
def test_the_status_is_the_engines_own(engine: str, status: int) -> None:
    process = start(engine)
    assert process.wait(30) == status
    assert process.stdout is not None
    process.stdout.close()


WAITS = """
import signal, sys, time
def heard(number, frame):
    print("heard", number, flush=True)
    sys.exit(3)
signal.signal(signal.SIGTERM, heard)
signal.signal(signal.SIGINT, heard)
print("up", flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_goes_on(number: int) -> None:
    with start(WAITS) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        process.send_signal(number)
        assert process.stdout.readline() == f"heard {int(number)}\n"
        assert process.wait(30) == 3


def test_an_engine_that_dies_of_a_signal_says_which() -> None:
    with start("import time; print('up', flush=True); time.sleep(60)") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 128 + signal.SIGTERM


LEAVES = """
import subprocess, sys, os
child = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True); time.sleep(60)"
started = subprocess.Popen([sys.executable, "-c", child], stdout=subprocess.PIPE)
started.stdout.readline()
print(started.pid, flush=True)
os._exit(0)
"""


def test_what_the_engine_leaves_is_ended_even_if_it_will_not() -> None:
    with start(LEAVES) as process:
        assert process.stdout is not None
        left = int(process.stdout.readline())
        assert process.wait(30) == 0
        assert not alive(left)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child of its parent's death")
def test_an_engine_whose_parent_is_killed_is_told() -> None:
    with start("import os, time; print(os.getpid(), flush=True); time.sleep(60)") as process:
        assert process.stdout is not None
        engine = int(process.stdout.readline())
        process.kill()
        process.wait(30)
        wait(lambda: not alive(engine))


def test_what_cannot_be_started_is_one_line() -> None:
    with pytest.raises(InputFault, match="no way to start engine 'abacus'"):
        find_launcher("abacus")
