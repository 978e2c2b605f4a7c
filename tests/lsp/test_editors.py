"""The set-ups of docs/editors.md, in the editors that can run here; the others as far as they go."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
_PAGE = (ROOT / "docs" / "editors.md").read_text(encoding="utf-8")
_TEXT = "# first\nturn { priorty: 40 }\n"


def _set_up(editor: str) -> str:
    found = re.search(rf"<!-- set-up: {editor} -->\n```\w+\n(.*?)^```$", _PAGE, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


def _environment(home: Path) -> dict[str, str]:
    """`kvp` of this environment on the PATH, nothing of the user's."""
    beside = str(Path(sys.executable).parent)
    return {**os.environ, "PATH": f"{beside}{os.pathsep}{os.environ['PATH']}", "HOME": str(home),
            "XDG_CONFIG_HOME": str(home), "XDG_DATA_HOME": str(home), "XDG_STATE_HOME": str(home)}  # fmt: skip


_LUA = """
local found = function() return #vim.diagnostic.get(0) > 0 end
vim.wait(60000, found, 50)
local row = vim.diagnostic.get(0)[1] or {}
local here = { textDocument = vim.lsp.util.make_text_document_params(), position = { line = 1, character = 1 } }
local hover = vim.lsp.buf_request_sync(0, "textDocument/hover", here, 60000)
local said = ""
for _, answer in pairs(hover or {}) do said = answer.result.contents.value end
vim.api.nvim_buf_set_text(0, 1, 7, 1, 14, { "priority" })
vim.wait(60000, function() return #vim.diagnostic.get(0) == 0 end, 50)
local told = { code = row.code, line = row.lnum, col = row.col, hover = said, after = #vim.diagnostic.get(0) }
vim.fn.writefile({ vim.fn.json_encode(told) }, "told.json")
vim.cmd("qall!")
"""


@pytest.mark.skipif(shutil.which("nvim") is None, reason="no Neovim here (apt-get install neovim)")
def test_neovim(tmp_path: Path) -> None:
    (tmp_path / "init.lua").write_text(_set_up("neovim"), encoding="utf-8")
    (tmp_path / "ask.lua").write_text(_LUA, encoding="utf-8")
    (tmp_path / "p.kvp").write_text(_TEXT, encoding="utf-8")
    done = subprocess.run(
        ["nvim", "--headless", "-n", "-u", "init.lua", "p.kvp", "-c", "luafile ask.lua"],
        cwd=tmp_path, env=_environment(tmp_path), capture_output=True, text=True, timeout=280, check=False,
    )  # fmt: skip
    assert (tmp_path / "told.json").exists(), done.stderr
    told = json.loads((tmp_path / "told.json").read_text(encoding="utf-8"))
    assert (told["line"], told["col"], told["after"]) == (1, 7, 0), told
    assert told["code"] in ("KVP101", None)  # Neovim keeps the code since 0.8
    assert told["hover"].startswith("`turn`")


_ELISP = """
(find-file "p.kvp")
(run-hooks 'post-command-hook)  ; there is no command in a batch
(let ((until (+ (float-time) 90)))
  (while (and (not (eglot-current-server)) (< (float-time) until)) (accept-process-output nil 0.1))
  (flymake-mode 1)
  (while (and (null (flymake-diagnostics)) (< (float-time) until))
    (flymake-start) (accept-process-output nil 0.2)))
(let* ((row (car (flymake-diagnostics)))
       (hover (progn (goto-char (point-min)) (forward-line 1) (forward-char 1)
                     (jsonrpc-request (eglot-current-server) :textDocument/hover
                                      (eglot--TextDocumentPositionParams))))
       (said (plist-get (plist-get hover :contents) :value)))
  (with-temp-file "told.json"
    (insert (json-encode (list (cons 'text (and row (flymake-diagnostic-text row)))
                               (cons 'at (and row (flymake-diagnostic-beg row)))
                               (cons 'hover said))))))
(eglot-shutdown (eglot-current-server))
(kill-emacs 0)
"""


def _has_eglot() -> bool:
    if shutil.which("emacs") is None:
        return False
    asked = ["emacs", "--batch", "--eval", "(progn (package-initialize) (require 'eglot))"]
    return subprocess.run(asked, capture_output=True, check=False, timeout=120).returncode == 0


