"""The tree-sitter grammar: its rules, evaluated by node, accept every policy of the pack and no broken one.

Another parser (Earley) runs them: tree-sitter's generator is not to be had from a package index.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest
from lark import Lark
from lark.exceptions import LarkError

from tests.language.editors.samples import PACK, ROOT

GOOD = sorted((ROOT / "tests" / "corpus" / "good").glob("*.kvp"))
FOLDER = ROOT / "grammar" / "editors" / "tree-sitter-kvp"


@cache
def rules() -> dict:
    node = shutil.which("node")
    if node is None:
        pytest.skip("no node here: apt-get install nodejs")
    script = Path(__file__).with_name("evaluate.js")
    done = subprocess.run([node, script, FOLDER / "grammar.js"], capture_output=True, text=True, check=True, timeout=60)
    return json.loads(done.stdout)


def written(rule: dict, terminals: dict[str, str]) -> str:
    """A rule as lark writes it; strings and patterns become terminals."""
    match rule["type"]:
        case "SYMBOL":
            name = rule["name"]
            return terminals.get(name, f"r_{name}")
        case "STRING":
            value = rule["value"]
            if value.isalpha():
                terminals[f"={value}"] = f"K_{value.upper()}"
                return f"K_{value.upper()}"
            return json.dumps(value)
        case "SEQ":
            return "(" + " ".join(written(member, terminals) for member in rule["members"]) + ")"
        case "CHOICE":
            return "(" + " | ".join(written(member, terminals) for member in rule["members"]) + ")"
        case "OPTIONAL":
            return f"({written(rule['content'], terminals)})?"
        case "REPEAT":
            return f"({written(rule['content'], terminals)})*"
        case "REPEAT1":
            return f"({written(rule['content'], terminals)})+"
    raise AssertionError(f"a rule of type {rule['type']} was not expected")


@cache
def parser() -> Lark:
    """The rules over whole words, so that a reserved word and a name are told apart only by place, as there."""
    told = rules()
    patterns = {"identifier", "string", "quantity", "int", "comment"}
    terminals = {name: f"T_{name.upper()}" for name in patterns}
    lines = [f"r_{name}: {written(rule, terminals)}" for name, rule in told["rules"].items() if name not in patterns]
    for name in patterns:
        rule = told["rules"][name]
        pattern = rule["content"]["value"] if rule["type"] == "TOKEN" else rule["value"]
        lines.append(f"T_{name.upper()}: /{pattern}/")
    words = [(value, key[1:]) for key, value in terminals.items() if key.startswith("=")]
    lines += [f'{value}: "{word}"' for value, word in words]
    lines += ["%ignore /[ \\t\\r\\n]+/", "%ignore T_COMMENT"]
    return Lark("\n".join(lines), start="r_start", parser="earley", lexer="dynamic", ambiguity="resolve")


def test_every_rule_that_is_named_is_there_and_used() -> None:
    told = rules()
    named = set(re.findall(r'"name": "([a-z_]+)"', json.dumps(told["rules"])))
    assert named | {"start", "comment"} == set(told["rules"])
    assert told["word"] == "identifier"


@pytest.mark.parametrize("path", [*PACK, *GOOD], ids=lambda path: path.name)
def test_a_good_policy_is_accepted(path: Path) -> None:
    parser().parse(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    "text",
    [
        "turn { priority 80 }",
        "layer x { turn { }",
        "on tool_call { turn }",
        "let = 3",
        "turn[agent] { }",
        "limit turn { at most }",
    ],
)
def test_a_broken_policy_is_not(text: str) -> None:
    with pytest.raises(LarkError):
        parser().parse(text)


def test_the_queries_name_nodes_that_the_grammar_has() -> None:
    text = (FOLDER / "queries" / "highlights.scm").read_text(encoding="utf-8")
    nodes = set(re.findall(r"\(([a-z_]+)[ )]", text)) - {"any-of"}
    assert nodes <= set(rules()["rules"])
