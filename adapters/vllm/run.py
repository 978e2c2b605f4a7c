"""The start command of a vLLM that follows ranks: `kvp run vllm …`, with every flag of the server passed on.

Adds what the server lacks (our scheduler, KV events, prompt-tokens details, the control channel) and nothing that the
caller gave. A vLLM of a version that the adapter does not know is started as it is, and that is said.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from kvpolicy.adapters.vllm import run_places
from kvpolicy.adapters.vllm.versions import OFF_VARIABLE, unknown
from kvpolicy.channel.wire import ADDRESS_VARIABLE
from kvpolicy.faults import InputFault
from kvpolicy.launching import Launch

SCHEDULER = "kvpolicy.adapters.vllm.scheduler.kvp_scheduler"
MODULE, CONSOLE = "vllm.entrypoints.openai.api_server", "vllm.entrypoints.cli.main"
_OURS = ("--kvp-python", "--kvp-off", "--kvp-channel", "--kvp-no-events")
_WHERE = "import importlib.util as u; s = u.find_spec('vllm'); print(s.submodule_search_locations[0] if s else '')"


def launch(words: Sequence[str]) -> Launch:
    """The command for `kvp run vllm WORDS`. Raises InputFault where there is no vLLM, or an option lacks its value."""
    options, rest = _split(list(words))
    python = options.get("--kvp-python") or sys.executable
    package = _package(python)
    version = read_version(package)
    command = [python, "-m", MODULE]
    if not (package / "entrypoints" / "openai" / "api_server.py").is_file():
        command = [python, "-m", CONSOLE, "serve"]
    notes = []
    if "--kvp-off" in options:
        # The plugin stands in vLLM's environment and would attach itself.
        return Launch([*command, *rest], {OFF_VARIABLE: "1"}, [f"vLLM {version} without kvpolicy: --kvp-off"])
    strange = unknown(version)
    if strange is not None:
        return Launch([*command, *rest], {}, [f"{strange}: it runs as it is"])
    port = _value(rest, "--port") or str(run_places.DEFAULT_PORT)
    places = run_places.places_of(int(port) if port.isdecimal() else 0)
    run_places.make(places)
    added: list[str] = []
    chosen = _value(rest, "--scheduler-cls")
    if chosen is None:
        added += ["--scheduler-cls", SCHEDULER]
    elif not chosen.startswith("kvpolicy."):
        notes.append(f"--scheduler-cls {chosen} is not ours: eviction follows ranks only if that one calls the adapter")
    if not _has(rest, "--enable-prompt-tokens-details") and not _has(rest, "--no-enable-prompt-tokens-details"):
        added.append("--enable-prompt-tokens-details")
    if not _has(rest, "--kv-events-config") and "--kvp-no-events" not in options:
        added += _events(rest, places, notes)
    channel = options.get("--kvp-channel") or os.environ.get(ADDRESS_VARIABLE) or places.channel
    notes.append(f"vLLM {version}, control channel {channel}")
    return Launch([*command, *rest, *added], {ADDRESS_VARIABLE: channel}, notes)


def read_version(package: Path) -> str:
    """vLLM's version as its files tell it, `unknown` where they do not; the package is not imported."""
    try:
        text = (package / "_version.py").read_text(encoding="utf-8")
    except OSError:
        return "unknown"
    found = re.search(r"^__version__ = version = ['\"]([^'\"]+)['\"]", text, re.MULTILINE)
    return found.group(1).partition("+")[0] if found else "unknown"  # of 0.32.0+cpu the build does not matter


def _events(rest: list[str], places: run_places.Places, notes: list[str]) -> list[str]:
    ranks = _value(rest, "--data-parallel-size") or _value(rest, "-dp") or "1"
    if ranks != "1":
        notes.append("several data-parallel ranks publish on ports: add --kv-events-config for KV events")
        return []
    config = {
        "enable_kv_cache_events": True,
        "publisher": "zmq",
        "endpoint": places.events,
        "replay_endpoint": places.replay,
    }
    notes.append(f"KV events {places.events}, replay {places.replay}")
    return ["--kv-events-config", json.dumps(config)]


def _split(words: list[str]) -> tuple[dict[str, str], list[str]]:
    """Our own options, and the server's."""
    options: dict[str, str] = {}
    rest: list[str] = []
    while words:
        word = words.pop(0)
        name, equals, value = word.partition("=")
        if name not in _OURS:
            if name.startswith("--kvp-"):
                raise InputFault(f"run vllm: unknown option {name}; ours are {', '.join(_OURS)}")
            rest.append(word)
        elif name in ("--kvp-off", "--kvp-no-events"):
            options[name] = "yes"
        elif equals or words:
            options[name] = value if equals else words.pop(0)
        else:
            raise InputFault(f"run vllm: {name} needs a value")
    return options, rest


def _package(python: str) -> Path:
    """The folder of the vllm package that this Python imports."""
    try:
        done = subprocess.run([python, "-c", _WHERE], capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError) as fault:
        raise InputFault(f"run vllm: {python} does not run: {fault}") from fault
    if not done.stdout.strip():
        raise InputFault(
            f"run vllm: {python} has no vllm; install kvpolicy beside vLLM (in a checkout: pip install --no-deps .), "
            "or name vLLM's Python with --kvp-python"
        )
    return Path(done.stdout.strip())


def _has(rest: list[str], flag: str) -> bool:
    return any(word == flag or word.startswith(flag + "=") for word in rest)


def _value(rest: list[str], flag: str) -> str | None:
    for at, word in enumerate(rest):
        if word == flag and at + 1 < len(rest):
            return rest[at + 1]
        if word.startswith(flag + "="):
            return word.partition("=")[2]
    return None
