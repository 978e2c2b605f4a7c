"""curl, as the documentation shows it, against the simulated engine and through the gateway."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator

import pytest

from tests.simulated.running import running

CURL = shutil.which("curl")
pytestmark = pytest.mark.skipif(CURL is None, reason="curl is not installed (apt-get install curl)")
BODY = {"model": "sim", "messages": [{"role": "user", "content": "count to three"}], "max_tokens": 5}


@pytest.fixture(scope="module")
def urls() -> Iterator[dict[str, str]]:
    with running("engine", "--decode-s", "0") as engine, running("serve", "--upstream", engine) as gateway:
        yield {"engine": engine, "gateway": gateway}


def curl(*words: str, body: object = None) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body of one call."""
    assert CURL is not None
    command = [CURL, "-sS", "-i", "--max-time", "30", *words]
    if body is not None:
        command += ["-H", "content-type: application/json", "--data-binary", "@-"]
    data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    done = subprocess.run(command, input=data, capture_output=True, check=True, timeout=60)
    head, _, rest = done.stdout.partition(b"\r\n\r\n")
    while head.startswith(b"HTTP/1.1 100"):
        head, _, rest = rest.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return int(first.split()[1]), headers, rest


@pytest.mark.parametrize("by", ["engine", "gateway"])
def test_an_answer_in_one_piece_and_as_a_stream(urls: dict[str, str], by: str) -> None:
    at = f"{urls[by]}/v1/chat/completions"
    status, headers, whole = curl(at, body=BODY)
    assert status == 200
    assert headers.get("x-kvp-simulated") == ("1" if by == "engine" else None)  # the gateway's are its own
    assert ("x-kvp-decision" in headers) == (by == "gateway")
    message = json.loads(whole)["choices"][0]["message"]["content"]
    status, headers, stream = curl("-N", at, body={**BODY, "stream": True})
    assert status == 200 and headers["content-type"].startswith("text/event-stream")
    events = [line.removeprefix(b"data: ") for line in stream.split(b"\n\n") if line]
    assert events[-1] == b"[DONE]"
    deltas = [json.loads(each)["choices"][0]["delta"] for each in events[:-1]]
    assert "".join(delta.get("content") or "" for delta in deltas) == message


@pytest.mark.parametrize("by", ["engine", "gateway"])
def test_what_is_wrong_is_said(urls: dict[str, str], by: str) -> None:
    assert curl(f"{urls[by]}/v1/embeddings", body={"input": "x"})[0] == 404
    status, _, text = curl(f"{urls[by]}/v1/chat/completions", body=b"{")
    assert status == 400 and b"JSON" in text
    assert curl("-X", "GET", f"{urls[by]}/v1/models")[0] == 200


def test_a_large_body_that_is_expected_to_be_continued(urls: dict[str, str]) -> None:
    body = {**BODY, "messages": [{"role": "user", "content": "word " * 500}]}
    status, _, text = curl("-H", "expect: 100-continue", f"{urls['gateway']}/v1/chat/completions", body=body)
    assert status == 200 and json.loads(text)["usage"]["prompt_tokens"] > 400
