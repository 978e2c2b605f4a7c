"""The start command: what is added, what is left alone, and what is said. The real server's start is a live test."""

from __future__ import annotations

import json
import shlex
import stat
import sys
from pathlib import Path

import pytest

from kvpolicy.adapters.vllm.run import SCHEDULER, launch, read_version
from kvpolicy.adapters.vllm.run_places import places_of
from kvpolicy.cli.main import main
from kvpolicy.faults import InputFault
from kvpolicy.launching import Launch


@pytest.fixture
def python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An interpreter that finds a package called vllm, of version 0.32.0 by its files."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.delenv("KVPOLICY_CHANNEL", raising=False)
    package = tmp_path / "site" / "vllm"
    (package / "entrypoints" / "openai").mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('imported')\n", encoding="utf-8")
    (package / "entrypoints" / "openai" / "api_server.py").touch()
    version(tmp_path, "0.32.0+cpu")
    wrapper = tmp_path / "python"
    site = shlex.quote(str(tmp_path / "site"))
    wrapper.write_text(f'#!/bin/sh\nPYTHONPATH={site} exec {shlex.quote(sys.executable)} "$@"\n', encoding="utf-8")
    wrapper.chmod(0o755)
    return wrapper


def version(folder: Path, text: str) -> None:
    (folder / "site" / "vllm" / "_version.py").write_text(f"__version__ = version = '{text}'\n", encoding="utf-8")


def start(python: Path, *words: str) -> Launch:
    return launch([f"--kvp-python={python}", *words])


def value(made: Launch, flag: str) -> str:
    return made.command[made.command.index(flag) + 1]


def test_what_is_lacking_is_added_behind_what_is_given(python: Path, tmp_path: Path) -> None:
    made = start(python, "--model", "m", "--port", "8123")
    assert made.command[:7] == [
        str(python),
        "-m",
        "vllm.entrypoints.openai.api_server",
        "--model",
        "m",
        "--port",
        "8123",
    ]
    assert value(made, "--scheduler-cls") == SCHEDULER
    assert "--enable-prompt-tokens-details" in made.command
    folder = tmp_path / "kvpolicy" / "vllm-8123"
    assert json.loads(value(made, "--kv-events-config")) == {
        "enable_kv_cache_events": True,
        "publisher": "zmq",
        "endpoint": f"ipc://{folder}/events",
        "replay_endpoint": f"ipc://{folder}/replay",
    }
    assert made.environment == {"KVPOLICY_CHANNEL": f"unix:{folder}/channel"}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700 == stat.S_IMODE(folder.parent.stat().st_mode)
    assert places_of(8123).channel == made.environment["KVPOLICY_CHANNEL"]


@pytest.mark.parametrize(
    ("words", "flag"),
    [
        (["--scheduler-cls", "mine.Own"], "--scheduler-cls"),
        (["--scheduler-cls=mine.Own"], "--scheduler-cls"),
        (["--kv-events-config", "{}"], "--kv-events-config"),
        (["--no-enable-prompt-tokens-details"], "--enable-prompt-tokens-details"),
        (["--enable-prompt-tokens-details"], ""),
        (["--data-parallel-size", "2"], "--kv-events-config"),
        (["--kvp-no-events"], "--kv-events-config"),
    ],
)
def test_what_is_given_stays(python: Path, words: list[str], flag: str) -> None:
    made = start(python, *words)
    given = [word for word in words if not word.startswith("--kvp-")]
    added = made.command[3 + len(given) :]
    assert made.command[3 : 3 + len(given)] == given
    assert flag not in added and made.command.count("--enable-prompt-tokens-details") <= 1
    if words[0].startswith("--scheduler-cls"):
        assert any("is not ours" in note for note in made.notes)


def test_an_unknown_version_runs_as_it_is_and_that_is_said(python: Path, tmp_path: Path) -> None:
    version(tmp_path, "0.99.1")
    made = start(python, "--model", "m")
    assert made.command[3:] == ["--model", "m"] and made.environment == {}
    assert "0.99.1 is not known" in made.notes[0] and "runs as it is" in made.notes[0]
    (tmp_path / "site" / "vllm" / "_version.py").unlink()
    assert read_version(tmp_path / "site" / "vllm") == "unknown"
    assert start(python).environment == {}


def test_off_keeps_the_plugin_off_too(python: Path) -> None:
    made = start(python, "--kvp-off", "--model", "m")
    assert (made.command[3:], made.environment) == (["--model", "m"], {"KVPOLICY_OFF": "1"})


def test_a_channel_of_ones_own(python: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert start(python, "--kvp-channel", "tcp://127.0.0.1:5").environment == {"KVPOLICY_CHANNEL": "tcp://127.0.0.1:5"}
    monkeypatch.setenv("KVPOLICY_CHANNEL", "unix:/x")
    assert start(python).environment == {"KVPOLICY_CHANNEL": "unix:/x"}


def test_a_vllm_without_that_module_is_started_by_its_command(python: Path, tmp_path: Path) -> None:
    (tmp_path / "site" / "vllm" / "entrypoints" / "openai" / "api_server.py").unlink()
    assert start(python).command[:4] == [str(python), "-m", "vllm.entrypoints.cli.main", "serve"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--kvp-loud"], "unknown option --kvp-loud"),
        (["--kvp-channel"], "--kvp-channel needs a value"),
        (["--kvp-python", "/no/python"], "does not run"),
        (["--kvp-python", sys.executable], "has no vllm"),
    ],
)
def test_what_cannot_be_is_said(words: list[str], said: str) -> None:
    with pytest.raises(InputFault, match=said):
        launch(words)


def test_the_command_shows_and_runs_nothing(python: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "vllm", "--kvp-show", "--kvp-python", str(python), "--model", "a b"]) == 0
    shown = capsys.readouterr()
    assert shown.out.startswith("KVPOLICY_CHANNEL=unix:/") and "--model 'a b'" in shown.out
    assert "vLLM 0.32.0, control channel" in shown.err
    assert main(["run", "abacus"]) == 2
    assert "no way to start engine 'abacus'" in capsys.readouterr().err
