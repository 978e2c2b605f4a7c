"""The second side of a history as processes: `kvp serve` in front of `kvp engine`, over sockets and a control channel.

Every history is a tenant of its own, so that all share one gateway and one engine. Time is real there: a history is
played without its waits, and what is seen is waited for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from kvpolicy.claims.strength import PROTECTED
from kvpolicy.hashes import block_hashes
from kvpolicy.request import Owner
from kvpolicy.service.isolation import load_secret, mint
from kvpolicy.simulated.answer import answer_of
from kvpolicy.simulated.chat import render
from tests.service.same import BLOCKS, LONGEST, SIZE, Ask
from tests.service.same_sides import History
from tests.service.test_edge_refusals import hashed
from tests.service.through import until
from tests.simulated.running import running

SECRET = "a secret of sixteen bytes or more"


class Processes:
    """One tenant's side. gateway, engine: their addresses."""

    def __init__(self, gateway: str, engine: str, tenant: str, secret: bytes) -> None:
        self.client = httpx.Client(base_url=gateway, headers={"x-api-key": f"key-{tenant}"}, timeout=60)
        self.engine, self.tenant, self.secret = engine, tenant, secret
        self.hashes: dict[str, list[str]] = {}

    def begin(self, ask: Ask) -> None:
        """Nothing yet: request and answer are one exchange."""

    def end(self, ask: Ask) -> None:
        """The exchange, and what the gateway makes of its end."""
        answer = self.client.post("/v1/chat/completions", json={**ask.body, "kvp": ask.kvp})
        assert answer.is_success, answer.text
        salt = mint(self.secret, Owner(self.tenant), "tenant")
        prompt = render(ask.messages).tokens
        made = answer_of(dict(ask.reply), prompt, ask.most, LONGEST).tokens
        whole = block_hashes([*prompt, *made][:-1], SIZE, {"model": ask.model, "salt": salt})
        self.hashes[ask.id] = [block.hex() for block in whole]
        assert until(lambda: "running" in self._phases(), False) is False

    def _phases(self) -> list[str]:
        return [row["phase"] for row in self.client.get("/v1/owners").json()["owners"]]

    def event(self, name: str, **fields: Any) -> None:
        """Told to the gateway's own route."""
        (hint,) = self.client.post("/v1/events", json={"event": name, **fields}).json()["hints"]
        assert hint["status"] in ("accepted", "ignored"), hint

    def wait(self, seconds: float) -> None:
        """Its time passes by itself."""

    def strengths(self, name: str) -> list[int | None]:
        """Of the blocks of a prompt with its answer, as the engine shows them."""
        rows = httpx.get(f"{self.engine}/sim/blocks?most=100000", timeout=30).json()["blocks"]
        seen = {row["hash"]: row["rank"] + PROTECTED * row["protected"] for row in rows}
        return [seen.get(block) for block in self.hashes[name]]

    def settled(self, name: str, wanted: list[int | None]) -> list[int | None]:
        """The same, waited for."""
        return until(lambda: self.strengths(name), wanted)


@contextmanager
def processes(folder: Path, histories: Sequence[History]) -> Iterator[dict[str, Processes]]:
    """Both, with a tenant for each history."""
    channel, secret = f"unix:{folder}/channel", folder / "secret"
    secret.write_text(SECRET)
    lines = [f'secret_file = "{secret}"', "[limits]", "decide_within_s = 5.0"]
    for history in histories:
        policy = folder / f"{history.name}.kvp"
        policy.write_text(history.policy)
        lines += [
            "[[tenant]]", f'name = "{history.name}"', f'keys = ["{hashed(f"key-{history.name}")}"]',
            f'policy = "{policy}"', 'caps = { max_hold = "24h", max_ttl = "48h" }',
        ]  # fmt: skip
    with running("engine", "--blocks", str(BLOCKS), "--decode-s", "0.0005", "--channel", channel) as engine:
        lines += ["[[upstream]]", f'url = "{engine}"', f'channel = "{channel}"']
        settings = folder / "kvp.toml"
        settings.write_text("\n".join(lines) + "\n")
        with running("serve", "--config", str(settings)) as gateway:
            key = load_secret(str(secret))
            yield {each.name: Processes(gateway, engine, each.name, key) for each in histories}
