"""What the tests of all frameworks share: other traffic, what an engine holds, a page's example."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import httpx

ROOT = Path(__file__).resolve().parents[2]
LONG = "Everything that was said up to here is kept for the next time. " * 12
KEEPER = 'any[agent="keeper"] { priority: 90  ttl: 10min }\n'
WAITS = "on tool_call until tool_result { waits: any { retention: hold 60s } }\n"
JOINED = "on branch_done { joined: any { retention: drop } }\n"
BLOCK = re.compile(r"^```py\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def flood(service: str) -> None:
    """Others use the engine: more blocks than it has."""
    for number in range(14):
        messages = [{"role": "user", "content": f"{number} other words that nobody needs again " * 20}]
        body = {"model": "sim", "messages": messages, "max_tokens": 1}
        httpx.post(f"{service}/v1/chat/completions", json=body, timeout=30).raise_for_status()


def cached(service: str, words: str, **headers: str) -> int:
    """How many tokens the engine finds of one message."""
    body = {"model": "sim", "messages": [{"role": "user", "content": words}], "max_tokens": 1}
    answer = httpx.post(f"{service}/v1/chat/completions", json=body, headers=headers, timeout=30)
    return answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"]


def asks_for(name: str, arguments: str = "{}", call: str = "c1") -> dict[str, Any]:
    """The field of a body that makes the simulated engine ask for a tool."""
    function = {"name": name, "arguments": arguments}
    return {"sim_reply": {"content": "", "tool_calls": [{"id": call, "type": "function", "function": function}]}}


def example(page: str, service: str, **names: Any) -> dict[str, Any]:
    """Run the first example of docs/frameworks/PAGE.md against a service; what it defined."""
    text = (ROOT / "docs" / "frameworks" / f"{page}.md").read_text(encoding="utf-8")
    found = BLOCK.search(text)
    assert found is not None, page
    code = found[1].replace("http://127.0.0.1:8700", service)
    assert service in code
    space = dict(names)
    exec(compile(code, f"{page}.md", "exec"), space)  # the page's own text
    return space


def all_owners(service: str, start: str, count: int) -> list[tuple[str, str]]:
    """Session and agent of the owners whose sessions begin so, when there are as many: plans follow when their places
    are known."""
    for _ in range(100):
        rows = [row for row in owners(service) if row["session"].startswith(start)]
        if len(rows) >= count:
            break
        time.sleep(0.1)
    return sorted((row["session"], row["agent"]) for row in rows)


def owners(service: str, **named: str) -> list[dict[str, Any]]:
    """The rows of /v1/owners."""
    return httpx.get(f"{service}/v1/owners", params=named).json()["owners"]
