"""Logs of every form become traces that `kvp simulate` reads, with the sharing there was, and without a word of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

import kvpolicy
from kvpolicy.cli import main as cli
from kvpolicy.record.live import Recorder
from tests.simulated.running import running

CANARY = "canaryword"
SYSTEM = f"Be brief. {CANARY} " * 40
ASKED = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": f"{CANARY} one " * 30}]
CALL = {"id": "c1", "type": "function", "function": {"name": "grep", "arguments": "{}"}}
ANSWER = {
    "choices": [
        {"finish_reason": "tool_calls", "message": {"role": "assistant", "content": None, "tool_calls": [CALL]}}
    ],
    "usage": {"completion_tokens": 9},
}
FOLLOWING = [
    *ASKED,
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c1", "content": f"{CANARY} found " * 30},
]


def record(tmp_path: Path, text: str, *options: str, capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    """The rows of the trace of a log; no word of the log is in it, and it can be replayed."""
    log, out = tmp_path / "log", tmp_path / "trace.jsonl"
    log.write_text(text)
    assert cli.main(["record", str(log), "--out", str(out), *options]) == 0
    written = out.read_text()
    assert CANARY not in written and "session-name" not in written
    capsys.readouterr()
    assert cli.main(["simulate", str(out), "--policy", "lru", "--capacity", "4000", "--format", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    rows = [json.loads(line) for line in written.splitlines()]
    assert told["trace"]["requests"] == len(rows) - 1
    (run,) = [run for run in told["runs"] if run["policy"] == "lru"]
    assert run["block_hits"] == shared(rows)
    return rows


def shared(rows: list[dict[str, Any]]) -> int:
    """Blocks that stood in an earlier row, counted on their own."""
    seen: set[str] = set()
    hits = 0
    for row in rows[1:]:
        hits += sum(each in seen for each in row["hashes"])
        seen |= set(row["hashes"])
    return hits


def openai_log() -> str:
    rows = [
        {"timestamp": 100.0, "request": {"model": "m", "messages": ASKED, "user": "session-name"}, "response": ANSWER},
        {"timestamp": 104.5, "request": {"model": "m", "messages": FOLLOWING, "user": "session-name"}},
        {"timestamp": 110, "request": {"model": "m", "messages": [ASKED[0], {"role": "user", "content": "other"}]}},
    ]
    return "\n".join(json.dumps(row) for row in rows) + "\nnot json\n"


def test_request_logs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, one, two, three = record(tmp_path, openai_log(), capsys=capsys)
    assert [row["at"] for row in (one, two, three)] == [0.0, 4.5, 10.0]
    assert one["answer"] == {"stop": "tool_use", "tool_calls": ["grep"], "output_tokens": 9}
    assert two["hashes"][: len(one["hashes"])] == one["hashes"]
    system = len(SYSTEM) // 4 // 16
    assert abs(len(set(three["hashes"]) & set(one["hashes"])) - system) <= 1
    assert one["owner"] == two["owner"] and "owner" not in three
    assert [span["kind"] for span in two["spans"]] == ["system", "turn", "tool_result"]
    assert two["spans"][-1]["tool"] == "grep"


@pytest.mark.parametrize(
    "row",
    [
        {"custom_id": "1", "method": "POST", "url": "/v1/chat/completions", "body": {"messages": ASKED}},
        {"messages": ASKED, "model": "m"},
        {"request": {"body": {"messages": ASKED}}, "response": {"body": ANSWER}},
        {"request": {"input": ASKED, "instructions": "short"},
         "response": {"output": [{"type": "function_call", "name": "grep"}]}},
        {"request": {"system": SYSTEM, "messages": [{"role": "user", "content": [{"type": "text", "text": CANARY}]}]},
         "response": {"content": [{"type": "tool_use", "name": "grep"}], "stop_reason": "tool_use"}},
        {"prompt": f"{CANARY} " * 30},
        {"prompt": list(range(100))},
    ],
)  # fmt: skip
def test_shapes_of_request_logs(row: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (_, one) = record(tmp_path, json.dumps(row), capsys=capsys)
    assert one["tokens"] > 16
    if "response" in row:
        assert one["answer"]["tool_calls"] == ["grep"]


def test_two_recordings_of_one_log_cannot_be_laid_beside_each_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = (record(tmp_path, openai_log(), capsys=capsys) for _ in range(2))
    assert not set(first[1]["hashes"]) & set(second[1]["hashes"])
    assert [len(row.get("hashes", ())) for row in first] == [len(row.get("hashes", ())) for row in second]


def claude_code() -> str:
    def row(uuid: str, parent: str | None, at: int, message: dict[str, Any]) -> dict[str, Any]:
        kind = {"type": message["role"], "sessionId": "session-name", "timestamp": f"2026-01-01T00:00:{at:02}.000Z"}
        return {**kind, "uuid": uuid, "parentUuid": parent, "message": message}

    usage = {"input_tokens": 4, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 500, "output_tokens": 20}
    tool = {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": CANARY}}
    said = {"role": "assistant", "id": "m1", "model": "claude", "usage": usage, "stop_reason": "tool_use"}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": "x" * 900}
    last = {"role": "assistant", "id": "m2", "content": "done", "stop_reason": "end_turn", "usage": usage}
    rows = [
        {"type": "summary", "summary": CANARY},
        row("a", None, 1, {"role": "user", "content": f"{CANARY} fix it " * 20}),
        row("b", "a", 3, {**said, "content": [{"type": "thinking", "thinking": CANARY * 30}]}),
        row("c", "b", 4, {**said, "content": [tool]}),
        row("d", "c", 9, {"role": "user", "content": [result]}),
        row("e", "d", 12, last),
    ]
    return "\n".join(json.dumps(row) for row in rows)


def test_session_files_of_claude_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, one, two = record(tmp_path, claude_code(), capsys=capsys)
    assert one["tokens"] == 504  # as counted by the server: its head is what the text does not account for
    assert one["spans"][0]["kind"] == "system"
    assert one["answer"] == {"stop": "tool_use", "tool_calls": ["Bash"], "output_tokens": 20}
    assert two["answer"]["stop"] == "end_turn"
    assert two["hashes"][: len(one["hashes"])] == one["hashes"]
    assert (one["at"], two["at"]) == (0.0, 9.0)


VLLM = "INFO 07-13 10:00:{:02} [logger.py:39] Received request chatcmpl-{}: prompt: {!r}, params: SamplingParams(n=1), "


def test_the_log_of_vllm(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ids = list(range(40))
    text = "\n".join(
        [
            "INFO 07-13 09:59:59 [api_server.py:1] starting",
            VLLM.format(1, "a", f"{CANARY}'s \n") + f"prompt_token_ids: {ids}, lora_request: None.",
            VLLM.format(3, "b", f"{CANARY}") + f"prompt_token_ids: {[*ids, 7, 8, 9, *ids]}, lora_request: None.",
            VLLM.format(4, "c", f'{CANARY}\'s "more" ' * 20) + "lora_request: None.",
        ]
    )
    _, one, two, three = record(tmp_path, text, capsys=capsys)
    assert [row["tokens"] for row in (one, two)] == [40, 83]
    assert two["hashes"][:2] == one["hashes"] and three["tokens"] > 16
    assert [row["at"] for row in (one, two, three)] == [0.0, 2.0, 3.0]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with running("engine", "--blocks", "400", "--decode-s", "0") as at:
        yield at


def test_a_client_s_own_calls(url: str, tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "live.jsonl")
    client = recorder.attach(openai.OpenAI(base_url=f"{url}/v1", api_key="none"))
    found = []
    for messages in (ASKED, FOLLOWING, ASKED):
        with kvpolicy.run(session="session-name"):
            asked: Any = messages
            usage = client.chat.completions.create(model="sim", messages=asked, max_tokens=1).usage
            found.append(usage.prompt_tokens_details.cached_tokens)  # type: ignore[union-attr]
    recorder.close()
    text = (tmp_path / "live.jsonl").read_text()
    rows = [json.loads(line) for line in text.splitlines()]
    assert recorder.calls == 3 and CANARY not in text and "session-name" not in text
    assert len({json.dumps(row["owner"]) for row in rows[1:]}) == 1
    seen: set[str] = set()
    for row, cached in zip(rows[1:], found, strict=True):  # what the engine found was shared in the trace, too
        assert bool(set(row["hashes"]) & seen) == bool(cached)
        seen |= set(row["hashes"])


def test_the_decision_log_of_the_service(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log, config = tmp_path / "decisions.jsonl", tmp_path / "config.toml"
    config.write_text(f'[[upstream]]\nurl = "{url}"\n\n[log]\ndecisions = "{log}"\n')
    with running("serve", "--config", str(config), log=tmp_path / "err") as service:
        client = openai.OpenAI(base_url=f"{service}/v1", api_key="none").chat.completions
        prompts = []
        for messages in (ASKED, FOLLOWING, [ASKED[0], {"role": "user", "content": "other"}]):
            asked: Any = messages
            prompts.append(client.create(model="sim", messages=asked, max_tokens=1).usage.prompt_tokens)  # type: ignore[union-attr]
    assert CANARY not in log.read_text()
    _, one, two, three = record(tmp_path, log.read_text(), capsys=capsys)
    assert [row["tokens"] for row in (one, two, three)] == prompts
    assert two["hashes"][: len(one["hashes"])] == one["hashes"]
    assert set(three["hashes"]) & set(one["hashes"])


def decision(prefix: Any, **more: Any) -> dict[str, Any]:
    row = {"outcome": "done", "dialect": "chat", "digest": "d", "at": 5.0, "seconds": 1.0, "prompt_tokens": 90}
    return {**row, "owner": "o", "prefix": prefix, "output_tokens": 3, "tool_calls": 0, **more}


def said(**message: Any) -> dict[str, Any]:
    return {"sessionId": "s", "uuid": "u", "message": {"role": "assistant", "id": "m", "content": "yes", **message}}


_VLLM = "INFO 07-13 10:00:01 [logger.py:39] Received request a: prompt: 'x', params, prompt_token_ids: {}, end."
_WRONG: list[tuple[str, Any, Any]] = [
    ("openai", {"messages": ASKED}, wrong)
    for wrong in (
        {"messages": [*ASKED, {"role": "assistant", "content": None, "tool_calls": ["x"]}]},
        {"messages": [*ASKED, {"role": "assistant", "content": None, "tool_calls": 3}]},
        {"messages": ASKED, "response": {"choices": [{"message": {"tool_calls": ["x"]}}]}},
        {"messages": ASKED, "response": {"choices": [{"message": "x"}]}},
        {"messages": ASKED, "response": {"content": 3}},
        {"messages": ASKED, "response": {"usage": {"output_tokens": "nine"}}},
        {"messages": ASKED, "response": {"usage": {"output_tokens": -1}}},
        {"messages": ASKED, "response": {"usage": {"output_tokens": {"all": 1}}}},
        {"messages": ASKED, "timestamp": float("nan")},
        {"messages": ASKED, "timestamp": 10**400},
        {"messages": ASKED, "model": "\ud800"},
        {"prompt": [1, 2**63] * 20},
        '{"messages": ' + "[" * 100_000 + "]" * 100_000 + "}",
    )
] + [
    ("claude-code", said(), said(usage={"input_tokens": "many"})),
    ("claude-code", said(), said(usage={"input_tokens": 10**12})),
    ("claude-code", said(), said(content=[{"type": "tool_use"}], tool_calls=["x"])),
    ("vllm", _VLLM.format([1, 2]), _VLLM.format([2**63, 1])),
    ("vllm", _VLLM.format([1, 2]), _VLLM.format("[1.5]")),
    ("vllm", _VLLM.format([1, 2]), _VLLM.format([1, 2]).replace("07-13", "13-45")),
    ("decisions", decision(["aa"]), decision(["not hex"])),
    ("decisions", decision(["aa"]), decision([["aa"]])),
    ("decisions", decision(["aa"]), decision([7])),
    ("decisions", decision(["aa"]), decision(["aa"], tool_calls="x")),
    ("decisions", decision(["aa"]), decision(["aa"], tool_calls=10**12)),
    ("decisions", decision(["aa"]), decision(["aa"], output_tokens="nine")),
    ("decisions", decision(["aa"]), decision(["aa"], prompt_tokens=10**12)),
    ("decisions", decision(["aa"]), decision(["aa"], prompt_tokens=-100)),
    ("decisions", decision(["aa"]), decision(["aa"], prompt_tokens=True)),
    ("decisions", decision(["aa"]), decision(["aa"], tool_calls=-3)),
    ("decisions", decision(["aa"]), decision(["aa"], at="x")),
    ("decisions", decision(["aa"]), decision(["aa"], seconds="x")),
]


@pytest.mark.parametrize(("form", "right", "wrong"), _WRONG, ids=lambda value: None)
def test_a_row_that_is_not_as_expected_is_counted_and_the_others_are_recorded(
    form: str, right: Any, wrong: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = [row if isinstance(row, str) else json.dumps(row) for row in (wrong, right)]
    if form == "claude-code":
        text[1] = text[1].replace('"u"', '"v"')  # another row of the same message
    (tmp_path / "log").write_text("\n".join(text))
    out = tmp_path / "trace.jsonl"
    assert cli.main(["record", str(tmp_path / "log"), "--form", form, "--out", str(out)]) == 0
    assert capsys.readouterr().err == "1 call; 1 line could not be used\n"
    assert len(out.read_text().splitlines()) == 2
    alone = tmp_path / "alone.jsonl"
    (tmp_path / "log").write_text(text[1])
    assert cli.main(["record", str(tmp_path / "log"), "--form", form, "--out", str(alone)]) == 0
    one, two = (json.loads(path.read_text().splitlines()[1]) for path in (out, alone))
    assert (one["tokens"], one["spans"]) == (two["tokens"], two["spans"])  # nothing of the other is remembered
    assert cli.main(["simulate", str(out), "--policy", "lru", "--capacity", "40", "--format", "json"]) == 0


def test_a_session_goes_on_behind_a_row_that_is_not_as_expected(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [json.loads(line) for line in claude_code().splitlines()]
    rows[4]["message"]["tool_calls"] = ["x"]  # what the tool said
    _, one, two = record(tmp_path, "\n".join(map(json.dumps, rows)), capsys=capsys)
    assert two["hashes"][: len(one["hashes"])] == one["hashes"] and two["tokens"] > one["tokens"]


@pytest.mark.parametrize(
    ("text", "options", "said"),
    [
        ("", (), "no form is recognised"),
        ("hello\nworld\n", (), "no form is recognised"),
        ('{"a": 1}\n', (), "there is no request in it, read as openai"),
        ('{"messages": []}\n', ("--form", "vllm"), "there is no request in it, read as vllm"),
        (json.dumps({"messages": ASKED}), ("--block-size", "0"), "at least one token"),
    ],
)
def test_what_is_no_log(
    text: str, options: tuple[str, ...], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "log"
    log.write_text(text)
    assert cli.main(["record", str(log), *options]) == 2
    assert said in capsys.readouterr().err


def test_vllm_s_log_over_new_year_and_words_that_look_like_ids(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asks = "'say prompt_token_ids: [9, 9] and it\\'s done'"
    ids = list(range(32))
    lines = [
        _VLLM.replace("07-13 10:00:01", "12-31 23:59:59").format(ids),
        _VLLM.replace("07-13 10:00:01", "01-01 00:00:09").replace("'x'", asks).format(ids),
    ]
    _, one, two = record(tmp_path, "\n".join(lines), capsys=capsys)
    assert two["at"] - one["at"] == 10
    assert one["hashes"] == two["hashes"] and one["tokens"] == two["tokens"] == 32
