"""The prefix doctor: where a prompt stops being the one before, in which span, and who is told.

C21 of the public fault reports (a clock in line 1, a nonce in line 0): what it asks of claims of old copies is tested
where claims are (tests/replay); here, what the gateway says and what the engine finds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import pytest

from kvpolicy.service.doctor import Doctor, Fingerprint
from kvpolicy.service.exchange import Exchange
from kvpolicy.service.tenants import Tenant
from tests.bench.service_sessions import SECRET
from tests.bench.service_sessions import made as over_nothing
from tests.service.through import Through, until
from tests.simulated.running import running

KEYS = {"one": "key-of-one", "two": "key-of-two"}
REST = " ".join(f"rule{number}" for number in range(600))
CANARY = "xylophone"
TOOLS = [
    {"type": "function", "function": {"name": name, "description": name, "parameters": {"type": "object"}}}
    for name in ("grep", "read", "write")
]


class Desk:
    def __init__(self, url: str, engine: str, log: Path) -> None:
        self.url, self.engine, self.log = url, engine, log

    def ask(self, session: str, system: str, key: str = "one", tools: Any = None, **headers: str) -> httpx.Response:
        messages = [{"role": "system", "content": system}, {"role": "user", "content": "go on"}]
        body = {"model": "sim", "messages": messages, "max_tokens": 2, **({"tools": tools} if tools else {})}
        told = {"authorization": f"Bearer {KEYS[key]}", "x-session-id": session, **headers}
        answer = httpx.post(f"{self.url}/v1/chat/completions", json=body, headers=told, timeout=60)
        assert answer.status_code == 200
        return answer

    def notices(self, session: str | None = None, key: str = "one") -> list[dict[str, Any]]:
        told = {"authorization": f"Bearer {KEYS[key]}"}
        answer = httpx.get(f"{self.url}/v1/doctor", params={"session": session} if session else {}, headers=told)
        assert answer.status_code == 200
        return answer.json()["notices"]

    def counted(self, code: str) -> float:
        return Through(self.url, self.engine).counter("kvpolicy_prefix_doctor_total", code=code)


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    folder = tmp_path_factory.mktemp("doctor")
    rows = "".join(
        f'[[tenant]]\nname = "{name}"\nkeys = ["{sha256(key.encode()).hexdigest()}"]\n' for name, key in KEYS.items()
    )
    with running("engine", "--blocks", "800", "--decode-s", "0.0005") as engine:
        settings = folder / "kvp.toml"
        settings.write_text(
            f'[[upstream]]\nurl = "{engine}"\n{rows}[log]\ndecisions = "{folder / "decisions.jsonl"}"\n'
            f'[store]\nfile = "{folder / "state"}"\n[limits]\ndecide_within_s = 5.0\n'
        )
        with running("serve", "--config", str(settings), log=folder / "stderr") as at:
            yield Desk(at, engine, folder)


def cached(answer: httpx.Response) -> int:
    return answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"]


def first_token(desk: Desk, session: str) -> int | None:
    """Once the engine was asked for the tokens."""

    def told() -> bool:
        return any(row["first_differing_token"] is not None for row in desk.notices(session))

    until(told, True)
    return desk.notices(session)[-1]["first_differing_token"]


def tokens(desk: Desk, system: str) -> list[int]:
    """By the engine itself."""
    messages = [{"role": "system", "content": system}, {"role": "user", "content": "go on"}]
    return httpx.post(f"{desk.engine}/tokenize", json={"messages": messages}, timeout=30).json()["tokens"]


@pytest.mark.parametrize(
    ("session", "prompts"),
    [
        ("clock", [f"Now: 2026-11-30T10:00:0{second}Z {REST}" for second in (1, 2, 9)]),
        ("nonce", [f"x-trace: build=7; cch={nonce}; {REST}" for nonce in ("1a2b3", "9f00d", "0aa1e")]),
    ],
)
def test_text_that_changes_at_the_beginning_is_found(desk: Desk, session: str, prompts: list[str]) -> None:
    before = desk.counted("VOLATILE_PREFIX")
    answers = [desk.ask(session, prompt) for prompt in prompts]
    assert [cached(answer) for answer in answers[1:]] == [0, 0]
    assert all("VOLATILE_PREFIX" in answer.headers["x-kvp-warn"] for answer in answers[1:])
    assert "x-kvp-warn" not in answers[0].headers
    notice = desk.notices(session)[-1]
    assert (notice["code"], notice["kind"]) == ("VOLATILE_PREFIX", "system")
    one, other = tokens(desk, prompts[1]), tokens(desk, prompts[2])
    differs = next(at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)
    assert first_token(desk, session) == differs
    assert desk.counted("VOLATILE_PREFIX") == before + 2


def test_a_prompt_that_stays_is_no_notice(desk: Desk) -> None:
    answers = [desk.ask("stays", REST) for _ in range(3)]
    assert all("x-kvp-warn" not in answer.headers for answer in answers)
    assert desk.notices("stays") == []
    assert cached(answers[2]) > 500


def test_reordered_tools_are_told_from_others(desk: Desk) -> None:
    desk.ask("tools", REST, tools=TOOLS)
    again = desk.ask("tools", REST, tools=TOOLS[::-1])
    assert again.headers["x-kvp-warn"] == "TOOL_ORDER_CHANGED"
    assert desk.notices("tools")[-1]["kind"] == "tools"
    other = desk.ask("tools", REST, tools=TOOLS[1:])
    assert "TOOL_ORDER_CHANGED" not in other.headers.get("x-kvp-warn", "")


def test_another_prompt_altogether_is_a_side_request_and_no_notice(desk: Desk) -> None:
    desk.ask("side", REST)
    side = desk.ask("side", "You give titles of three words. " * 20)
    assert "x-kvp-warn" not in side.headers


def test_the_text_is_shown_to_its_own_tenant_on_request_and_stands_nowhere_else(desk: Desk) -> None:
    for second in (1, 2):
        quiet = desk.ask("shown", f"{CANARY} at 10:00:0{second} {REST}")
    assert "x-kvp-doctor" not in quiet.headers
    shown = desk.ask("shown", f"{CANARY} at 10:00:03 {REST}", **{"x-kvp-doctor": "show"})
    assert CANARY in shown.headers["x-kvp-doctor"]
    # another tenant's session of the same name is another chain, and its notices are its own
    assert "x-kvp-warn" not in desk.ask("shown", f"{CANARY} at 10:00:09 {REST}", key="two").headers
    assert desk.notices(key="two") == []
    assert desk.notices("shown")[-1]["code"] == "VOLATILE_PREFIX"
    assert CANARY not in str(desk.notices())
    told = {"authorization": f"Bearer {KEYS['one']}"}
    held = shown.headers["x-kvp-decision"].split('"')[1]
    until(lambda: httpx.get(f"{desk.url}/v1/explain/{held}", headers=told).status_code, 200)
    looked = [httpx.get(desk.url + path, headers=told) for path in ("/metrics", "/v1/owners", f"/v1/explain/{held}")]
    looked.append(httpx.get(f"{desk.url}/admin/policies"))
    files = [path for path in desk.log.rglob("*") if path.is_file()]
    assert any(path.name == "decisions.jsonl" and path.stat().st_size for path in files)
    for text in (*(answer.text for answer in looked), *(path.read_text(errors="replace") for path in files)):
        assert CANARY not in text
        assert "rule17" not in text


def test_a_head_is_looked_through_once_for_all_chains_of_its_tenant(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its fingerprint takes longer than all the rest of a request's decision."""
    made: list[str] = []
    of = Fingerprint.of

    def noticed(text: str, secret: bytes) -> Fingerprint:
        made.append(text[:5])
        return of(text, secret)

    monkeypatch.setattr(Fingerprint, "of", noticed)
    decisions, doctor = over_nothing(), Doctor(SECRET)

    async def asked(session: str, system: str, tenant: str = "t") -> None:
        messages = [{"role": "system", "content": system}, {"role": "user", "content": "go on"}]
        asking = Exchange(session, "chat", Tenant(tenant), {"x-session-id": session},
                          {"model": "m", "messages": messages}, 0.0, False, {})  # fmt: skip
        await decisions.enter(asking)
        await doctor.enter(asking)

    async def all_of_them() -> None:
        for turn in range(3):
            for session in ("a", "b"):
                await asked(session, f"head0 {REST}")
            assert made == ["head0"], turn
        await asked("a", f"head1 {REST}")  # the other chain has the first one still
        await asked("a", f"head0 {REST}")
        assert made == ["head0", "head1"]
        await asked("a", f"head0 {REST}", "another tenant")
        assert made == ["head0", "head1", "head0"]
        for session in ("a", "b"):
            await asked(session, f"head2 {REST}")
        await asked("a", f"head0 {REST}", "another tenant")
        assert made == ["head0", "head1", "head0", "head2"]

    asyncio.run(all_of_them())
    assert len(doctor._heads) == 2  # what no chain has is not kept


def test_the_prompt_itself_is_never_edited(desk: Desk) -> None:
    """The engine counts the very tokens that the client's own body has."""
    prompt = f"Now: 10:00:01 {REST}"
    answer = desk.ask("untouched", prompt)
    assert answer.json()["usage"]["prompt_tokens"] == len(tokens(desk, prompt))
