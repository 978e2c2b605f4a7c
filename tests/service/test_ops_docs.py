"""The page about the gateway: every key of the configuration with its default, and sessions that run as they stand."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from contextlib import ExitStack
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


def commands(session: str) -> list[tuple[str, str]]:
    """The `$` lines of a session, in one line each, with what they print."""
    found = []
    for part in re.split(r"^\$ ", session, flags=re.MULTILINE)[1:]:
        command, _, shown = part.partition("\n")
        while command.endswith("\\") or shown.startswith("> "):
            line, _, shown = shown.partition("\n")
            command = f"{command.removesuffix(chr(92))} {line.lstrip('> ')}"
        found.append((command, shown))
    return found


def test_sessions_on_the_page_run_as_they_stand(tmp_path: Path) -> None:
    """`$` lines run in a shell, servers (`&`) with the page's own options on free ports; `…` stands for anything."""
    sessions = SESSION.findall(PAGE.read_text(encoding="utf-8"))
    assert len(sessions) >= 5
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    # What the page says, and what it is here.
    places = {f"/tmp/{name}": str(tmp_path / name) for name in ("kvp.sock", "kvp.toml")}

    def here(text: str) -> str:
        for shown, real in places.items():
            text = text.replace(shown, real)
        return text

    with ExitStack() as servers:
        for command, shown in (row for session in sessions for row in commands(session)):
            if command.endswith("&"):
                kvp, name, *options = here(command.removesuffix("&")).split()
                at = options.index("--port")
                port = options[at + 1]
                del options[at : at + 2]
                assert kvp == "kvp"
                log = tmp_path / f"{name}.log"
                places[f"http://127.0.0.1:{port}"] = servers.enter_context(running(name, *options, log=log))
                assert not log.read_text(), "the start of the page is one that nothing has to be said of"
                continue
            told = subprocess.run(
                here(command),
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
