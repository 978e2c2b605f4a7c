"""The doctor before servers that are none, or strange. What it says of real ones is a live test."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from kvpolicy.adapters.vllm.doctor import examine
from kvpolicy.cli.main import main
from kvpolicy.examining import Finding, Patient
from kvpolicy.faults import InputFault

Answers = dict[str, tuple[int, Any]]


@contextmanager
def server(answers: Answers) -> Iterator[tuple[str, list[str]]]:
    """Answers by path, 404 elsewhere; the paths that were asked for."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.rfile.read(int(self.headers.get("content-length") or 0))
            status, body = answers.get(self.path, (404, "none"))
            said = body.encode() if isinstance(body, str) else json.dumps(body).encode()
            self.send_response(status)
            self.send_header("content-length", str(len(said)))
            self.end_headers()
            self.wfile.write(said)

        do_POST = do_GET

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as opened:
        thread = threading.Thread(target=opened.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{opened.server_port}", asked
        finally:
            opened.shutdown()
            thread.join()


def findings(url: str, **more: Any) -> dict[str, Finding]:
    return {finding.name: finding for finding in examine(Patient(url, **more))}


def metrics(**settings: object) -> str:
    inside = ",".join(f'{name}="{value}"' for name, value in settings.items())
    return f"# TYPE x gauge\nvllm:cache_config_info{{{inside}}} 1.0\n"


VLLM: Answers = {
    "/version": (200, {"version": "0.32.0"}),
    "/metrics": (200, metrics(enable_prefix_caching=True, num_gpu_blocks=48, block_size=32)),
    "/v1/models": (200, {"data": [{"id": "m"}]}),
    "/v1/completions": (200, {"usage": {"prompt_tokens": 3}}),
    "/kv_event_sources": (200, {}),
}


def test_an_unknown_version_is_asked_nothing_more() -> None:
    with server({"/version": (200, {"version": "0.99.0"})}) as (url, asked):
        found = findings(url)
        assert main(["doctor", "vllm", url]) == 1
    assert list(found) == ["version"] and found["version"].state == "broken"
    assert "0.99.0 is not known" in found["version"].message and "sends nothing" in (found["version"].mend or "")
    assert set(asked) == {"/version"}


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ({}, "no vLLM: GET /version answers 404"),
        ({"/version": (200, "<html>")}, "no JSON"),
        ({"/version": (200, [])}, "tells no version"),
        ({"/version": (200, {"version": 3})}, "tells no version"),
        ({**VLLM, "/v1/models": (200, {"data": []})}, "names no model"),
        ({**VLLM, "/v1/completions": (500, "broken")}, "/v1/completions answers 500: broken"),
    ],
)
def test_what_is_no_vllm_is_one_line(answers: Answers, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with server(answers) as (url, _):
        assert main(["doctor", "vllm", url]) == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1


def test_nobody_there_and_no_address() -> None:
    with pytest.raises(InputFault, match="no answer"):
        examine(Patient("http://127.0.0.1:9"))
    with pytest.raises(InputFault, match="an address such as"):
        examine(Patient("localhost:8000"))


def test_missing_flags_are_named() -> None:
    with server(VLLM) as (url, _):
        found = findings(url)
    assert {name: row.state for name, row in found.items()} == {
        "version": "good",
        "prefix caching": "good",
        "control channel": "missing",
        "KV events": "missing",
        "cached tokens": "missing",
    }
    assert "--enable-prompt-tokens-details" in (found["cached tokens"].mend or "")
    assert "kvp run vllm" in (found["control channel"].mend or "")


def test_without_prefix_caching_nothing_is_probed() -> None:
    with server({**VLLM, "/metrics": (200, metrics(enable_prefix_caching=False))}) as (url, asked):
        found = findings(url)
    assert found["prefix caching"].state == "missing" and "/v1/completions" not in asked


@pytest.mark.parametrize(
    ("row", "state", "word"),
    [
        ({"endpoint": "tcp://*:5557", "replay_endpoint": "tcp://*:5558"}, "good", "5557"),
        ({"endpoint": "ipc:///x", "replay_endpoint": "ipc:///y"}, "good", "ipc"),
        ({"endpoint": "tcp://*:5557", "replay_endpoint": None}, "missing", "a gap stays"),
        ({"endpoint": "tcp://127.0.0.1:5557", "replay_endpoint": "tcp://*:5558"}, "broken", "connects"),
    ],
)
def test_events_that_cannot_be_heard(row: dict[str, Any], state: str, word: str) -> None:
    on = {"0": {"enable_kv_cache_events": True, "publisher": "zmq", **row}}
    with server({**VLLM, "/kv_event_sources": (200, on)}) as (url, _):
        finding = findings(url)["KV events"]
    assert finding.state == state and word in finding.message


@pytest.mark.parametrize(
    ("status", "name", "state", "word"),
    [
        (None, "scheduler", "broken", "not served by our scheduler"),
        ({"off": "8 faults"}, "scheduler", "broken", "off: 8 faults"),
        ({"active": False, "hooks": {"plugin": True}}, "scheduler", "good", "stands by"),
        ({"active": True, "hooks": {"scheduler": True}}, "scheduler", "good", "follows ranks (by scheduler)"),
    ],
)
def test_what_the_channel_tells(
    tmp_path_factory: pytest.TempPathFactory, status: dict[str, Any] | None, name: str, state: str, word: str
) -> None:
    import tempfile

    from kvpolicy.channel.channel import Channel

    told: Callable[[], dict[str, Any]] | None = None if status is None else lambda: status
    with tempfile.TemporaryDirectory(prefix="kvp") as folder, server(VLLM) as (url, _):
        with closing(Channel(f"unix:{folder}/c", status=told)) as channel:
            assert channel.start()
            found = findings(url, channel=f"unix:{folder}/c")
        assert found["control channel"].state == "good"
        assert found[name].state == state and word in found[name].message
        gone = findings(url, channel=f"unix:{folder}/c")
        assert gone["control channel"].state == "broken" and "scheduler" not in gone
