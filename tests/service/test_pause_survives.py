"""A tool pause survived end to end, and lost without a policy: what counts is what the engine found cached.

Nothing is annotated. The gateway sees the tool call pass in an answer, and has the engine keep the prompt over its
control channel while other sessions flood it; the next request finds it, or not.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.service.test_zero_annotation import DONE, LOOK, Chat, Messages, Responses
from tests.service.through import Through, until
from tests.simulated.running import running

pytest.importorskip("openai")
pytest.importorskip("anthropic")

BLOCKS, BLOCK = 400, 16
LONG = " ".join(f"line{number}" for number in range(500))


@contextmanager
def watched(folder: Path, mode: str, policy: str = "coding_agent", blocks: int = BLOCKS) -> Iterator[Through]:
    """A gateway that reaches its engine's control channel."""
    folder.mkdir(exist_ok=True)
    channel = f"unix:{folder}/channel"
    with running("engine", "--blocks", str(blocks), "--decode-s", "0.0005", "--channel", channel) as engine:
        settings = folder / "kvp.toml"
        settings.write_text(
            f'[[upstream]]\nurl = "{engine}"\nchannel = "{channel}"\n'
            f'[policy]\nname = "{policy}"\nmode = "{mode}"\n[limits]\ndecide_within_s = 5.0\n'
        )
        with running("serve", "--config", str(settings)) as at:
            yield Through(at, engine)


def flood(gateway: Through, sessions: int = 14) -> None:
    """Other sessions, together more than the engine holds."""
    for number in range(sessions):
        text = " ".join(f"other{number}x{word}" for word in range(450))
        body = {"model": "sim", "messages": [{"role": "user", "content": text}], "max_tokens": 2}
        headers = {"x-session-id": f"flood-{number}"}
        assert httpx.post(f"{gateway.url}/v1/chat/completions", json=body, headers=headers, timeout=60).is_success


def aside(gateway: Through, session: str, number: int) -> None:
    """The session asks for something else meanwhile, with a prompt that has nothing in common with its own."""
    messages = [{"role": "system", "content": f"name the topic {LONG}"[:400]}, {"role": "user", "content": str(number)}]
    body = {"model": "sim", "messages": messages, "max_tokens": 2}
    headers = {"x-session-id": session}
    assert httpx.post(f"{gateway.url}/v1/chat/completions", json=body, headers=headers, timeout=60).is_success


def paused_and_flooded(
    gateway: Through, dialect: Any, session: str, *, enforced: bool = False, asides: int = 0
) -> tuple[int, int]:
    """(tokens cached when the tool's result comes, tokens that the prompt before had)."""
    talk = dialect(gateway, session, False)
    talk.more(LONG)
    talk.ask(LOOK)
    gateway.phase("tool_pause", session)
    owners = gateway.owners(session)
    if enforced and owners:  # the flood begins once the engine has heard
        held = owners[0]["requests"][-1]
        assert until(lambda: any(c["protected"] for c in gateway.get(f"/v1/explain/{held}/blocks/3")["claims"]), True)
    for number in range(asides):
        aside(gateway, session, number)
    flood(gateway)
    talk.result()
    return talk.ask(DONE), 500


@pytest.mark.parametrize("dialect", [Chat, Messages, Responses])
def test_a_prompt_stays_while_its_tool_runs(tmp_path: Path, dialect: Any) -> None:
    with watched(tmp_path / "on", "enforce") as gateway:
        cached, had = paused_and_flooded(gateway, dialect, f"kept-{dialect.__name__}", enforced=True)
        assert cached >= had
        assert gateway.counter("kvpolicy_reuse_tokens_total", mode="enforce", what="missed") == 0
        assert gateway.counter("kvpolicy_decisions_total", outcome="places_wrong") == 0


def test_other_prompts_of_the_session_meanwhile_end_nothing(tmp_path: Path) -> None:
    """The engine is told whose tool calls are open: else a second such prompt in a row ends the one that waits."""
    with watched(tmp_path / "asides", "enforce") as gateway:
        cached, had = paused_and_flooded(gateway, Chat, "asides", enforced=True, asides=3)
        assert cached >= had


def test_and_is_lost_without_a_policy(tmp_path: Path) -> None:
    with watched(tmp_path / "off", "off") as gateway:
        cached, had = paused_and_flooded(gateway, Chat, "lost")
        assert cached < had / 4


def test_shadow_loses_it_too_and_says_what_would_have_been_kept(tmp_path: Path) -> None:
    with watched(tmp_path / "shadow", "shadow") as gateway:
        cached, had = paused_and_flooded(gateway, Chat, "shadowed")
        assert cached < had / 4
        assert gateway.counter("kvpolicy_channel_total", what="sent") == 0

        def kept(what: str) -> float:
            return gateway.counter("kvpolicy_reuse_tokens_total", mode="shadow", what=what)

        assert until(lambda: kept("protected") >= had - 2 * BLOCK, True)
        assert kept("missed") >= kept("raised") >= kept("protected") > 0
        assert kept("missed") == kept("reusable") - cached


def test_a_block_is_explained_by_its_engine(tmp_path: Path) -> None:
    with watched(tmp_path / "explained", "enforce") as gateway:
        talk = Chat(gateway, "explained", False)
        talk.more(LONG)
        talk.ask(LOOK)
        assert gateway.phase("tool_pause", "explained") == "tool_pause"
        held = gateway.owners("explained")[0]["requests"][-1]

        row: dict[str, Any] = {}

        def told() -> bool:
            row.update(gateway.get(f"/v1/explain/{held}/blocks/3"))
            return row["answered"] and any(claim["covers"] and claim["protected"] for claim in row["claims"])

        assert until(told, True)
        assert row["decided"]["protected"]
        assert {claim["kind"] for claim in row["claims"]} >= {"turn"}
        assert gateway.counter("kvpolicy_channel_total", what="answer_accepted") > 0
        released = httpx.post(f"{gateway.url}/admin/release-all", timeout=30).json()
        assert released == {"engines": 1}

        def protected() -> bool:
            return any(c["protected"] for c in gateway.get(f"/v1/explain/{held}/blocks/3")["claims"])

        assert until(protected, False) is False
