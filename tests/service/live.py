"""A gateway as a process, whose configuration's file a test writes anew while it runs."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from tests.service.test_edge_passing import CHAT
from tests.service.test_edge_refusals import hashed
from tests.simulated.running import started


def tenant(name: str, *keys: str, more: str = "") -> str:
    return f'[[tenant]]\nname = "{name}"\nkeys = {[hashed(key) for key in keys]}\n{more}\n'


@dataclass(slots=True)
class Live:
    """A gateway, its configuration's file, and what it said."""

    at: str
    process: int
    file: Path
    log: Path
    head: str

    def write(self, *parts: str) -> None:
        """The file anew, at once, as an editor does."""
        new = self.file.with_suffix(".new")
        new.write_text(self.head + "\n".join(parts))
        new.rename(self.file)

    def signal(self) -> None:
        os.kill(self.process, signal.SIGHUP)

    def status(self, key: str, **headers: str) -> int:
        told = {"x-api-key": key, **headers}
        return httpx.post(f"{self.at}/v1/chat/completions", json=CHAT, headers=told, timeout=30).status_code

    def admin(self, method: str = "GET", key: str = "op", **more: Any) -> httpx.Response:
        told = {"authorization": f"Bearer {key}"}
        return httpx.request(method, f"{self.at}/admin/tenants", headers=told, timeout=30, **more)

    def seen(self) -> Any:
        return self.admin().json()

    def metric(self, row: str) -> float:
        """What metrics say of one row."""
        text = httpx.get(f"{self.at}/metrics", headers={"authorization": "Bearer op"}, timeout=30).text
        return float(next(line for line in text.splitlines() if line.startswith(row)).rpartition(" ")[2])


@contextmanager
def live(tmp_path: Path, url: str, *parts: str, head: str = "") -> Iterator[Live]:
    file, log = tmp_path / "serve.toml", tmp_path / "serve.log"
    head = f'{head}\n[[upstream]]\nurl = "{url}"\n[admin]\nkey = "{hashed("op")}"\n'
    file.write_text(head + "\n".join(parts))
    with started("serve", "--config", str(file), "--mode", "shadow", log=log) as told:
        yield Live(told["url"], told["pid"], file, log, head)
