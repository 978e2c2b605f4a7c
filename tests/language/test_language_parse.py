"""The whole language into its tree: every construct, precedence, places, and texts that are no policy."""

from __future__ import annotations

import logging
import os
import re
from pathlib import Path

import lark
import pytest
from lark import Lark

from kvpolicy import words
from kvpolicy.language import grammar, syntax
from kvpolicy.language.parse import parse
from kvpolicy.language.phrase import phrase

EVERYTHING = """
policy demo "What it is for"
use base
use "limits.kvp" as limits with patience = 5s, share = 40%
layers base, limits, work
let patience = 1.5h      # a comment
workflow research {
  agent planner, searcher, "a writer"
  tool grep
  barrier judge
  planner -> searcher * n -> judge -> "a writer"
  searcher -> grep * 3
  loop judge -> searcher at most 3
}
layer work {
  on tool_call[tool in {grep, "my tool"}] until tool_result at most 2h {
    quick: turn, tool_result[tool != ls, turn >= 2] over base.slow, other when idle() < 5s and not pressure(gpu) > 80% {
      priority: 80
      retention: hold p95(tool.duration) else patience
      tier: hbm, cpu after 30s, disk after 10min
      ttl: 10min fixed
      for: workflow
      prefetch: 5s
      admit: reuse_probability(within 30s) else 0.5 >= 50%
      replicas: all
      place: same_worker
      share: session
    }
  }
  other: [agent = coder] { retention: hold until tool_result[tool = ls] at most 10min }
}
any { retention: drop  priority: default  tier: gpu }
limit any[plan = free] per tenant {
  priority: at most 40  hold: at most 40% of gpu  gpu: at most 3 GiB  ttl: at least 5s
}
test "a test" {
  given turn[agent = coder, tokens = 12k], system
  assume p95(tool.duration) = 800ms for turn[agent = coder]
  assume steps_to_next_use() = never
  at tool_call[tool = grep]
  then 3min
  expect turn { priority: 80 by work.quick  retention: hold 800ms }
}
"""


def file_of(text: str) -> syntax.File:
    result = parse(text, "a.kvp")
    assert result.diagnostics == ()
    assert result.file is not None
    return result.file


def guard_of(text: str) -> syntax.Expression:
    guard = file_of(f"turn when {text} {{ priority: 3 }}").rules[0].guard
    assert guard is not None
    return guard


def test_everything() -> None:
    file = file_of(EVERYTHING)
    assert file.header is not None
    assert (file.header.name, file.header.title) == ("demo", "What it is for")
    base, limits = file.uses
    assert (base.target, base.is_file, base.alias, base.settings) == ("base", False, None, ())
    assert (limits.target, limits.is_file, limits.alias) == ("limits.kvp", True, "limits")
    assert [(s.name, phrase(s.value)) for s in limits.settings] == [("patience", "5s"), ("share", "40%")]
    assert file.layers[0].names == ("base", "limits", "work")
    assert file.layer_order == ("work",)

    (flow,) = file.workflows
    roles = [("agent", "planner"), ("agent", "searcher"), ("agent", "a writer"), ("tool", "grep"), ("barrier", "judge")]
    assert [(n.role, n.name) for n in flow.nodes] == roles
    edges = [(e.source, e.target, e.times, e.at_most, e.is_loop) for e in flow.edges]
    assert edges == [
        ("planner", "searcher", "n", None, False),
        ("searcher", "judge", None, None, False),
        ("judge", "a writer", None, None, False),
        ("searcher", "grep", "3", None, False),
        ("judge", "searcher", None, 3, True),
    ]

    quick, other, drop = file.rules
    assert (quick.label, quick.layer, drop.layer, drop.label) == ("quick", "work", None, None)
    assert quick.interval is not None
    assert quick.interval.start.conditions[0].values == (
        syntax.Name(("grep",), quick.place),
        syntax.Text("my tool", quick.place),
    )
    assert quick.interval.at_most is not None
    assert quick.over == (("base", "slow"), ("other",))
    assert [(c.attribute, c.operator) for c in quick.selector[1].conditions] == [("tool", "!="), ("turn", ">=")]
    values = {d.property: d.value for d in quick.declarations}
    assert list(values) == [
        "priority", "retention", "tier", "ttl", "for", "prefetch", "admit", "replicas", "place", "share",
    ]  # fmt: skip
    assert isinstance(values["tier"], syntax.Ladder)
    assert [(r.tier, r.after is None) for r in values["tier"].rungs] == [("hbm", True), ("cpu", False), ("disk", False)]
    assert isinstance(values["ttl"], syntax.Lasting)
    assert values["ttl"].fixed
    assert values["for"] == syntax.Name(("workflow",), quick.place)

    assert other.interval is None
    assert other.selector[0].kind == "any"
    hold = other.declarations[0].value
    assert isinstance(hold, syntax.Hold)
    assert hold.until is not None
    assert (hold.until.name, hold.duration) == ("tool_result", None)
    assert isinstance(drop.declarations[2].value, syntax.Ladder)

    (limit,) = file.limits
    bounds = [(b.property, b.side, phrase(b.value), b.of) for b in limit.bounds]
    assert limit.per == "tenant"
    assert bounds == [
        ("priority", "most", "40", None),
        ("hold", "most", "40%", "gpu"),
        ("gpu", "most", "3 GiB", None),
        ("ttl", "least", "5s", None),
    ]

    (test,) = file.tests
    steps = [type(step).__name__ for step in test.steps]
    assert steps == ["Given", "Given", "Assume", "Assume", "At", "Then", "Expect"]
    assert isinstance(test.steps[-1], syntax.Expect)
    assert test.steps[-1].declarations[0].by == ("work", "quick")


