"""Requests follow their prefix to the engine that has it, as its own KV events tell; several engines as processes."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from kvpolicy.service.config import Upstream
from kvpolicy.service.residents import LIKELY, Residents
from tests.service.through import Through, until
from tests.simulated.running import running
from tests.store.servers import free_port

pytest.importorskip("zmq")

LONG = " ".join(f"word{number}" for number in range(300))


def ask(at: str, messages: list[dict[str, Any]]) -> tuple[dict[str, Any], int]:
    body = {"model": "sim", "messages": messages, "max_tokens": 4}
    answer = httpx.post(f"{at}/v1/chat/completions", json=body, timeout=60).json()
    return answer["choices"][0]["message"], answer["usage"]["prompt_tokens_details"]["cached_tokens"]


def requests_of(engine: str) -> int:
    rows = httpx.get(f"{engine}/sim/events", timeout=30).json()["events"]
    return len(rows)


@pytest.mark.parametrize("events", [True, False], ids=["with events", "without"])
def test_a_conversation_goes_back_to_the_engine_that_has_it(tmp_path: Path, events: bool) -> None:
    with ExitStack() as stack:
        ports = [(free_port(), free_port()) for _ in range(2)]
        engines = [
            stack.enter_context(
                running("engine", "--decode-s", "0.02", "--blocks", "400",
                        "--events", f"tcp://127.0.0.1:{live}", "--replay", f"tcp://127.0.0.1:{replay}")
            )
            for live, replay in ports
        ]  # fmt: skip
        rows = "".join(
            f'[[upstream]]\nurl = "{url}"\n'
            + (f'events = "tcp://127.0.0.1:{live}"\nreplay = "tcp://127.0.0.1:{replay}"\n' if events else "")
            for url, (live, replay) in zip(engines, ports, strict=True)
        )
        settings = tmp_path / "kvp.toml"
        settings.write_text(f"{rows}[routing]\nload_tokens = 64\n[limits]\ndecide_within_s = 5.0\n")
        at = stack.enter_context(running("serve", "--config", str(settings)))
        gateway = Through(at, engines[0])
        # The first engine is busy, so the conversation begins at the second.
        busy, begun = threading.Event(), threading.Event()

        def stream() -> None:
            body = {
                "model": "sim",
                "messages": [{"role": "user", "content": "busy"}],
                "max_tokens": 500,
                "ignore_eos": True,
                "stream": True,
            }
            with httpx.stream("POST", f"{at}/v1/chat/completions", json=body, timeout=60) as answer:
                for _ in answer.iter_lines():
                    begun.set()
                    if busy.is_set():
                        return

        thread = threading.Thread(target=stream)
        thread.start()
        assert begun.wait(30)
        messages = [{"role": "system", "content": LONG}, {"role": "user", "content": "first"}]
        message, _ = ask(at, messages)
        busy.set()
        thread.join(30)
        assert until(lambda: gateway.counter("kvpolicy_requests_running"), 0.0) == 0
        if events:
            state = f'engine="{engines[1]}"'
            until(lambda: state in httpx.get(f"{at}/metrics").text and _live(at, engines[1]), True)
        messages += [message, {"role": "user", "content": "second"}]
        _, cached = ask(at, messages)
        if events:
            assert cached >= 300
            assert gateway.counter("kvpolicy_routing_total", how="resident") >= 1
        else:
            assert cached == 0  # the first engine has nothing of it, and nobody knows


@pytest.mark.parametrize("stated", [None, 8], ids=["not configured", "configured wrongly"])
def test_an_engines_own_block_size_counts_once_its_events_have_told_it(tmp_path: Path, stated: int | None) -> None:
    size, port = 32, free_port()
    with running(
        "engine", "--blocks", "400", "--block-size", str(size), "--events", f"tcp://127.0.0.1:{port}"
    ) as engine:
        settings = tmp_path / "kvp.toml"
        settings.write_text(
            f'[[upstream]]\nurl = "{engine}"\nevents = "tcp://127.0.0.1:{port}"\n'
            + (f"block_size = {stated}\n" if stated else "")
            + "[limits]\ndecide_within_s = 5.0\n"
        )
        with running("serve", "--config", str(settings)) as at:
            turns = iter(range(1000))

            def block() -> tuple[int, int] | None:
                """Where block 1 of a new prompt lies, by its plan."""
                messages = [{"role": "user", "content": f"turn {next(turns)} {LONG}"}]
                body = {"model": "sim", "messages": messages, "max_tokens": 2}
                answer = httpx.post(f"{at}/v1/chat/completions", json=body, timeout=60)
                held = answer.headers["x-kvp-decision"].split('"')[1]
                told = httpx.get(f"{at}/v1/explain/{held}/blocks/1", timeout=30)
                return (told.json()["start"], told.json()["end"]) if told.is_success else None

            assert until(block, (size, 2 * size)) == (size, 2 * size)


def test_the_size_is_that_of_the_engines_of_a_model() -> None:
    engines = [
        Upstream(url="http://a", models=("one",), block_size=32),
        Upstream(url="http://b", models=("two",)),
        Upstream(url="http://c", block_size=64),
    ]
    residents = Residents(engines, "vllm", lambda: 0.0)
    assert [residents.size_for(model) for model in ("one", "two", None)] == [32, 64, 32]
    assert Residents(engines[1:2], "vllm", lambda: 0.0).size_for("two") == LIKELY


def _live(at: str, engine: str) -> bool:
    rows = httpx.get(f"{at}/metrics", timeout=30).text.splitlines()
    return any(row.startswith("kvpolicy_events_state") and engine in row and 'state="live"' in row for row in rows)
