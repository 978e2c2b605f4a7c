"""The server over the protocol: a real process, spoken to as an editor does."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from kvpolicy.cli.main import main
from tests.lsp.client import Client
from tests.lsp.texts import bad, text_of


def _range(line: int, first: int, last: int) -> dict[str, object]:
    return {"start": {"line": line, "character": first}, "end": {"line": line, "character": last}}


def test_what_the_server_can_do(shared: Client) -> None:
    able = shared.initialized["capabilities"]
    assert able["positionEncoding"] == "utf-16"
    assert able["textDocumentSync"] == {"openClose": True, "change": 2, "save": True}
    for one in ("hover", "definition", "references", "documentSymbol", "documentFormatting", "codeAction", "rename"):
        assert able[f"{one}Provider"], one
    assert "[" in able["completionProvider"]["triggerCharacters"]
    assert shared.initialized["serverInfo"]["name"] == "kvp"


def test_the_codes_are_those_of_kvp_check(
    shared: Client, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(shared.folder)
    for path in bad():
        for other in path.parent.glob("*.kvp"):
            (shared.folder / other.name).write_bytes(other.read_bytes())
    for path in bad():
        try:
            text = text_of(path)
        except UnicodeDecodeError:
            continue  # no editor has such a text
        main(["check", path.name, "--format", "json"])
        rows = [d for file in json.loads(capsys.readouterr().out)["files"] for d in file["diagnostics"]]
        told = shared.open(path.name, text)
        assert sorted(d["code"] for d in told) == sorted(d["code"] for d in rows), path.name
        if all(d["message"].isascii() for d in rows):
            firsts = sorted((d["range"]["start"]["line"] + 1, d["range"]["start"]["character"] + 1) for d in told)
            assert firsts == sorted((d["line"], d["column"]) for d in rows), path.name
        shared.notify("textDocument/didClose", {"textDocument": {"uri": shared.uri(path.name)}})


def test_diagnostics_while_typing(shared: Client) -> None:
    assert [d["code"] for d in shared.open("typing.kvp", "turn { priority: 3")] == ["KVP100"]
    shared.change("typing.kvp", {"range": _range(0, 18, 18), "text": "0 }"})
    assert shared.told("typing.kvp") == []
    shared.change("typing.kvp", {"range": _range(0, 7, 15), "text": "priorty"})
    (row,) = shared.told("typing.kvp")
    assert row["code"] == "KVP101" and row["range"] == _range(0, 7, 14) and row["severity"] == 1
    assert "did you mean `priority`?" in row["message"] and row["source"] == "kvp"
    shared.change("typing.kvp", {"text": "a: turn { priority: 1 }\nb: turn { priority: 2 }\n"})
    (row,) = shared.told("typing.kvp")
    assert row["code"] == "KVP201"
    other = row["relatedInformation"][0]["location"]
    assert other["uri"] == shared.uri("typing.kvp") and other["range"]["start"]["line"] == 0
    many = [{"range": _range(0, 0, 0), "text": letter} for letter in "#!#"]
    shared.change("typing.kvp", *many)  # several changes of one message, one after the other
    assert shared.told("typing.kvp") == []  # the first rule is a comment now
    shared.notify("textDocument/didClose", {"textDocument": {"uri": shared.uri("typing.kvp")}})
    while shared.diagnostics[shared.uri("typing.kvp")][-1] != (None, []):
        shared.take()


def test_every_fault_of_several_is_told(shared: Client) -> None:
    text = "turn { priorty: 3 }\nlet x = 5 minuts\ntools { ttl: 300  priority: 50 }\ndocument { priority 3 }\n"
    assert sorted(d["code"] for d in shared.open("several.kvp", text)) == ["KVP100", "KVP101", "KVP102", "KVP103"]


def test_utf16_positions(shared: Client) -> None:
    """Letters outside the basic plane are two units for the editor: before the name, in it, and behind it."""
    text = '"🙂 rule": turn { priority: 40 } # 🙂\nx: turn[depth > 3] over "🙂 rule" { priorty: 50 }\n'
    (row,) = shared.open("wide.kvp", text)
    assert row["range"] == _range(1, 36, 43)
    label = shared.request("textDocument/definition", shared.at("wide.kvp", 1, 26))
    assert label == [{"uri": shared.uri("wide.kvp"), "range": _range(0, 0, 9)}]
    hover = shared.request("textDocument/hover", shared.at("wide.kvp", 0, 14))
    assert hover["range"] == _range(0, 11, 15)
    # An edit behind the letters, then one in the middle of them, as the editor counts.
    shared.change("wide.kvp", {"range": _range(1, 36, 43), "text": "priority"})
    assert shared.told("wide.kvp") == []
    edit = shared.request("textDocument/rename", {**shared.at("wide.kvp", 1, 1), "newName": "𝒳"})
    assert edit["changes"][shared.uri("wide.kvp")] == [{"range": _range(1, 0, 1), "newText": '"𝒳"'}]
    shared.change("wide.kvp", {"range": _range(0, 1, 3), "text": "🙂🙂"})
    assert [d["code"] for d in shared.told("wide.kvp")] == ["KVP101"]  # the rule has another name now
    shared.change("wide.kvp", {"range": _range(0, 3, 5), "text": ""})
    assert shared.told("wide.kvp") == []


@pytest.mark.parametrize("encoding", ["utf-8", "utf-32"])
def test_other_encodings_where_the_editor_asks_for_them(encoding: str, tmp_path: Path) -> None:
    with Client(tmp_path, {"general": {"positionEncodings": [encoding]}}) as client:
        assert client.initialized["capabilities"]["positionEncoding"] == encoding
        (row,) = client.open("p.kvp", '"🙂é": turn { priorty: 40 }\n')
        first = {"utf-8": 17, "utf-32": 13}[encoding]
        assert row["range"]["start"] == {"line": 0, "character": first}
        client.change("p.kvp", {"range": _range(0, first, first + 7), "text": "priority"})
        assert client.told("p.kvp") == []


def test_line_ends_and_signs_that_only_some_take_for_one(shared: Client) -> None:
    assert shared.open("crlf.kvp", "turn { priority: 40 }\r\ntools { priorty: 3 }\r\n")[0]["range"] == _range(1, 8, 15)
    shared.change("crlf.kvp", {"range": _range(1, 8, 15), "text": "priority"})
    assert [d["code"] for d in shared.told("crlf.kvp")] == ["KVP212"]
    text = "# a\u2028b\u0085c\x0bd\ntools { priorty: 3 }\n"  # one line and another for an editor
    assert shared.open("odd.kvp", text)[0]["range"] == _range(1, 8, 15)
    shared.change("odd.kvp", {"range": _range(1, 8, 15), "text": "priority"})
    assert shared.told("odd.kvp") == []


def test_broken_and_odd_texts(shared: Client) -> None:
    texts = (
        "",
        "\0",
        "}}}}",
        '"',
        "turn {" * 50,
        "(" * 3000,
        "\ud83d",
        "\ufeffturn { priority: 40 }",
        "language 99\n",
        "# x",
    )
    for number, text in enumerate(texts):
        name = f"odd{number}.kvp"
        told = shared.open(name, text)
        assert all(d["code"].startswith("KVP") for d in told)
        assert bool(told) == (number != 7), (text, told)
        for method in ("hover", "definition", "completion"):
            shared.request(f"textDocument/{method}", shared.at(name, 0, 3))
        shared.request("textDocument/documentSymbol", {"textDocument": {"uri": shared.uri(name)}})
        options = {"tabSize": 2, "insertSpaces": True}
        shared.request("textDocument/formatting", {"textDocument": {"uri": shared.uri(name)}, "options": options})
        shared.refused("textDocument/rename", {**shared.at(name, 0, 0), "newName": "x"})


def test_texts_that_are_not_open_are_no_fault(shared: Client) -> None:
    assert shared.request("textDocument/hover", shared.at("nowhere.kvp", 0, 0)) is None
    assert shared.request("textDocument/completion", shared.at("nowhere.kvp", 0, 0)) is None
    shared.notify("textDocument/didClose", {"textDocument": {"uri": shared.uri("nowhere.kvp")}})
    named = {"uri": shared.uri("nowhere.kvp"), "version": 2}
    shared.notify("textDocument/didChange", {"textDocument": named, "contentChanges": [{"text": "x"}]})
    assert shared.open("somewhere.kvp", "turn { priority: 40 }") == []


def test_a_text_that_was_never_saved(shared: Client) -> None:
    uri = "untitled:Untitled-1"
    item = {"uri": uri, "languageId": "kvp", "version": 1, "text": "use base\nturn { priorty: 3 }"}
    shared.notify("textDocument/didOpen", {"textDocument": item})
    while uri not in shared.diagnostics:
        shared.take()
    assert [d["code"] for d in shared.diagnostics[uri][-1][1]] == ["KVP101"]


def test_completion_edits_what_is_typed(shared: Client) -> None:
    shared.open("complete.kvp", "turn { pri\n")
    items = shared.request("textDocument/completion", shared.at("complete.kvp", 0, 10))["items"]
    item = next(item for item in items if item["label"] == "priority")
    assert item["textEdit"] == {"range": _range(0, 7, 10), "newText": "priority: "}
    assert "0 to 100" in item["documentation"]["value"]


def test_outline(shared: Client) -> None:
    text = (
        'policy p "x"\nuse base\nlet w = 5s\nlayer a {\n  on tool_call {\n    r: turn { priority: 40 }\n  }\n'
        '  "s s": tools { priority: 50 }\n}\nworkflow f { agent m, n  m -> n }\ntest "t" { given turn }\n'
    )
    shared.open("outline.kvp", text)
    rows = shared.request("textDocument/documentSymbol", {"textDocument": {"uri": shared.uri("outline.kvp")}})
    assert [(row["name"], [child["name"] for child in row["children"]]) for row in rows] == [
        ("p", []), ("base", []), ("w", []), ("a", ["r", "s s"]), ("f", ["m", "n"]), ("t", []),
    ]  # fmt: skip
    layer = rows[3]
    assert layer["range"] == {"start": {"line": 3, "character": 6}, "end": {"line": 8, "character": 1}}


def test_a_mend_is_offered_and_says_what_it_mends(shared: Client) -> None:
    told = shared.open("mend.kvp", "turn { ttl: 300  priority: 50 }\n")
    context = {"diagnostics": told}
    asked = {"textDocument": {"uri": shared.uri("mend.kvp")}, "range": told[0]["range"], "context": context}
    rows = shared.request("textDocument/codeAction", asked)
    assert [row["title"] for row in rows] == ["write 300s", "write 300min", "write 300h"]
    assert rows[0]["kind"] == "quickfix" and rows[0]["diagnostics"] == told
    assert rows[0]["edit"]["changes"][shared.uri("mend.kvp")] == [{"range": _range(0, 12, 15), "newText": "300s"}]
    assert shared.request("textDocument/codeAction", {**asked, "context": {**context, "only": ["refactor"]}}) == []


def _applied(text: str, edits: list[dict[str, object]]) -> str:
    """Edits of whole lines, as an editor makes them."""
    lines = text.split("\n")
    for edit in sorted(edits, key=lambda e: -e["range"]["start"]["line"]):  # type: ignore[index]
        span = edit["range"]
        start, end = span["start"], span["end"]  # type: ignore[index]
        assert (start["character"], end["character"]) == (0, 0)
        lines[start["line"] : end["line"]] = str(edit["newText"]).split("\n")[:-1]
    return "\n".join(lines)


def test_format_gives_the_layout_of_kvp_fmt(shared: Client) -> None:
    text = (
        "# 🙂\nturn{priority:40}\n\nlet x=5s # keep\ntools { priority: 50 }\non tool_call{turn{ttl:x  priority:60}}\n"
    )
    shared.open("layout.kvp", text)
    asked = {"textDocument": {"uri": shared.uri("layout.kvp")}, "options": {"tabSize": 2, "insertSpaces": True}}
    edits = shared.request("textDocument/formatting", asked)
    said = subprocess.run([sys.executable, "-m", "kvpolicy", "fmt", "-"], input=text, capture_output=True, text=True,
                          check=True).stdout  # fmt: skip
    assert _applied(text, edits) == said
    assert len(edits) > 1  # what is laid out already stays, and the cursor with it
    shared.change("layout.kvp", {"text": said})
    assert shared.request("textDocument/formatting", asked) == []
    shared.change("layout.kvp", {"text": "turn {"})
    assert shared.request("textDocument/formatting", asked) is None
