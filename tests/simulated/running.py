"""A `kvp` server as a process of its own: started, asked for its address, stopped."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PYTHON = os.environ.get("KVPOLICY_PYTHON", sys.executable)  # another where an engine's environment runs the test
READY_WITHIN_S = 60


@contextmanager
def running(command: str, *options: str, log: Path | None = None) -> Iterator[str]:
    """The address of `kvp COMMAND --port 0 OPTIONS`. It must end cleanly at SIGTERM."""
    with started(command, *options, log=log) as told:
        yield told["url"]


@contextmanager
def started(command: str, *options: str, log: Path | None = None) -> Iterator[dict[str, Any]]:
    """The same, and all that it says when it is ready. log: a file for what it says besides."""
    with (
        tempfile.TemporaryFile() if log is None else log.open("w+b") as said,  # a pipe that nobody reads would fill
        subprocess.Popen(
            [PYTHON, "-m", "kvpolicy", command, "--port", "0", *options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=said,
            cwd=ROOT,
        ) as process,
    ):
        assert process.stdout is not None
        try:
            ready, _, _ = select.select([process.stdout], [], [], READY_WITHIN_S)
            line = process.stdout.readline() if ready else b""
            if not line:
                process.kill()
                said.seek(0)
                raise AssertionError(f"kvp {command} did not start: {said.read().decode()}")
            told = json.loads(line)
            assert told["pid"] == process.pid
            yield told
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                try:
                    process.wait(20)
                except subprocess.TimeoutExpired:
                    process.kill()
                    raise
    assert process.returncode in (0, -signal.SIGTERM), process.returncode