@pytest.mark.parametrize(
    ("text", "grouped"),
    [
        ("1 + 2 * 3 = 7", "((1 + (2 * 3)) = 7)"),
        ("1 - 2 - 3 < 4", "(((1 - 2) - 3) < 4)"),
        ("a else b else c < d", "((a else (b else c)) < d)"),
        ("2 * a else 3 < d", "((2 * (a else 3)) < d)"),
        ("not a < b and c or d", "((not((a < b)) and c) or d)"),
        ("a or b and not not c", "(a or (b and not(not(c))))"),
        ("-a * 2 > -3", "((-(a) * 2) > -3)"),
        ("(a or b) and c", "((a or b) and c)"),
    ],
)
def test_precedence(text: str, grouped: str) -> None:
    def shown(node: syntax.Expression) -> str:
        if isinstance(node, syntax.Binary):
            return f"({shown(node.left)} {node.operator} {shown(node.right)})"
        return f"{node.operator}({shown(node.operand)})" if isinstance(node, syntax.Unary) else phrase(node)

    assert shown(guard_of(text)) == grouped


def test_places_point_into_the_text() -> None:
    file = file_of("# one\n  turn[agent = coder]\n    { priority: 80\n      ttl: p95(tool.duration) else 5s }\n")
    (rule,) = file.rules
    assert str(rule.place) == "a.kvp:2:3"
    assert [str(d.place) for d in rule.declarations] == ["a.kvp:3:7", "a.kvp:4:7"]
    ttl = rule.declarations[1].value
    assert (ttl.place.line, ttl.place.column, ttl.place.end_column) == (4, 12, 38)
    assert str(rule.selector[0].conditions[0].values[0].place) == "a.kvp:2:16"


def test_layout_has_no_meaning() -> None:
    spread = file_of(EVERYTHING)
    packed = file_of(" ".join(re.sub(r"#.*", "", EVERYTHING).split()))
    for part in ("header", "uses", "layers", "lets", "workflows", "rules", "limits", "tests"):
        assert getattr(spread, part) == getattr(packed, part), part


@pytest.mark.parametrize("name", sorted(words.RESERVED))
def test_reserved_words_are_told(name: str) -> None:
    for text in (
        f"let {name} = 5s\n",
        f"{name}: turn {{ priority: 3 }}\n",
        f"layer {name} {{ turn {{ priority: 3 }} }}\n",
    ):
        told = parse(text, "a.kvp").diagnostics
        assert [fault.name for fault in told] == ["reserved-word"], text
        assert f"'{name}'" in told[0].message


@pytest.mark.parametrize("name", [*words.VALUE_WORDS, *words.WORKFLOW_WORDS, *words.PROPERTIES, *words.EVENTS, "never"])
def test_other_words_are_names(name: str) -> None:
    if name in words.RESERVED:
        return
    file = file_of(f"let {name} = 5s\nlayer {name} {{ {name}: turn[agent = {name}] over {name} {{ priority: 3 }} }}")
    assert file.rules[0].label == file.lets[0].name == name


def test_names_that_are_no_words_are_strings() -> None:
    file = file_of('layer "my layer" { "my rule": turn over "the other", a."b c" { priority: 3 } }')
    (rule,) = file.rules
    assert (rule.label, rule.layer, rule.over) == ("my rule", "my layer", (("the other",), ("a", "b c")))
    assert file_of('turn[agent = "say \\"x\\""] { priority: 3 }').rules[0].selector[0].conditions[0].values[
        0
    ] == syntax.Text('say "x"', rule.place)


