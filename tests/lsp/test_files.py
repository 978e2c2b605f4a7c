"""Several files over the protocol: names across `use`, what is edited in one seen in the other, files that change."""

from __future__ import annotations

from pathlib import Path

from tests.lsp.client import Client

_A = 'use "b.kvp" as b\nx: turn over b.long { priority: 70 }\n'
_B = "long: turn[tokens >= 8k] { priority: 55 }\n"


def test_definition_and_uses_across_files(server: Client) -> None:
    for name, text in (("a.kvp", _A), ("b.kvp", _B), ("c.kvp", _A.replace("x:", "y:"))):
        (server.folder / name).write_text(text, encoding="utf-8")
    assert server.open("a.kvp") == []
    (found,) = server.request("textDocument/definition", server.at("a.kvp", 1, 16))
    assert found["uri"] == server.uri("b.kvp") and found["range"]["end"] == {"line": 0, "character": 4}
    (file,) = server.request("textDocument/definition", server.at("a.kvp", 0, 7))
    assert file["uri"] == server.uri("b.kvp")
    asked = {**server.at("a.kvp", 1, 16), "context": {"includeDeclaration": True}}
    uses = server.request("textDocument/references", asked)
    assert sorted(Path(use["uri"]).name for use in uses) == ["a.kvp", "b.kvp", "c.kvp"]  # c is not even open
    used = server.request("textDocument/references", {**asked, "context": {"includeDeclaration": False}})
    assert sorted(Path(use["uri"]).name for use in used) == ["a.kvp", "c.kvp"]
    edit = server.request("textDocument/rename", {**server.at("a.kvp", 1, 16), "newName": "tall"})
    assert sorted(Path(uri).name for uri in edit["changes"]) == ["a.kvp", "b.kvp", "c.kvp"]
    assert "prefers" not in edit
    prepared = server.request("textDocument/prepareRename", server.at("a.kvp", 1, 16))
    assert prepared["placeholder"] == "long"
    assert "a word of the language" in server.refused("textDocument/prepareRename", server.at("a.kvp", 1, 4))
    (base,) = server.request("textDocument/definition", server.at("a.kvp", 1, 0))
    assert base["range"]["start"] == {"line": 1, "character": 0}


def test_a_workflow_is_found_from_where_it_stands_in_another(server: Client) -> None:
    (server.folder / "lib.kvp").write_text("policy lib\nworkflow inner { agent x }\nturn { priority: 40 }\n")
    text = 'use "lib.kvp" as lib\nworkflow w {\n  agent a, b of a\n  workflow lib.inner as step\n  a -> step\n}\n'
    (server.folder / "w.kvp").write_text(text)
    assert server.open("w.kvp") == []
    (block,) = server.request("textDocument/definition", server.at("w.kvp", 3, 16))
    assert block["uri"] == server.uri("lib.kvp") and block["range"]["start"] == {"line": 1, "character": 9}
    (node,) = server.request("textDocument/definition", server.at("w.kvp", 4, 8))
    assert node["range"]["start"] == {"line": 3, "character": 24}
    (caller,) = server.request("textDocument/definition", server.at("w.kvp", 2, 16))
    assert caller["range"]["start"] == {"line": 2, "character": 8}
    asked = {**server.at("w.kvp", 3, 16), "context": {"includeDeclaration": True}}
    assert len(server.request("textDocument/references", asked)) == 2


def test_what_is_edited_in_one_is_seen_in_the_other(server: Client) -> None:
    (server.folder / "b.kvp").write_text(_B, encoding="utf-8")
    assert server.open("a.kvp", _A) == []
    assert server.open("b.kvp") == []
    server.change("b.kvp", {"text": _B.replace("long", "tall")})
    (row,) = server.becomes("a.kvp", "KVP101")  # without a change of its own
    assert "b.tall" in row["message"]
    server.change("b.kvp", {"text": _B.replace("priority", "priorty")})
    while len(told := server.becomes("a.kvp", "KVP101")) and "b.tall" in told[0]["message"]:
        server.take()
    assert [row["range"]["start"]["line"] for row in told] == [0]  # at the `use`, with a link to the place
    assert told[0]["message"].startswith("b.kvp:1:28: there is no property")
    assert told[0]["relatedInformation"][0]["location"]["uri"] == server.uri("b.kvp")
    server.notify("textDocument/didClose", {"textDocument": {"uri": server.uri("b.kvp")}})
    server.becomes("a.kvp")  # the file counts again, and it is sound


