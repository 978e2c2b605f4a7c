"""Alive, ready, draining: what a process says of itself, and how it ends when it is told to."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest

from kvpolicy.service.config import Limits
from kvpolicy.service.config import Upstream as Config
from kvpolicy.service.upstreams import Upstreams
from tests.service.gateway import gateway
from tests.service.test_edge_passing import CHAT, PATH, STREAM, chunked, until
from tests.service.upstream import Asked, upstream
from tests.simulated.running import running, started


def test_running_streams_end_and_new_requests_are_refused() -> None:
    more = threading.Event()

    async def answer(_: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM + chunked(b"data: 1\n\n"))
        await writer.drain()
        while not more.is_set():
            await asyncio.sleep(0.02)
        writer.write(chunked(b"data: 2\n\n") + b"0\r\n\r\n")

    with (
        upstream(answer) as engine,
        subprocess.Popen(
            [sys.executable, "-m", "kvpolicy", "serve", "--upstream", engine.url, "--mode", "off"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as process,
    ):
        assert process.stdout is not None
        at = json.loads(process.stdout.readline())["url"]
        try:
            assert httpx.get(f"{at}/readyz").status_code == 200
            with httpx.stream("POST", at + PATH, json={**CHAT, "stream": True}, timeout=60) as got:
                parts = got.iter_raw()
                assert next(parts) == b"data: 1\n\n"
                process.send_signal(signal.SIGTERM)
                assert until(lambda: httpx.get(f"{at}/readyz").status_code == 503)
                assert httpx.get(f"{at}/healthz").status_code == 200
                refused = httpx.post(at + PATH, json=CHAT)
                assert (refused.status_code, refused.headers["connection"]) == (503, "close")
                assert refused.headers["retry-after"]
                more.set()
                assert b"".join(parts) == b"data: 2\n\n"
            process.wait(30)
            assert process.returncode in (0, -signal.SIGTERM)
            assert len(engine.asked) == 1
        finally:
            more.set()
            if process.poll() is None:
                process.kill()


def test_a_stream_without_end_is_cut_when_the_time_is_over(tmp_path: Path) -> None:
    async def endless(_: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM)
        while True:
            writer.write(chunked(b"data: x\n\n"))
            await writer.drain()
            await asyncio.sleep(0.05)

    config = tmp_path / "serve.toml"
    with upstream(endless) as engine:
        config.write_text(f'[[upstream]]\nurl = "{engine.url}"\n[limits]\ndrain_s = 0.5\n')
        with (
            started("serve", "--config", str(config)) as told,
            httpx.stream("POST", told["url"] + PATH, json=CHAT, timeout=60) as got,
        ):
            parts = got.iter_raw()
            next(parts)
            os.kill(told["pid"], signal.SIGTERM)
            with pytest.raises(httpx.RemoteProtocolError):  # its end is no end of an answer
                for _ in parts:
                    pass
        assert until(lambda: engine.open == 0)


def ready(at: str) -> tuple[int, str]:
    answer = httpx.get(f"{at}/readyz")
    return answer.status_code, answer.text.strip()


YES, NO, NOT_YET = (200, "ok"), (503, "no upstream takes connections"), (503, "no upstream has answered yet")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


def test_ready_says_no_where_no_engine_takes_connections_and_yes_again() -> None:
    port = free_port()
    with gateway(f"http://127.0.0.1:{port}") as (at, _):
        assert ready(at) == NO  # no request had to find it out
        assert httpx.get(f"{at}/healthz").status_code == 200
        assert httpx.post(at + PATH, json=CHAT).status_code == 502
        with running("engine", "--port", str(port)):
            assert until(lambda: ready(at) == YES)
            assert httpx.post(at + PATH, json={**CHAT, "model": "sim"}, timeout=30).status_code == 200
        assert until(lambda: ready(at) == NO)  # it died, and nobody asked anything of it


def test_one_engine_that_answers_is_enough() -> None:
    with upstream() as engine, gateway("http://127.0.0.1:1", engine.url) as (at, _):
        assert ready(at) == YES
        assert engine.probed and not engine.asked


def test_an_engine_that_takes_connections_and_says_nothing_is_not_there() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        gateway(f"http://127.0.0.1:{silent.getsockname()[1]}") as (at, _),
    ):
        assert ready(at) == NOT_YET


@pytest.mark.parametrize(("status", "wanted"), [(503, NO), (500, NO), (404, YES), (401, YES)])
def test_what_an_engine_says_of_its_own_health_counts(status: int, wanted: tuple[int, str]) -> None:
    class Says(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Says) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            with gateway(f"http://127.0.0.1:{server.server_port}/at") as (at, _):
                assert ready(at) == wanted
        finally:
            server.shutdown()
            thread.join(10)


def test_an_engine_that_a_request_found_well_is_ready() -> None:
    made = Upstreams([Config(url="http://a")], Limits())
    assert made.unready() == NOT_YET[1]
    made.engines[0].worked()
    assert made.unready() is None
    made.engines[0].failed(0.0)
    assert made.unready() == NO[1]
