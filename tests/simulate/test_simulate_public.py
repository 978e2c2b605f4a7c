"""Public traces: what is made of the source's archive, proved by digest; no network in tests."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from pathlib import Path

import pytest

from kvpolicy.faults import InputFault
from kvpolicy.simulate import public
from kvpolicy.simulate.library import KNOWN
from kvpolicy.simulate.session_numbers import SESSION_NUMBERS
from tests.simulate.traces_for_tests import data_file, read


def source_session(number: int) -> dict[str, object]:
    """A session as its source has it: ids one by one."""
    first = {"t": 0.0, "model": "m", "in": 200, "out": 3, "stop": "tool_use", "hash_ids": [1, 2, 3]}
    agent = {"t": 1.5, "agent_id": "a", "subagent_type": "Explore", "tool_tokens": 0, "system_tokens": 0,
             "requests": [{**first, "hash_ids": [8, 9, 10], "stop": "end_turn"}]}  # fmt: skip
    return {"id": f"trace_{number:04}", "block_size": 64, "tool_tokens": 64, "system_tokens": 64,
            "requests": [first, agent, {**first, "t": 9.0, "hash_ids": [1, 2, 5]}]}  # fmt: skip


def archive(numbers: list[int]) -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as tar:
        for number in numbers:
            text = json.dumps(source_session(number)).encode()
            member = tarfile.TarInfo(f"kv-cache-tester-94f6046/traces/trace_{number:04}.json")
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text))
    return content.getvalue()


def serve(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    monkeypatch.setattr("urllib.request.urlopen", lambda *_, **__: io.BytesIO(content))


def test_sessions_out_of_the_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    serve(monkeypatch, archive([3, 5, 7]))
    target = tmp_path / "deep" / "sessions.jsonl.gz"
    with pytest.raises(InputFault, match="not what was measured") as refused:
        public.fetch_sessions("https://x", (3, 7), "0" * 64, target)
    assert not target.exists()
    digest = str(refused.value).split("SHA-256 is ")[1].split(",")[0]
    serve(monkeypatch, archive([3, 5, 7]))
    public.fetch_sessions("https://x", (3, 7), digest, target)
    calls, facts = read(target)
    assert (facts.sessions, facts.requests) == (2, 6)
    assert {call.request.owner.branch for call in calls} == {None, "a"}
    serve(monkeypatch, archive([3, 5]))  # one is missing
    with pytest.raises(InputFault, match="not what was measured"):
        public.fetch_sessions("https://x", (3, 7), digest, tmp_path / "other.gz")


@pytest.mark.parametrize("content", [b"", b"no archive", archive([3])[:-40]])
def test_an_archive_that_is_none(content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    serve(monkeypatch, content)
    with pytest.raises(InputFault, match="https://x"):
        public.fetch_sessions("https://x", (3,), "0" * 64, tmp_path / "t.gz")
    assert list(tmp_path.iterdir()) == []


def test_the_recorded_digests_are_those_of_the_measured_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("mooncake", "mooncake-synthetic"):
        known = KNOWN[name]
        content = gzip.decompress(data_file(known.file).read_bytes())
        later = b'{"timestamp": 1800000, "input_length": 1, "output_length": 1, "hash_ids": [1]}\n'
        serve(monkeypatch, content + later * (known.until_ms is not None))
        assert known.content_sha256 is not None
        public.fetch_mooncake("https://x", known.until_ms, known.content_sha256, tmp_path / "t.jsonl.gz")
        assert gzip.decompress((tmp_path / "t.jsonl.gz").read_bytes()) == content
    digest = hashlib.sha256()
    ids = []
    with gzip.open(data_file(KNOWN["claude-code-sessions"].file)) as lines:
        for line in lines:
            session = json.loads(line)
            ids.append(int(session["id"].removeprefix("trace_")))
            digest.update(public.session_digest_text(session).encode())
    assert digest.hexdigest() == KNOWN["claude-code-sessions"].content_sha256
    assert tuple(ids) == SESSION_NUMBERS