@pytest.mark.parametrize(
    ("text", "code", "line"),
    [
        ("", "KVP109", 1),
        ("  \n# a comment\n", "KVP109", 1),
        ("turn { priority: 3 }\n\0", "KVP109", 2),
        ("x" * (4 * 1024 * 1024 + 1), "KVP109", 1),
        ("let a = " + "(" * 5000 + "1" + ")" * 5000, "KVP100", 1),
        ("let a = " + "not " * 5000 + "yes", "KVP100", 1),
        ("let a = " + "1 + " * 5000 + "1", "KVP100", 1),
        ("let a = " + "1 else " * 5000 + "1", "KVP100", 1),
        ("let a = " + "min(1, " * 5000 + "1" + ")" * 5000, "KVP100", 1),
        ("turn { priority: " + "9" * 5000 + " }", "KVP105", 1),
        ("turn { priority: " + "9" * 400 + "k }", "KVP105", 1),
        ("turn[depth > " + "9" * 5000 + "] { priority: 3 }", "KVP105", 1),
        ("workflow w { loop a -> b at most " + "9" * 5000 + " }", "KVP105", 1),
    ],
    ids=lambda value: str(value)[:24],
)
def test_what_is_no_policy_gives_one_message(text: str, code: str, line: int) -> None:
    (fault,) = parse(text, "a.kvp").diagnostics
    assert (fault.code, fault.place.line) == (code, line)
    assert len(fault.message) < 200


def test_a_hundred_levels_are_fine() -> None:
    file_of("let a = " + "(" * 98 + "1" + ")" * 98)


def test_the_grammar_has_no_conflicts(caplog: pytest.LogCaptureFixture) -> None:
    level = lark.logger.level
    lark.logger.setLevel(logging.DEBUG)
    lark.logger.propagate = True
    try:
        Lark(grammar.grammar_text(), parser="lalr", lexer="contextual", debug=True)
    finally:
        lark.logger.setLevel(level)
    assert "conflict" not in caplog.text


def test_the_reserved_words_of_the_grammar_are_those_of_the_table() -> None:
    (listed,) = re.findall(r"^NAME: /\(\?!\(([a-z|]+)\)", grammar.grammar_text(), re.M)
    assert set(listed.split("|")) == {*words.STATEMENT_WORDS, *words.CLAUSE_WORDS, *words.TEST_WORDS}
    units = (*words.DURATION_UNITS, *words.TOKEN_UNITS, *words.BYTE_UNITS, words.PERCENT_UNIT)
    (spaced,) = re.findall(r"\[ \\t\]\+\(([A-Za-z|%]+)\)", grammar.grammar_text())
    assert set(spaced.split("|")) == set(units)


def test_every_terminal_has_a_name() -> None:
    assert not [t.name for t in grammar.parser()[0].terminals if t.name.startswith("__ANON")]


class TestCache:
    """The parser's tables on disk are pickled, so only a file of our own may be read."""

    def test_it_is_ours_alone(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        found = grammar.cache_file()
        assert found is not None
        assert found.parent.stat().st_mode & 0o777 == 0o700

    def test_a_folder_that_others_may_write_is_not_used(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        (tmp_path / "kvpolicy").mkdir()
        (tmp_path / "kvpolicy").chmod(0o777)
        assert grammar.cache_file() is None

    def test_a_link_is_not_followed(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        found = grammar.cache_file()
        assert found is not None
        other = tmp_path / "other"
        other.write_bytes(b"")
        found.symlink_to(other)
        assert grammar.cache_file() is None
        found.unlink()
        (tmp_path / "kvpolicy").rmdir()
        (tmp_path / "kvpolicy").symlink_to(tmp_path)
        assert grammar.cache_file() is None

    def test_no_place_is_no_fault(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        blocked = tmp_path / "file"
        blocked.write_text("")
        monkeypatch.setenv("XDG_CACHE_HOME", str(blocked))
        assert grammar.cache_file() is None

    def test_a_broken_file_is_built_anew(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        found = grammar.cache_file()
        assert found is not None
        for junk in (b"", b"junk", os.urandom(2000), b"0" * 64 + b"\n" + os.urandom(100)):
            found.write_bytes(junk)
            found.chmod(0o600)
            made, _ = grammar.parser.__wrapped__()
            made.parse("turn { priority: 3 }")
        made, _ = grammar.parser.__wrapped__()
        made.parse("turn { priority: 3 }")
