"""Writes the editor grammars from the word tables and from kvp.lark: `python grammar/editors/generate.py [--check]`.

vscode/syntaxes/kvp.tmLanguage.json (TextMate; VS Code, Sublime Text, JetBrains) and tree-sitter-kvp/ (Neovim, Helix,
Emacs, Zed) are made here and never edited by hand; --check says whether they are as they would be written.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from kvpolicy.language import highlighting as shown

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import tree_sitter  # noqa: E402

SCOPES = {
    shown.COMMENT: "comment.line.number-sign.kvp",
    shown.STRING: "string.quoted.double.kvp",
    shown.QUANTITY: "constant.numeric.kvp",
    shown.KEYWORD: "keyword.control.kvp",
    shown.KIND: "storage.type.kind.kvp",
    shown.PROPERTY: "support.type.property-name.kvp",
    shown.FUNCTION: "support.function.kvp",
    shown.EVENT: "entity.name.type.event.kvp",
    shown.CONSTANT: "constant.language.kvp",
    shown.ATTRIBUTE: "entity.other.attribute-name.kvp",
    shown.SERIES: "support.variable.series.kvp",
    shown.LABEL: "entity.name.function.rule.kvp",
    shown.OPERATOR: "keyword.operator.kvp",
}


def textmate() -> str:
    """The TextMate grammar."""

    def rows(patterns: tuple[shown.Pattern, ...]) -> list[dict[str, object]]:
        return [{"name": SCOPES[pattern.shows], "match": pattern.text} for pattern in patterns]

    inside = {"begin": r"\[", "end": r"\]", "name": "meta.attributes.kvp", "patterns": rows(shown.INSIDE)}
    document = {
        "information_for_contributors": ["Made by grammar/editors/generate.py from kvpolicy/words.py."],
        "name": "kvp",
        "scopeName": "source.kvp",
        "fileTypes": ["kvp"],
        "patterns": [inside, *rows(shown.OUTSIDE)],
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def files() -> dict[Path, str]:
    """Every file that is made, with its text."""
    lark = (HERE.parent / "kvp.lark").read_text(encoding="utf-8")
    return {
        HERE / "vscode" / "syntaxes" / "kvp.tmLanguage.json": textmate(),
        HERE / "tree-sitter-kvp" / "grammar.js": tree_sitter.grammar(lark),
        HERE / "tree-sitter-kvp" / "queries" / "highlights.scm": tree_sitter.highlights(),
    }


def main() -> int:
    """Write them, or with --check compare them. Exit status 1 where one differs."""
    check, stale = "--check" in sys.argv, 0
    for path, text in files().items():
        same = path.exists() and path.read_text(encoding="utf-8") == text
        if check and not same:
            print(f"{path.relative_to(HERE)} is not as it would be made: run grammar/editors/generate.py")
            stale = 1
        elif not same:
            path.write_text(text, encoding="utf-8")
            print(f"wrote {path.relative_to(HERE)}")
    return stale


if __name__ == "__main__":
    sys.exit(main())
