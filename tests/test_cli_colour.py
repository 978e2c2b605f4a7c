"""Colours: on a terminal, and only where nobody asked for none; a file or a pipe gets the same letters without."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

ESCAPE = re.compile(r"\x1b\[[0-9;]*m")


def on_a_terminal(words: list[str], folder: Path, **more: str) -> str:
    """What a command writes where both of its streams are a terminal."""
    ours, theirs = pty.openpty()
    environment = {key: value for key, value in os.environ.items() if key != "NO_COLOR"} | {"TERM": "xterm", **more}
    process = subprocess.Popen(
        [sys.executable, "-m", "kvpolicy", *words],
        cwd=folder,
        env=environment,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    told = b""
    while True:
        try:
            piece = os.read(ours, 65536)
        except OSError:  # the other end is closed
            break
        if not piece:
            break
        told += piece
    os.close(ours)
    process.wait(timeout=60)
    return told.decode().replace("\r\n", "\n")


@pytest.mark.parametrize("command", ["check", "test"])
def test_colours_on_a_terminal_alone(command: str, tmp_path: Path) -> None:
    (tmp_path / "a.kvp").write_text("turn { priorty: 3 }\n")
    words = [command, "a.kvp"]
    piped = subprocess.run(
        [sys.executable, "-m", "kvpolicy", *words], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    plain = piped.stdout + piped.stderr
    assert "\x1b" not in plain
    coloured = on_a_terminal(words, tmp_path)
    assert "\x1b[1;31merror KVP101\x1b[0m" in coloured
    assert ESCAPE.sub("", coloured) == plain
    assert on_a_terminal(words, tmp_path, NO_COLOR="1") == plain
    assert on_a_terminal(words, tmp_path, TERM="dumb") == plain
    assert "\x1b" not in on_a_terminal(["check", "a.kvp", "--format", "json"], tmp_path)


def test_a_policy_cannot_colour_a_terminal(tmp_path: Path) -> None:
    (tmp_path / "a.kvp").write_text("turn { priority: \x1b[31m3 }\n")
    assert "\x1b[31m" not in on_a_terminal(["check", "a.kvp"], tmp_path)
