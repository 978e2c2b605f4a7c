"""A gateway and its engine as processes, with the clients that people use, and a look at what the gateway knows."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.simulated.running import running

WITHIN_S = 10.0
SYSTEM = "You keep the answers short and the reasons long. " * 12


class Through:
    """url: of the gateway; engine: of the engine behind it."""

    def __init__(self, url: str, engine: str) -> None:
        self.url, self.engine = url, engine

    def chats(self) -> Any:
        """OpenAI's client for chat completions."""
        import openai

        return openai.OpenAI(base_url=f"{self.url}/v1", api_key="none", max_retries=0).chat.completions

    def responses(self) -> Any:
        """OpenAI's client for responses."""
        import openai

        return openai.OpenAI(base_url=f"{self.url}/v1", api_key="none", max_retries=0).responses

    def messages(self) -> Any:
        """Anthropic's client."""
        import anthropic

        return anthropic.Anthropic(base_url=self.url, api_key="none", max_retries=0).messages

    def get(self, path: str) -> Any:
        """A route of the gateway's own."""
        answer = httpx.get(self.url + path, timeout=30)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def owners(self, session: str | None = None) -> list[Mapping[str, Any]]:
        """Owners that are known."""
        found = self.get("/v1/owners")["owners"]
        return [row for row in found if session is None or row["session"] == session]

    def phase(self, wanted: str, session: str) -> str:
        """The phase of a session's owner, waited for: an answer's end is read as it passes."""

        def now() -> str:
            rows = self.owners(session)
            return rows[-1]["phase"] if rows else "unknown"

        return until(now, wanted)

    def counter(self, name: str, **labels: str) -> float:
        """The sum of a counter's rows that have these labels."""
        total = 0.0
        for line in httpx.get(f"{self.url}/metrics", timeout=30).text.splitlines():
            head, _, value = line.rpartition(" ")
            if head.partition("{")[0] == name and all(f'{key}="{said}"' in head for key, said in labels.items()):
                total += float(value)
        return total


def until(look: Callable[[], Any], wanted: Any, within: float = WITHIN_S) -> Any:
    """What is seen, once it is what is wanted or the time is over."""
    ends = time.monotonic() + within
    while (seen := look()) != wanted and time.monotonic() < ends:
        time.sleep(0.05)
    return seen


@contextmanager
def through(
    *serve: str, engine: Sequence[str] = ("--blocks", "400", "--decode-s", "0.0005"), log: Path | None = None
) -> Iterator[Through]:
    """An engine and a gateway in front of it."""
    with running("engine", *engine) as behind, running("serve", "--upstream", behind, *serve, log=log) as at:
        yield Through(at, behind)
