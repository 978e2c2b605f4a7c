"""The page about the gateway: every key of the configuration with its default, and sessions that run as they stand."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import BaseModel

from kvpolicy.service.config import Config, checked_config
from tests.simulated.running import running

PAGE = Path(__file__).resolve().parents[2] / "docs" / "service.md"
ROW = re.compile(r"^\| `([a-z_.]+)` \| (.*?) \| (.+) \|$", re.MULTILINE)
SESSION = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TOML = re.compile(r"^```toml\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def _models(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in get_args(annotation) for model in _models(part)]


def keys(model: type[BaseModel] = Config, before: str = "") -> dict[str, str]:
    """Every key with its default, as the page writes them."""
    found = {}
    for name, field in model.model_fields.items():
        inner = _models(field.annotation)
        if inner:
            found |= keys(inner[0], f"{before}{name}.")
        elif name == "closed":
            found[name] = "see there"
        elif field.is_required():
            found[before + name] = "needed"
        else:
            found[before + name] = _told(field.default)
    return found


def _told(value: Any) -> str:
    if value is None or value in ((), {}):
        return "none"
    if isinstance(value, tuple):
        return ", ".join(f"`{each}`" for each in value)
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def test_every_key_of_the_configuration_is_described_with_its_default() -> None:
    rows = {name: default for name, default, _ in ROW.findall(PAGE.read_text(encoding="utf-8"))}
    assert rows == keys()


def test_configurations_on_the_page_are_read() -> None:
    import tomllib

    texts = TOML.findall(PAGE.read_text(encoding="utf-8"))
    assert texts
    for text in texts:
        checked_config(tomllib.loads(text), "the page")


def test_sessions_on_the_page_run_as_they_stand() -> None:
    """`$` lines run in a shell, with the addresses of a gateway and an engine that run; `…` stands for anything."""
    sessions = SESSION.findall(PAGE.read_text(encoding="utf-8"))
    assert len(sessions) >= 4
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    with running("engine", "--blocks", "512") as engine, running("serve", "--upstream", engine) as at:
        for session in sessions:
            for part in re.split(r"^\$ ", session, flags=re.MULTILINE)[1:]:
                command, _, shown = part.partition("\n")
                while command.endswith("\\"):
                    line, _, shown = shown.partition("\n")
                    command = f"{command[:-1]} {line.lstrip('> ')}"
                if command.endswith("&"):
                    continue  # they run already
                command = command.replace("http://127.0.0.1:8080", at).replace("http://127.0.0.1:8000", engine)
                told = subprocess.run(
                    command,
                    shell=True,
                    capture_output=True,
                    text=True,
                    timeout=60,
                    check=False,
                    env={**os.environ, "PATH": path},
                )
                pattern = ".*".join(re.escape(piece) for piece in shown.strip().split("…"))
                assert re.fullmatch(pattern, told.stdout.strip(), re.DOTALL), f"$ {command}\n{told.stdout}{told.stderr}"


@pytest.mark.parametrize("word", ["prompt", "key", "session"])
def test_the_page_says_what_is_never_written(word: str) -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert word in text[text.index("## What is never written") :]
