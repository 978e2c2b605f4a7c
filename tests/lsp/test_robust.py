"""What a server must survive: messages that are none, huge texts, requests that are cancelled, an editor that goes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from tests.fuzz.damage import document
from tests.lsp.client import PATIENCE_S, Client


def _lives(server: Client) -> None:
    """It still answers as it should."""
    server.diagnostics.clear()
    assert [row["code"] for row in server.open("lives.kvp", "turn { priorty: 3 }")] == ["KVP101"]
    assert server.request("textDocument/hover", server.at("lives.kvp", 0, 1))["contents"]["value"].startswith("`turn`")


_HEADER = b"Content-Length: %d\r\n\r\n"


@pytest.mark.parametrize(
    "body",
    [
        b"{", b"[]", b"null", b"1", b'"x"', b"{}", b"\xff\xfe", b'{"jsonrpc": "2.0"}', b'{"jsonrpc": "1.0", "id": 9}',
        b'{"jsonrpc": "2.0", "method": 3}', b'{"jsonrpc": "2.0", "method": []}', b'{"jsonrpc": "2.0", "id": {}}',
        b'{"jsonrpc": "2.0", "id": 77, "result": 1}', b'{"jsonrpc": "2.0", "id": 77, "error": {"code": 1}}',
        b'{"jsonrpc": "2.0", "method": "$/cancelRequest", "params": {"id": "never"}}',
        b'{"jsonrpc": "2.0", "method": "textDocument/didChange", "params": {}}',
        b'{"jsonrpc": "2.0", "method": "textDocument/didOpen", "params": null}',
        b'{"jsonrpc": "2.0", "method": "no/such", "params": {}}',
        b"[" * 100_000, b'{"a":' * 50_000,
    ],
)  # fmt: skip
def test_nonsense_is_dropped(shared: Client, body: bytes) -> None:
    shared.raw(_HEADER % len(body) + body)
    _lives(shared)


@pytest.mark.parametrize(
    "header", [b"Content-Length: x\r\n\r\n", b"X: y\r\n\r\n", b"\r\n\r\n", b"Content-Length: 0\r\n\r\n"]
)
def test_headers_that_say_nothing_are_dropped(shared: Client, header: bytes) -> None:
    shared.raw(header)
    _lives(shared)


def test_a_request_that_cannot_be_read_is_answered(shared: Client) -> None:
    assert shared.refused("textDocument/hover", {"textDocument": 3})
    assert shared.refused("textDocument/hover", {**shared.at("x.kvp", 0, 0), "position": {"line": "a"}})
    assert shared.refused("no/such/request", {})
    assert shared.refused("workspace/executeCommand", {"command": "rm"})
    shared.open("edges.kvp", "turn { priority: 3 }")
    for line, character in ((-1, 0), (0, -5), (2**31 - 1, 2**31 - 1)):
        told = shared.answer(shared.begin("textDocument/hover", shared.at("edges.kvp", line, character)))
        assert "result" in told or "error" in told
    _lives(shared)


def test_damaged_messages(shared: Client) -> None:
    """Messages of a session with pieces lost, doubled, renamed, of the wrong type: each request is answered."""
    chance = Random(11)
    shared.open("damaged.kvp", "turn { priority: 3 }")
    for number in range(120):
        method = chance.choice(("hover", "completion", "rename", "codeAction", "formatting", "didChange", "didOpen"))
        params = {
            **shared.at("damaged.kvp", 0, 8),
            "newName": "x",
            "context": {"diagnostics": []},
            "contentChanges": [],
        }
        message = {"jsonrpc": "2.0", "id": 10_000 + number, "method": f"textDocument/{method}", "params": params}
        changed = document(chance, message, 1)
        if isinstance(changed, dict) and type(changed.get("id")) is int and isinstance(changed.get("method"), str):
            known = changed["method"].startswith("textDocument/") and not changed["method"][13:].startswith("did")
            if "jsonrpc" in changed and "params" in changed and known and abs(changed["id"]) < 1 << 31:
                shared.send(changed)
                if changed["jsonrpc"] == "2.0":
                    shared.answer(changed["id"])
                continue
        shared.send(changed)
    _lives(shared)


def test_a_message_that_says_it_is_huge_is_dropped(server: Client) -> None:
    size = (64 << 20) + 5
    server.raw(_HEADER % size)
    for _ in range(size >> 20):
        server.raw(b" " * (1 << 20))
    server.raw(b" " * 5)
    _lives(server)
    status = Path(f"/proc/{server.process.pid}/status")
    if status.exists():
        peak = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        assert int(peak.split()[1]) < 600 << 10, peak


def test_a_huge_text(server: Client) -> None:
    """A megabyte of rules: other texts are answered while it is read, and it is itself."""
    rows = [f'r{i}: turn[agent = "a{i}"] {{ priority: {i % 101}  replicas: 2 }}' for i in range(19_000)]
    text = "\n".join(rows) + "\nlast: turn { priorty: 3 }\n"
    assert len(text) > 1_000_000
    item = {"uri": server.uri("huge.kvp"), "languageId": "kvp", "version": 1, "text": text}
    server.notify("textDocument/didOpen", {"textDocument": item})
    assert server.open("small.kvp", "turn { priority: 40 }") == []
    number = server.begin("textDocument/completion", server.at("huge.kvp", 19_000, 14))
    labels = [row["label"] for row in server.answer(number)["result"]["items"]]
    assert "priority" in labels and "layer" not in labels
    server.becomes("huge.kvp", "KVP101")


def test_a_text_that_is_too_large(server: Client) -> None:
    told = server.open("large.kvp", "# " + "x" * (4 << 20) + "\nturn { priority: 3 }\n")
    assert [row["code"] for row in told] == ["KVP109"]
    _lives(server)


def test_typing_faster_than_it_is_checked(server: Client) -> None:
    """Versions that were overtaken are not told; the newest one is."""
    text = "\n".join(f"r{i}: turn[agent = a{i}] {{ priority: {i % 101} }}" for i in range(300)) + "\n"
    server.open("fast.kvp", text)
    for letter in "turn { priorty: 3 }":
        end = {"line": 300, "character": 0}
        server.change("fast.kvp", {"range": {"start": end, "end": end}, "text": letter})
    last = server.told("fast.kvp")
    assert last
    versions = [version for version, _ in server.diagnostics[server.uri("fast.kvp")]]
    assert versions == sorted(set(versions)) and versions[-1] == 20


def test_a_cancelled_request_is_answered_as_cancelled(server: Client) -> None:
    rows = "\n".join(f"r{i}: turn[agent = a{i}] {{ priority: {i % 101} }}" for i in range(1500))
    server.open("many.kvp", rows)
    asked = {**server.at("many.kvp", 3, 1), "context": {"includeDeclaration": True}}
    first = server.begin("textDocument/rename", {**server.at("many.kvp", 3, 1), "newName": "fresh"})
    others = [server.begin("textDocument/references", asked) for _ in range(5)]
    for number in others:
        server.notify("$/cancelRequest", {"id": number})
    told = [server.answer(number) for number in others]
    assert any(one.get("error", {}).get("code") == -32800 for one in told)
    assert all("result" in one or one["error"]["code"] == -32800 for one in told)
    assert "result" in server.answer(first)
    _lives(server)


def test_before_the_session_begins_and_after_it_ends(tmp_path: Path) -> None:
    client = Client(tmp_path)
    try:
        early = client.answer(client.begin("textDocument/hover", client.at("x.kvp", 0, 0)))
        assert early["error"]["code"] == -32002
        client.notify("textDocument/didOpen", {"textDocument": {}})
        client.__enter__()
        client.request("shutdown", None)
        late = client.answer(client.begin("textDocument/hover", client.at("x.kvp", 0, 0)))
        assert late["error"]["code"] == -32600
        client.notify("exit", None)
        assert client.process.wait(PATIENCE_S) == 0
        assert client.process.stderr is not None and client.process.stderr.read() == b""
    finally:
        client.__exit__()


@pytest.mark.parametrize("leave", ["exit", "close", "cut"])
def test_an_editor_that_goes_away(server: Client, leave: str) -> None:
    server.open("x.kvp", "turn { priority: 3 }")
    assert server.process.stdin is not None and server.process.stderr is not None
    if leave == "exit":
        server.notify("exit", None)
    else:
        if leave == "cut":  # in the middle of a message
            server.raw(b'Content-Length: 100\r\n\r\n{"jsonrpc"')
        server.process.stdin.close()
    assert server.process.wait(PATIENCE_S) == 1
    assert server.process.stderr.read() == b""


def test_without_pygls_it_says_what_to_install(tmp_path: Path) -> None:
    program = (
        "import importlib.util, sys\nfind = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda name, *more: None if name == 'pygls' else find(name, *more)\n"
        "from kvpolicy.cli.main import main\nsys.exit(main(['lsp']))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, input="", check=False)
    assert done.returncode == 2 and done.stderr.strip() == (
        "kvp: lsp: needs pygls, which is not installed: "
        "pip install 'kvpolicy[lsp]', or in a checkout pip install -e '.[lsp]'"
    )


def test_answers_are_plain_json(shared: Client) -> None:
    shared.open("json.kvp", "turn { priority: 3 }")
    told = shared.request("textDocument/completion", shared.at("json.kvp", 0, 7))
    assert json.loads(json.dumps(told, allow_nan=False)) == told
