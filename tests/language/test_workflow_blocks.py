"""What a `workflow` block says beside nodes, edges and loops: probabilities, counts and bounds of ways, sub-agents,
workflows that stand in it; and what it says wrong, each time one message with its place and its mend.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvpolicy.faults import InputFault, PolicyFault
from kvpolicy.language import check_names, nesting, syntax
from kvpolicy.language.check import examine
from kvpolicy.language.format import format_text
from kvpolicy.language.grammar import parser
from kvpolicy.language.load import load, load_text
from kvpolicy.language.met import is_nested
from kvpolicy.language.nesting import DEEPEST, MOST_NODES, nest, outermost
from kvpolicy.language.parse import parse
from kvpolicy.language.spelling import MOST_COMPARED, nearest
from kvpolicy.policy.compile import compile as compile_policy
from kvpolicy.workflow.graph import Graph
from tests.language.language_texts import faults_of

RESEARCH = "workflow research { agent search, read  search -> read }\n"
RULE = "turn { priority: 40 }\n"


def flow(inside: str) -> str:
    """A workflow beside which `research` stands; its lines begin in the second one of the text."""
    return f"workflow w {{\n{inside}\n}}\n{RESEARCH}{RULE}"


def told(inside: str) -> list[tuple[str, int, int, str, str | None]]:
    return [(d.code, d.place.line, d.place.column, d.message, d.fix) for d in faults_of(flow(inside))]


def test_all_that_is_said_of_an_edge() -> None:
    text = 'a -> b * n 30% at most 2 -> c 0.25 -> d * "as many" -> e at most 4\nloop c -> a * 3 12.5 % at most 9'
    file = parse(f"workflow w {{ agent a, b, c, d, e\n{text} }}", "w.kvp").file
    assert file is not None
    said = [
        (e.source, e.target, e.times, e.probability.text if e.probability else None, e.at_most, e.is_loop)
        for e in file.workflows[0].edges
    ]
    assert said == [
        ("a", "b", "n", "30%", 2, False),
        ("b", "c", None, "0.25", None, False),
        ("c", "d", "as many", None, None, False),
        ("d", "e", None, None, 4, False),
        ("c", "a", "3", "12.5 %", 9, True),
    ]


def test_nodes_that_are_called_and_nodes_that_are_workflows() -> None:
    text = 'agent writer, checker of writer\nworkflow research, "our lib".deep as "the first" of writer\n'
    text += "barrier j of checker"
    file = parse(f"workflow w {{ {text} }}", "w.kvp").file
    assert file is not None
    nodes = [(n.role, n.name, n.path, n.parent) for n in file.workflows[0].nodes]
    assert nodes == [
        ("agent", "writer", (), None),
        ("agent", "checker", (), "writer"),
        ("workflow", "research", ("research",), None),
        ("workflow", "the first", ("our lib", "deep"), "writer"),
        ("barrier", "j", (), "checker"),
    ]
    places = [file.text.split("\n")[n.place.line - 1][n.place.column - 1 :] for n in file.workflows[0].nodes]
    assert [place[:6] for place in places] == ["writer", "checke", "resear", '"the f', "j of c"]


def test_no_word_is_reserved_for_it() -> None:
    """Texts of before stay what they were, whatever their nodes are called."""
    names = ("calls", "after", "all", "nested", "part", "probability", "within", "agent")
    chains = "\n".join(f"{a} -> {b} * {b}" for a, b in pairwise(names))
    text = f"workflow w {{ agent {', '.join(names)}\n{chains}\nloop calls -> agent at most 3 }}\n{RULE}"
    result = parse(text, "w.kvp")
    assert result.diagnostics == ()
    assert result.file is not None
    assert [node.name for node in result.file.workflows[0].nodes] == list(names)
    assert len(result.file.workflows[0].edges) == len(names)


def test_the_layout() -> None:
    text = (
        "workflow w {agent a,checker   of a # why\n workflow lib . research   as first,research of a\n"
        'a->checker*n   30 %  at   most 2->b 0.5\nloop b->a*"x y"12.5%  at most 3}turn{priority:4}'
    )
    assert format_text(text, "w.kvp").text == (
        "workflow w {\n"
        "  agent a, checker of a  # why\n"
        "  workflow lib.research as first, research of a\n"
        "  a -> checker * n 30% at most 2 -> b 0.5\n"
        '  loop b -> a * "x y" 12.5% at most 3\n'
        "}\n\nturn { priority: 4 }\n"
    )


FAULTS = {
    # what is wrong with a probability
    "agent a, b\na -> b 30": ("KVP105", 3, 8, "100% at most, and this is 30", "write `30%`"),
    "agent a, b\na -> b 130%": ("KVP105", 3, 8, "100% at most", "to 100%"),
    "agent a, b\na -> b 0%": ("KVP105", 3, 8, "never taken", "remove it"),
    "agent a, b\nloop a -> b 0.0 at most 3": ("KVP105", 3, 13, "never taken", "remove it"),
    "agent a, b\na -> b 30s": ("KVP102", 3, 8, "is a share, and 30s is none", "`30%` or `0.3`"),
    "agent a, b\na -> b 3k": ("KVP102", 3, 8, "is a share, and 3k is none", "`30%` or `0.3`"),
    "agent a, b\na -> b 30pc": ("KVP102", 3, 8, "'pc' is not a unit", "write 30%"),
    "agent a, b\na -> b 30 percent": ("KVP102", 3, 8, "'percent' is not a unit", "write 30%"),
    "agent a, b, c\na -> b 70%\na -> c 40%": ("KVP105", 4, 8, "out of 'a' add up to 110%", "100% at most together"),
    "agent a, b, c\na -> b -> c 0.9\nloop b -> a 0.2 at most 2": ("KVP105", 4, 13, "out of 'b' add up to 110%", "100%"),
    "agent a, b, c\nbarrier j\na -> b 70% -> j\na -> c 30% -> j": ("KVP105", 5, 8, "'b' and 'c' together", "for both"),
    "agent a, b\na -> b 70%\nloop a -> b 60% at most 2": ("KVP107", 4, 13, "two probabilities", "keep one"),
    # workflows that stand in it
    "agent a\nworkflow reserch\na -> reserch": ("KVP101", 3, 10, "no workflow 'reserch'", "did you mean `research`?"),
    "agent a\nworkflow zzz as b\na -> b": ("KVP101", 3, 10, "no workflow 'zzz'", "`workflow zzz { … }` beside"),
    "agent a\nworkflow w as again\na -> again": ("KVP112", 3, 10, "within itself: w → w", "`loop`"),
    "agent a\nworkflow research, research": ("KVP107", 3, 20, "'research' is declared twice", "research as NAME"),
    "agent research\nworkflow research": ("KVP107", 3, 10, "'research' is declared twice", "research as NAME"),
    'agent "research/read"\nworkflow research': ("KVP107", 2, 7, "'research/read' is declared twice", "another name"),
    # sub-agents
    "agent a, b of aa\na -> a at most 1": ("KVP101", 2, 15, "no node 'aa'", "did you mean `a`?"),
    "agent a of b, b of a\nb -> b": ("KVP101", 2, 12, "circle, and nobody calls the first: a → b → a", "by nobody"),
    "agent x, c of a, a of b, b of c, d of a\nx -> d": ("KVP101", 2, 15, "the first: c → b → a → c", "by nobody"),
    "agent a, b of b": ("KVP101", 2, 15, "'b' cannot be a sub-agent of itself", "`loop`"),
    "agent a, b of a\na -> b": ("KVP107", 3, 1, "'a' calls 'b'", "` of a`"),
    "agent a, b, c of b\na -> b\nloop c -> a at most 3": (
        "KVP107",
        4,
        1,
        "its end leads nowhere, and not to 'a'",
        "` of b`",
    ),
    "agent a, b of a\na -> a at most 2\nb -> b at most 2\nb -> a": (
        "KVP107",
        4,
        1,
        "'b' is a sub-agent",
        "remove the way",
    ),
    "agent a, z\nworkflow research as r of a\na -> z\nr -> z": ("KVP107", 5, 1, "'r' is a sub-agent", "remove the way"),
    # names
    "agent x\nx -> z": ("KVP101", 3, 1, "there is no node 'z'", "declare it: `agent z`"),
    "agent x, writer\nx -> writr": ("KVP101", 3, 1, "there is no node 'writr'", "did you mean `writer`?"),
    "agent a b\na -> b": ("KVP100", 2, 9, "a comma is missing before 'b'", "write `a, b`: nodes"),
    "agent a, b c, d\na -> b": ("KVP100", 2, 12, "a comma is missing before 'c'", "write `b, c`"),
    "tool a b c\na -> b": ("KVP100", 2, 8, "a comma is missing before 'b'", "write `a, b`"),
    # bounds
    "agent a, b\na -> b at most 0": ("KVP105", 3, 1, "a way that is taken 0 times", "`at most 1`"),
    "agent a, b\na -> b at most 9999999999": ("KVP105", 3, 16, "that many times", None),
    # counts
    "agent a, b\na -> b * 0": ("KVP105", 3, 10, "`* 0` is no count of branches", "whole number from 1 to"),
    "agent a, b\nloop a -> b * 99999999999 at most 2": ("KVP105", 3, 15, "`* 99999999999` is no", "1 to 999,999,999,"),
    'agent a, b\na -> b * ""': ("KVP105", 3, 10, '`* ""` is no count', "or the name of a count"),
    'agent a, b\na -> b * "3 of them" 20%': ("KVP105", 3, 10, '`* "3 of them"` is no count', "or the name of a count"),
    # written as elsewhere
    "agent a, b\na -> b [30%]": ("KVP100", 3, 8, "how likely a way is", "write `-> b 30%`"),
    "agent a, b\na -> b [30\t%]": ("KVP100", 3, 8, "how likely a way is", "write `-> b 30%`"),
    "agent a, b\na -> b (0.3)": ("KVP100", 3, 8, "how likely a way is", "write `-> b 0.3`"),
    "agent a, b\na -> b: 30%": ("KVP100", 3, 7, "how likely a way is", "write `-> b 30%`"),
    "agent a, b\na -> b p = 0.3": ("KVP100", 3, 10, "how likely a way is", "write `-> b 0.3`"),
    "agent a, b\na -> b when 30%": ("KVP100", 3, 8, "how likely a way is", "write `-> b 30%`"),
    "agent a, b\na -> b at 30%": ("KVP100", 3, 11, "how likely a way is", "write `-> b 30%`"),
    "agent a, b\na -30%-> b": ("KVP100", 3, 3, "how likely a way is", "write `-> NODE 30%`"),
    "agent a, b\na -> b 30% * n": ("KVP100", 3, 12, "in this order", "`-> NODE * n 30% at most 3`"),
    "agent a, b\nloop a -> b at most 3 30%": ("KVP100", 3, 23, "in this order", "`-> NODE * n 30% at most 3`"),
    "agent a, b\nloop a -> b at most 30%": ("KVP100", 3, 23, "is a whole number", "`at most 30`"),
    "agent a, b\nloop a -> b at most 2.5": ("KVP100", 3, 21, "a whole number", "write `at most 2`"),
    "agent a, b\na -> b * 1.5": ("KVP100", 3, 10, "how many there are is a whole number", "write `* 1`"),
    "agent a, b\nloop a -> b max 3": ("KVP100", 3, 13, "'max' bounds no way", "write `at most 3`"),
    "agent a, b\na calls b": ("KVP100", 3, 3, "declared with the node that calls it", "write `agent b of a` instead"),
    "agent a\n  workflow sub {\n agent x }\n  a -> sub": (
        "KVP100",
        3,
        3,
        "cannot stand within another",
        "beside this one",
    ),
}


@pytest.mark.parametrize("inside", FAULTS, ids=lambda inside: inside.replace("\n", " / "))
def test_one_message_at_its_place_with_its_mend(inside: str) -> None:
    code, line, column, message, fix = FAULTS[inside]
    (one,) = told(inside)
    assert one[:3] == (code, line, column), one
    assert message in one[3]
    assert (fix is None and one[4] is None) or (fix is not None and one[4] is not None and fix in one[4]), one[4]


@pytest.mark.parametrize(
    "inside",
    [
        "agent a, b, c\na -> b 70%\na -> c 30%",
        "agent a, b, c\na -> b 1\na -> c",
        "agent a, b, c\nbarrier j\na -> b 100% -> j\na -> c 100% -> j",  # taken together, so no choice
        "agent a, b, c, d\nbarrier j\na -> b 60% -> j\na -> c 60% -> j\na -> d 40%",
        "agent a, b\na -> b 70%\nloop a -> b 0.7 at most 2",
        "agent a, b, c\na -> b 33.3%\na -> c 66.7%",
        'agent a, b, c\na -> b * 999999999 -> c * "as many"',
        "agent a, b\nworkflow research, research as again of a\na -> research -> b",
        'agent a, "other/read"\nworkflow research\na -> research -> "other/read"',
    ],
)
def test_what_is_sound(inside: str) -> None:
    assert told(inside) == []


def test_several_faults_are_told_at_once() -> None:
    inside = "agent a,, b\nworkflow zzz\nagent c of q\na -> c 30s\nloop c -> c max 3"
    assert [(code, line) for code, line, *_ in told(inside)] == [
        ("KVP100", 2),
        ("KVP101", 3),
        ("KVP101", 4),
        ("KVP102", 5),
        ("KVP100", 6),
    ]


def test_a_missing_brace_is_missing_where_it_was() -> None:
    (one,) = faults_of(f"workflow w {{\n  agent a\n  workflow research\n  a -> research\n{RESEARCH}{RULE}")
    assert (one.code, one.place.line, one.place.column) == ("KVP100", 1, 12)
    assert one.fix == "write `}` before `workflow`"


@pytest.mark.parametrize(
    "begins",
    ["workflow inner # c\n{", "workflow # c\n# d\ninner\n# e\n {", 'workflow "in # er" # }\n\n{', 'workflow"inner"{'],
)
def test_what_stands_before_a_brace_may_be_remarked_on(begins: str) -> None:
    (one,) = faults_of(f"workflow w {{\n  agent a\n{begins} agent x }}\n{RULE}")
    assert (one.code, one.place.line, one.place.column) == ("KVP100", 1, 12)
    assert one.fix == "write `}` before `workflow`"


_tails = st.lists(
    st.sampled_from(
        ("inner", '"in # er"', "_a1", "innér", " ", "\t", "\r\n", "\f", "\u00a0", "# c\n", "#{", "##", "\n", "{", "as")
    )
)


@given(_tails)
def test_whether_a_workflow_is_a_node_is_one_rule(tail: list[str]) -> None:
    """Of the lexer, which ends the block before it, and of the messages, which say so."""
    text = "workflow" + "".join(tail)
    nested = next(t.pattern.to_regexp() for t in parser()[0].terminals if t.name == "NESTED")
    assert is_nested(text, 0) == (re.match(nested, text) is not None)


@pytest.mark.parametrize(
    "blanks", ["#" * 20_000, "# c\n" * 5_000 + "#", " " * 20_000, "#\n" * 9_000 + "x " + "#\n" * 9_000]
)
def test_long_remarks_are_read_once(blanks: str) -> None:
    """Without end where a remark could be read as several."""
    assert is_nested(f"workflow {blanks}", 0)


def test_a_circle_is_told_once_with_its_way() -> None:
    text = "".join(f"workflow {a} {{ agent x  workflow {b}  x -> {b} }}\n" for a, b in ("ab", "bc", "cb"))
    (one,) = faults_of(text + RULE)
    assert one.code == "KVP112"
    assert "'b' stands within itself: b → c → b" in one.message
    with pytest.raises(PolicyFault, match="within itself"):
        files = load_text(text + RULE).files
        assert files is not None
        compile_policy(files)


def test_what_stands_deep_or_is_large_is_refused() -> None:
    """Without end where a lookup recursed, or each workflow was laid out for every place that it stands in."""
    deep = [f"workflow w{i} {{ workflow w{i + 1} }}" for i in range(2000)]
    (one,) = [d for d in faults_of("\n".join([*deep, "workflow w2000 { agent x }", RULE])) if d.code != "KVP214"]
    assert f"more than {DEEPEST} deep" in one.message
    double = [f"workflow w{i} {{ workflow w{i + 1} as a, w{i + 1} as b }}" for i in range(15)]
    (one,) = faults_of("\n".join([*double, "workflow w15 { agent x }", RULE]))
    assert f"'w1' has more than {MOST_NODES:,} nodes" in one.message


@pytest.mark.parametrize("many", [51, 300])
def test_of_very_many_unknown_names_the_first_are_told_and_how_many_more(
    many: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is compared with what is declared, never with one another: their number does not count twice."""
    compared: list[int] = []

    def counted(word: str, known: Iterable[str]) -> str | None:
        compared.append(len(table := tuple(known)))
        return nearest(word, table)

    monkeypatch.setattr(check_names, "nearest", counted)
    monkeypatch.setattr(nesting, "nearest", counted)
    ways = "\n".join(f"strange{number} -> planner" for number in range(many))
    found = told(f"agent planner, plenner\n{ways}")
    assert [code for code, *_ in found] == ["KVP101"] * 51
    assert {message for *_, message, _ in found[:50]} == {f"there is no node 'strange{n}'" for n in range(50)}
    assert found[50][1:] == (
        53,
        1,
        f"nodes of 'w' that are not declared: {many - 50} more",
        "declare them: `agent NAME, NAME`",
    )
    others = ", ".join(f"other{number}" for number in range(many))
    found = told(f"agent a\nworkflow reserch, {others}")
    assert [code for code, *_ in found] == ["KVP101"] * 51
    assert found[0][4] == "did you mean `research`?"
    assert found[50][3:] == (f"workflows that do not exist: {many - 49} more", "write them: `workflow NAME { … }`")
    assert compared == [1] * 50 + [1] * 50  # without the node at the other end of the way