def test_emacs(tmp_path: Path) -> None:
    if not _has_eglot():
        pytest.skip("no Emacs with eglot here (apt-get install emacs-nox elpa-eglot)")
    (tmp_path / "init.el").write_text("(package-initialize)\n" + _set_up("emacs"), encoding="utf-8")
    (tmp_path / "ask.el").write_text(_ELISP, encoding="utf-8")
    (tmp_path / "p.kvp").write_text(_TEXT, encoding="utf-8")
    done = subprocess.run(
        ["emacs", "--batch", "-l", "init.el", "-l", "ask.el"],
        cwd=tmp_path, env=_environment(tmp_path), capture_output=True, text=True, timeout=280, check=False,
    )  # fmt: skip
    assert (tmp_path / "told.json").exists(), done.stderr[-3000:]
    told = json.loads((tmp_path / "told.json").read_text(encoding="utf-8"))
    assert told["at"] == _TEXT.index("priorty") + 1, (told, done.stderr[-2000:])
    assert "did you mean" in told["text"]
    assert told["hover"].startswith("`turn`")


def test_helix_is_told_how_to_start_the_server() -> None:
    """Helix itself is not run: its configuration is read."""
    said = tomllib.loads(_set_up("helix"))
    (language,) = said["language"]
    assert language["language-servers"] == ["kvp"] and language["file-types"] == ["kvp"]
    assert said["language-server"]["kvp"] == {"command": "kvp", "args": ["lsp"]}


_NODE = """
const Module = require("module");
const settings = { kvp: { command: process.argv[2] } };
const vscode = {
  window: { showWarningMessage: (text) => console.log(JSON.stringify({ warned: text })) },
  workspace: { getConfiguration: (section) => ({ get: (key) => settings[section][key] }) },
};
class LanguageClient {
  constructor(id, name, server, options) { this.given = { id, server, options }; }
  start() { console.log(JSON.stringify(this.given)); }
  stop() { console.log(JSON.stringify({ stopped: true })); }
}
const load = Module._load;
Module._load = (name, ...rest) => {
  if (name === "vscode") return vscode;
  const library = name === "vscode-languageclient/node" && process.argv[3] === "with";
  if (library) return { LanguageClient, TransportKind: { stdio: 0 } };
  return load(name, ...rest);
};
const client = require(process.argv[1]);
client.activate({ extensionPath: "/there" });
client.deactivate();
"""


def _extension(command: str, library: str) -> list[dict[str, object]]:
    """What VS Code's side would be told by the extension's client; VS Code itself cannot run here."""
    folder = ROOT / "grammar" / "editors" / "vscode"
    package = json.loads((folder / "package.json").read_text(encoding="utf-8"))
    main = str(folder / package["main"])
    assert package["activationEvents"] == ["onLanguage:kvp"] and "vscode-languageclient" in package["dependencies"]
    assert "kvp.command" in package["contributes"]["configuration"]["properties"]
    done = subprocess.run(
        ["node", "-e", _NODE, main, command, library], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.skipif(shutil.which("node") is None, reason="no node here (apt-get install nodejs)")
def test_what_vs_code_starts_is_the_server(tmp_path: Path) -> None:
    kvp = str(Path(sys.executable).with_name("kvp"))
    given, stopped = _extension(kvp, "with")
    server = given["server"]
    assert isinstance(server, dict) and stopped == {"stopped": True}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize",
                       "params": {"processId": None, "rootUri": None, "capabilities": {}}})  # fmt: skip
    done = subprocess.run(
        [server["command"], *server["args"]], input=f"Content-Length: {len(body)}\r\n\r\n{body}".encode(),
        cwd=tmp_path, capture_output=True, check=False, timeout=120,
    )  # fmt: skip
    assert b'"hoverProvider"' in done.stdout
    assert given["options"] == {"documentSelector": [{"language": "kvp"}]}


@pytest.mark.skipif(shutil.which("node") is None, reason="no node here (apt-get install nodejs)")
def test_vs_code_without_its_library_says_what_to_do() -> None:
    if (ROOT / "grammar" / "editors" / "vscode" / "node_modules").exists():
        pytest.skip("the extension's library is installed here")
    (warned,) = _extension("kvp", "without")
    assert "npm install" in str(warned["warned"])
