"""Every word of the tables and every policy of the pack is highlighted: by Pygments, and by the engine of VS Code."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.language.editors.samples import PACK, ROOT, known, placed

pygments = pytest.importorskip("pygments")

SAMPLES = list(placed())
EDITORS = ROOT / "grammar" / "editors"
MODULES = ROOT / ".venv" / "editors" / "node_modules"
WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")


def place(text: str, word: str) -> int:
    """Where the word stands: the only time its letters do, or else the first time as a whole word."""
    return text.index(word) if text.count(word) == 1 else next(m.start() for m in WORD.finditer(text) if m[0] == word)


def test_the_samples_name_every_word_of_every_table() -> None:
    from kvpolicy import words

    said = {word for _, word, _ in SAMPLES}
    for table in (words.PROPERTIES, words.SPAN_KINDS, words.FUNCTIONS, words.EVENT_ATTRIBUTES, words.SERIES):
        assert set(table) <= said


# --- Pygments -------------------------------------------------------------------------------------------------


def by_pygments(text: str) -> Iterator[tuple[int, str, object]]:
    from pygments.lexers import get_lexer_by_name

    at = 0
    for token, piece in get_lexer_by_name("kvp", stripnl=False, ensurenl=False).get_tokens(text):
        yield at, piece, token
        at += len(piece)


@pytest.mark.parametrize(("text", "word", "shows"), SAMPLES, ids=[f"{s[2]}-{s[1]}" for s in SAMPLES])
def test_pygments_shows_each_word_as_what_it_is(text: str, word: str, shows: str) -> None:
    from kvpolicy.language.pygments_lexer import TOKENS

    at = place(text, word)
    found = {start: (piece, token) for start, piece, token in by_pygments(text)}
    assert found.get(at) == (word, TOKENS[shows]), found


@pytest.mark.parametrize("path", PACK, ids=lambda path: path.name)
def test_pygments_leaves_no_word_of_the_language_plain_in_the_pack(path: Path) -> None:
    from pygments.token import Error, Name, Text

    text = path.read_text(encoding="utf-8")
    pieces = list(by_pygments(text))
    assert "".join(piece for _, piece, _ in pieces) == text
    plain = {piece for at, piece, token in pieces if token is Name and text[at - 1] != "."}  # `base.done` names a rule
    assert not plain & known()
    assert not [piece for _, piece, token in pieces if token in (Error, Text) and piece.strip()]


# --- the engine of VS Code ------------------------------------------------------------------------------------


@cache
def by_textmate() -> dict[str, list[tuple[int, int, int, str]]]:
    node = shutil.which("node")
    if node is None or not MODULES.is_dir():
        pytest.skip("no node with vscode-textmate here: apt-get install nodejs npm, then make test")
    texts = [{"name": text, "text": text} for text, _, _ in SAMPLES]
    texts += [{"name": path.name, "text": path.read_text(encoding="utf-8")} for path in PACK]
    grammar = EDITORS / "vscode" / "syntaxes" / "kvp.tmLanguage.json"
    script = Path(__file__).with_name("tokenize.js")
    done = subprocess.run(
        [node, script, MODULES, grammar],
        input=json.dumps(texts),
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return json.loads(done.stdout)


@pytest.mark.parametrize(("text", "word", "shows"), SAMPLES, ids=[f"{s[2]}-{s[1]}" for s in SAMPLES])
def test_vs_code_shows_each_word_as_what_it_is(text: str, word: str, shows: str) -> None:
    scopes = generated().SCOPES
    at = place(text, word)
    found = {start: (text[start:end], scope) for _, start, end, scope in by_textmate()[text]}
    assert found.get(at) == (word, scopes[shows]), found


@pytest.mark.parametrize("path", PACK, ids=lambda path: path.name)
def test_vs_code_leaves_no_word_of_the_language_plain_in_the_pack(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").split("\n")
    plain = {"source.kvp", "meta.attributes.kvp"}
    bare = {
        word
        for number, start, end, scope in by_textmate()[path.name]
        if scope in plain
        for word in WORD.findall(lines[number][start:end])
    }
    assert not bare & known()


def test_the_extension_names_files_that_are_there() -> None:
    folder = EDITORS / "vscode"
    package = json.loads((folder / "package.json").read_text(encoding="utf-8"))["contributes"]
    assert json.loads((folder / package["languages"][0]["configuration"]).read_text(encoding="utf-8"))
    assert (
        json.loads((folder / package["grammars"][0]["path"]).read_text(encoding="utf-8"))["scopeName"] == "source.kvp"
    )


# --- what is generated ----------------------------------------------------------------------------------------


@cache
def generated():
    """grammar/editors/generate.py as a module."""
    sys.path.insert(0, str(EDITORS))
    try:
        import generate
    finally:
        sys.path.remove(str(EDITORS))
    return generate


def test_the_editor_grammars_are_as_they_would_be_made() -> None:
    stale = [path.name for path, text in generated().files().items() if path.read_text(encoding="utf-8") != text]
    assert not stale, "run grammar/editors/generate.py"
