"""What an editor does with damaged texts: open, type, ask; on the language server's own parts, in this process.

A session is a list of steps in JSON, so that a finding can be run again. Right is: every step ends, with an answer that
is JSON and lies within its text, or with a sentence that refuses.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from lsprotocol import converters, types

from kvpolicy.faults import KvpError
from kvpolicy.lsp import answers
from kvpolicy.lsp.documents import Document, Documents, normal
from kvpolicy.lsp.lines import Lines
from kvpolicy.lsp.project import Project
from kvpolicy.lsp.rename import Refused
from kvpolicy.lsp.told import told
from tests.fuzz import damage

Row = list[Any]
FILE = "session.json"
_ASKED = (
    "hover",
    "definition",
    "references",
    "completion",
    "rename",
    "prepare",
    "format",
    "outline",
    "actions",
    "check",
)
_NAMES = ("x", "new_name", "turn", "over", "a b", "", '"', "\\", "🙂", "a\nb", "yes", "l1", "p" * 300)
_CONVERTER = converters.get_converter()


def drawn(chance: Random, texts: dict[str, str]) -> bytes:
    """A session on some texts, by file name."""
    rows: list[Row] = [["open", name] for name in texts]
    for _ in range(chance.choice((2, 4, 8))):
        name = chance.choice(list(texts))
        line, column = chance.choice((0, 1, 3, 10, 999, 1 << 30)), chance.choice((0, 1, 5, 20, 99, 1 << 30))
        lines = texts[name].split("\n")
        if chance.random() < 0.8:
            line = chance.randrange(len(lines))
            column = chance.randrange(len(lines[line]) + 1)
        if chance.random() < 0.4:
            put = chance.choice(damage.SCRAPS) if chance.random() < 0.7 else chance.choice('abc:{[("# \n')
            rows.append(["change", name, line, column, chance.choice((0, 0, 1, 5)), put])
        for asked in chance.sample(_ASKED, 3):
            rows.append([asked, name, line, column, chance.choice(_NAMES)])
    return json.dumps(rows).encode()


def run(folder: Path) -> str | None:
    """Do what the session of a folder says; what is wrong with an answer, None where nothing is."""
    project = Project(Documents(folder), (folder,))
    for row in json.loads((folder / FILE).read_text(encoding="utf-8")):
        fault = _step(project, folder, row)
        if fault is not None:
            return f"lsp: {row[0]}: {fault}"
    return None


def _step(project: Project, folder: Path, row: Row) -> str | None:
    step, name, *rest = row
    uri = (folder / name).as_uri()
    documents = project.documents
    if step == "open":
        text = (folder / name).read_bytes().decode("utf-8", "surrogateescape")
        documents.put(uri, 1, text.encode("utf-8", "surrogatepass").decode("utf-8", "replace"))
        return None
    document = documents.open[uri]
    position = types.Position(rest[0], rest[1])
    if step == "change":
        end = types.Position(rest[0], rest[1] + rest[2])
        documents.change(
            uri, document.version + 1, [types.TextDocumentContentChangePartial(types.Range(position, end), rest[3])]
        )
        return None
    try:
        answer = _ask(project, document, step, position, rest[2])
    except (Refused, KvpError) as refused:
        return None if str(refused) and "\n" not in str(refused) else f"no sentence: {str(refused)!r}"
    try:
        told_as = json.dumps(_CONVERTER.unstructure(answer), allow_nan=False)
    except (TypeError, ValueError) as fault:
        return f"no JSON: {fault}"
    return _outside(project, document, json.loads(told_as))


def _ask(project: Project, document: Document, step: str, position: types.Position, word: str) -> Any:
    here = types.Range(position, position)
    asked: dict[str, Callable[[], Any]] = {
        "hover": lambda: answers.hover(project, document, position),
        "definition": lambda: answers.definition(project, document, position),
        "references": lambda: answers.references(project, document, position, True),
        "completion": lambda: answers.completion(project, document, position, None),
        "rename": lambda: answers.rename(project, document, position, word, False),
        "prepare": lambda: answers.prepared(project, document, position),
        "format": lambda: answers.formatted(document),
        "outline": lambda: answers.outlined(project, document),
        "actions": lambda: answers.actions(project, document, here, [], False),
        "check": lambda: _checked(project, document),
    }
    return asked[step]()


def _checked(project: Project, document: Document) -> list[types.Diagnostic]:
    view = project.view(document.path)
    return told(view, Lines(normal(document.text)), view.checked.diagnostics)


def _outside(project: Project, document: Document, answer: Any) -> str | None:
    """A range of an answer that is not in its text, or ends before it begins."""
    waiting: list[tuple[Any, Document | None]] = [(answer, document)]
    while waiting:
        part, text = waiting.pop()
        if isinstance(part, list):
            waiting += [(one, text) for one in part]
        elif isinstance(part, dict):
            if "uri" in part:
                text = project.documents.open.get(part["uri"])
            for key, value in part.items():
                if key == "changes":
                    waiting += [(edits, project.documents.open.get(uri)) for uri, edits in value.items()]
                else:
                    waiting.append((value, text))
            if text is not None and {"start", "end"} <= part.keys() and not _within(part, text.lines):
                return f"a range that is nowhere: {part}"
    return None


def _within(part: dict[str, Any], lines: Lines) -> bool:
    ends = [(part[side]["line"], part[side]["character"]) for side in ("start", "end")]
    last = lines.position(len(lines.text))
    return (0, 0) <= ends[0] <= ends[1] <= (last.line + 1, 0) or ends[1] <= (last.line, last.character)