def test_two_texts_that_use_each_other(server: Client) -> None:
    one, two = 'use "b.kvp" as b\nx: turn { priority: 40 }\n', 'use "a.kvp" as a\ny: tools { priority: 50 }\n'
    (server.folder / "a.kvp").write_text(one)
    (server.folder / "b.kvp").write_text(two)
    assert [row["code"] for row in server.open("a.kvp")] == ["KVP110"]
    assert [row["code"] for row in server.open("b.kvp")] == ["KVP110"]
    for name in ("a.kvp", "b.kvp"):
        server.request("textDocument/hover", server.at(name, 0, 6))
        server.request("textDocument/definition", server.at(name, 0, 6))
        asked = {**server.at(name, 1, 0), "context": {"includeDeclaration": True}}
        assert len(server.request("textDocument/references", asked)) == 1
    server.change("b.kvp", {"text": two.partition("\n")[2]})
    assert server.told("b.kvp") == []
    server.becomes("a.kvp")


def test_a_file_of_tests_is_seen_with_its_policy(server: Client) -> None:
    (server.folder / "p.kvp").write_text("x: turn { priority: 40 }\n")
    assert server.open("p.test.kvp", 'test "t" {\n  given turn\n  expect turn { priority: 40 by x }\n}\n') == []
    (found,) = server.request("textDocument/definition", server.at("p.test.kvp", 2, 32))
    assert found["uri"] == server.uri("p.kvp")
    labels = [
        item["label"] for item in server.request("textDocument/completion", server.at("p.test.kvp", 2, 32))["items"]
    ]
    assert "x" in labels
    server.open("p.kvp")
    server.change("p.kvp", {"text": "z: turn { priority: 40 }\n"})
    server.becomes("p.test.kvp", "KVP101")


def test_files_that_change_outside_the_editor(tmp_path: Path) -> None:
    able = {"workspace": {"didChangeWatchedFiles": {"dynamicRegistration": True}}}
    with Client(tmp_path, able) as server:
        (tmp_path / "b.kvp").write_text(_B)
        assert server.open("a.kvp", _A) == []
        (watch,) = server.asked
        assert watch["method"] == "client/registerCapability"
        assert watch["params"]["registrations"][0]["registerOptions"]["watchers"] == [{"globPattern": "**/*.kvp"}]
        (tmp_path / "b.kvp").write_text(_B.replace("long", "tall"))
        change = {"uri": server.uri("b.kvp"), "type": 2}
        server.notify("workspace/didChangeWatchedFiles", {"changes": [change]})
        server.becomes("a.kvp", "KVP101")
        (tmp_path / "b.kvp").unlink()
        server.notify("textDocument/didSave", {"textDocument": {"uri": server.uri("a.kvp")}})
        told = server.becomes("a.kvp", "KVP101", "KVP101")
        assert any("cannot be read" in row["message"] for row in told)


def test_edits_say_for_which_version_they_are(tmp_path: Path) -> None:
    able = {"workspace": {"workspaceEdit": {"documentChanges": True}}}
    with Client(tmp_path, able) as server:
        (tmp_path / "b.kvp").write_text(_B)
        server.open("a.kvp", _A)
        server.change("a.kvp", {"text": "# first\n" + _A})
        edit = server.request("textDocument/rename", {**server.at("a.kvp", 2, 16), "newName": "tall"})
        rows = {Path(row["textDocument"]["uri"]).name: row for row in edit["documentChanges"]}
        assert rows["a.kvp"]["textDocument"]["version"] == 2
        assert rows["b.kvp"]["textDocument"]["version"] is None
        assert rows["a.kvp"]["edits"][0]["range"]["start"] == {"line": 2, "character": 15}


def test_a_link_to_a_file_is_the_file(server: Client) -> None:
    (server.folder / "real").mkdir()
    (server.folder / "real" / "b.kvp").write_text(_B)
    (server.folder / "b.kvp").symlink_to(server.folder / "real" / "b.kvp")
    assert server.open("a.kvp", _A) == []
    server.open("b.kvp")
    server.change("b.kvp", {"text": _B.replace("long", "tall")})
    server.becomes("a.kvp", "KVP101")