def test_where_many_are_declared_only_the_first_unknown_names_are_compared() -> None:
    declared = ", ".join(f"known{number}" for number in range(MOST_COMPARED // 2))
    ways = "\n".join(f"known{number}x -> known1" for number in range(4))
    fixes = [fix or "" for *_, fix in told(f"agent {declared}\n{ways}")]
    assert ["did you mean" in fix for fix in fixes] == [True, True, False, False]


def test_a_large_workflow_with_probabilities() -> None:
    many = ", ".join(f"n{i}" for i in range(2000))
    ways = "\n".join(f"n{i} -> n{(7 * i + k) % 2000} 30% at most 2" for i in range(2000) for k in range(1, 4))
    assert faults_of(f"workflow w {{ agent {many}\nbarrier j\nn1 -> j 10%\n{ways} }}\n{RULE}") == ()
    (one,) = faults_of(f"workflow w {{ agent {many}\nbarrier j\nn1 -> j 20%\n{ways} }}\n{RULE}")
    assert "out of 'n1' add up to 110%" in one.message


def test_as_deep_as_may_be() -> None:
    text = "\n".join(f"workflow w{i} {{ agent x  workflow w{i + 1}  x -> w{i + 1} }}" for i in range(DEEPEST))
    loaded = load_text(f"{text}\nworkflow w{DEEPEST} {{ agent x }}\n{RULE}")
    assert examine(loaded) == ()
    assert loaded.files is not None
    (whole,) = outermost(nest(loaded.files).workflows)
    graph = Graph.build(whole)
    assert len(graph.names) == DEEPEST + 1
    assert graph.check() == ()


def test_a_workflow_of_a_used_policy_stands_behind_its_name(tmp_path: Path) -> None:
    (tmp_path / "lib.kvp").write_text("policy lib\n" + RESEARCH + "workflow deeper { workflow research }\n" + RULE)
    file = tmp_path / "main.kvp"
    file.write_text(
        'use "lib.kvp" as lib\nworkflow research { agent other }\n'
        "workflow w { workflow lib.deeper, research\n lib_less -> research }\n".replace("lib_less", "deeper")
    )
    loaded = load([file])
    assert examine(loaded) == ()
    assert loaded.files is not None
    policy = compile_policy(loaded.files)
    (whole,) = outermost(policy.workflows)
    assert [*Graph.build(whole).names] == ["deeper/research/search", "deeper/research/read", "research/other"]
    file.write_text('use "lib.kvp" as lib\nworkflow w { workflow deeper }\n')
    (one,) = examine(load([file]))
    assert (one.code, one.fix) == ("KVP101", "did you mean `lib.deeper`?")


def test_a_name_that_was_passed_over_is_not_called_unknown() -> None:
    (one,) = faults_of("workflow w { workflow research }\nworkflow research { agent ,\n}\n" + RULE)
    assert one.code == "KVP100"


def test_a_block_alone_that_needs_another_is_no_graph() -> None:
    file = parse("workflow w { workflow research }", "w.kvp").file
    assert file is not None
    assert isinstance(file.workflows[0], syntax.Workflow)
    with pytest.raises(InputFault, match="'research', which stands in 'w', is not known"):
        Graph.build(file.workflows[0])
