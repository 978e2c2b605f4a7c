"""Starting an engine and staying with it: what a launcher answers, and the process that `kvp run` keeps.

An adapter's launcher (entry points `kvpolicy.launchers`) turns `kvp run ENGINE WORDS` into a `Launch`; `supervise`
runs it. Signals go on to the engine, its exit status comes back, and nothing of it outlives us.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from types import FrameType

from kvpolicy.faults import InputFault

GROUP = "kvpolicy.launchers"
PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
LEFT_WITHIN_S = 5.0
_PDEATHSIG, _SUBREAPER = 1, 36


@dataclass(frozen=True, slots=True)
class Launch:
    """command: the words to run. environment: variables set beside those that are there. notes: lines for a person."""

    command: list[str]
    environment: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def find_launcher(engine: str) -> Callable[[Sequence[str]], Launch]:
    """The launcher of that engine. Raises InputFault naming the installed ones."""
    offered = {point.name: point for point in entry_points(group=GROUP)}
    if engine not in offered:
        known = ", ".join(sorted(offered)) or "none"
        raise InputFault(f"no way to start engine '{engine}' is installed (installed: {known})")
    try:
        found: Callable[[Sequence[str]], Launch] = offered[engine].load()
    except (ImportError, AttributeError) as fault:
        raise InputFault(f"the launcher for engine '{engine}' cannot be loaded: {fault}") from fault
    return found


def supervise(launch: Launch) -> int:
    """Run it to its end. Returns its exit status; 128 plus the signal's number where one ended it. Raises OSError where
    it cannot be started."""
    _prctl(_SUBREAPER, 1)
    early: list[int] = []
    engine: subprocess.Popen[bytes] | None = None

    def pass_on(number: int, _frame: FrameType | None) -> None:
        if engine is None:
            early.append(number)
        elif engine.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(engine.pid, number)

    with _handling(pass_on):
        # A session of its own: a Ctrl-C reaches it once, through us, and its children form one group.
        engine = subprocess.Popen(
            launch.command,
            env={**os.environ, **launch.environment},
            start_new_session=True,
            preexec_fn=_die_with_us if sys.platform == "linux" else None,  # noqa: PLW1509  (no threads run here)
        )
        for number in early:
            pass_on(number, None)
        status = engine.wait()
        _end_group(engine.pid)
    return status if status >= 0 else 128 - status


def _end_group(group: int) -> None:
    """End what the engine left behind."""
    ends = time.monotonic() + LEFT_WITHIN_S
    word = signal.SIGTERM
    while True:
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        try:
            os.killpg(group, word)
        except (ProcessLookupError, PermissionError):
            return
        if time.monotonic() >= ends + LEFT_WITHIN_S:
            return
        if time.monotonic() >= ends:
            word = signal.SIGKILL
        time.sleep(0.1)


@contextlib.contextmanager
def _handling(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    before = {number: signal.signal(number, handler) for number in PASSED_ON}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


def _die_with_us() -> None:
    """In the child, before it becomes the engine: a SIGTERM when we are gone without having passed one on."""
    _prctl(_PDEATHSIG, signal.SIGTERM)


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
