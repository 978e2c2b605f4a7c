"""The formatter: one layout for a text, whatever its layout was; the same words, the same comments, the same policy."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvpolicy import words
from kvpolicy.language import syntax
from kvpolicy.language.format import format_text
from kvpolicy.language.format_tree import Comment, comments, read, tokens
from kvpolicy.language.parse import parse
from tests.policy.strategies import policies

ROOT = Path(__file__).resolve().parents[2]
CORPUS = sorted((ROOT / "tests" / "corpus").rglob("*.kvp"))
PACK = sorted((ROOT / "policies").glob("*.kvp"))
BLOCK = re.compile(r"^```kvp\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
READABLE = [
    file for file in (*CORPUS, *PACK) if not parse(file.read_bytes().decode("utf-8", "replace"), "a.kvp").diagnostics
]
LINE = re.compile(r":\d+")


def laid_out(text: str) -> str:
    found = format_text(text, "a.kvp")
    assert found.text is not None, found.diagnostics
    return found.text


def said(part: object) -> object:
    """What a part of the tree says: without places, with numbers for how they are written, tiers by one name."""
    if isinstance(part, syntax.Condition):
        return part  # what stands in brackets is kept letter by letter
    if isinstance(part, syntax.Literal):
        return part.quantity
    if isinstance(part, syntax.Rung):
        return (words.TIER_ALIASES.get(part.tier, part.tier), said(part.after))
    if isinstance(part, syntax.Bound):
        names = [words.TIER_ALIASES.get(name, name) if name else None for name in (part.property, part.of)]
        return (*names, part.side, said(part.value))
    if isinstance(part, syntax.Call) and part.function == "pressure":
        return [words.TIER_ALIASES.get(said(name), said(name)) for name in part.arguments]
    if isinstance(part, syntax.Name):
        return ".".join(part.path)
    if isinstance(part, tuple):
        return tuple(said(one) for one in part)
    if dataclasses.is_dataclass(part):
        rows = [said(getattr(part, field.name)) for field in dataclasses.fields(part) if field.compare]
        return (type(part).__name__, *rows)
    return part


def meaning(text: str) -> object:
    file = parse(text, "a.kvp").file
    assert file is not None
    parts = (file.header, file.uses, file.layers, file.layer_order, file.lets, file.workflows, file.rules, file.limits)
    return said((*parts, file.tests))


@pytest.mark.parametrize("file", READABLE, ids=lambda file: file.name)
def test_every_text_of_the_corpus_keeps_its_meaning_and_its_comments(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    written = laid_out(text)
    assert laid_out(written) == written
    assert meaning(text) == meaning(written)
    assert re.findall(r"#.*", text) == re.findall(r"#.*", written)


@pytest.mark.parametrize("file", PACK, ids=lambda file: file.name)
def test_the_pack_is_laid_out_so(file: Path) -> None:
    assert laid_out(file.read_text(encoding="utf-8")) == file.read_text(encoding="utf-8")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_texts_in_the_documentation_are_laid_out_so(page: Path, update: bool) -> None:
    text = page.read_text(encoding="utf-8")
    written = text
    for block in BLOCK.findall(text):
        found = format_text(block, page.name).text
        if found is not None:  # the pages of faults show some
            written = written.replace(f"```kvp\n{block}```", f"```kvp\n{found}```")
    if update:
        page.write_text(written, encoding="utf-8")
    assert written == text or update


def torn(text: str, draw: st.DrawFn) -> tuple[str, list[str]]:
    """A text with other blanks and comments between its tokens: what is read is the same."""
    source = read(text)
    found, told, end = [], [], 0
    last = ""
    for token in tokens(source.tree):
        start = token.start_pos or 0
        gap = re.sub(r"#[^\n]*", "", text[end:start])
        close = token.type == "COLON" or str(token) in {"s", "m"} or last in {"LABEL", "WITHIN"}
        kind = 0 if close else draw(st.integers(0, 12))
        if kind == 1:
            told.append(draw(st.sampled_from(("# why", "#turn { priority: 1 }", '# a "string', "# #", "# }"))))
            gap = draw(st.sampled_from((" ", "\n", "\n\n\n"))) + told[-1] + draw(st.sampled_from(("\n", "  \n\n")))
        elif kind == 2 and gap:
            gap = draw(st.sampled_from((" ", "  \t ", "\n", "\n\n\n", "\r\n")))
        found.append(gap + str(token))
        end, last = token.end_pos or start, token.type
    return "".join(found), told


@st.composite
def statements(draw: st.DrawFn) -> str:
    """Statements that `policies` does not make."""
    return draw(
        st.sampled_from(
            (
                'policy p "what for"\nuse base as b with shared_for = 5min\nlayers b, p',
                "workflow w { agent a, b barrier c a -> b * n -> c loop c -> a at most 3 }",
                'test "t" { given turn[agent = "a b"], system assume idle() = 2min for turn at tool_call[tool = g]'
                " then 3min expect turn { priority: 80 by x  retention: hold until turn_start at most 5min } }",
                "turn when (idle() > 1min or not (age() < 2s)) and -turns_ago() < -(1 + 2) { priority: 3 }",
                "turn, [agent = a], document[tool in {a, b}, depth > -1] { tier: hbm, dram after 5 m, nvme after 1 h }",
                "limit any per tenant { hbm: at most 5 GiB  hold: at most 40 % of hbm }",
                '"a b": turn { }',
                "document when reuse_probability(within (5 min)) else 0% > 5% { prefetch: pressure(hbm) < 50% }",
                "turn[tool = 5m] { for: workflow  ttl: 1.5 h fixed }",
            )
        )
    )


@settings(max_examples=150)
@given(policies(), st.lists(statements(), max_size=3), st.data())
def test_whatever_the_layout_was_it_ends_the_same(lines: list[str], more: list[str], data: st.DataObject) -> None:
    plain = "\n".join((*lines, *more)) + "\n"
    text, told = data.draw(st.composite(lambda draw: torn(plain, draw))())
    assert meaning(text) == meaning(plain)
    written = laid_out(text)
    assert laid_out(written) == written
    assert comments(read(written)) == told
    assert meaning(written) == meaning(plain)
    assert not [line for line in written.split("\n") if line != line.rstrip()]
    if not told:
        assert written.replace("\n\n", "\n") == laid_out(plain).replace("\n\n", "\n")


ALL = """
# head
policy p   "x" # of the policy


let a=5m
# a rule, why
 r : turn[ agent=coder,tokens>=8k ] over q when idle()>a{priority:3 ttl:5 min}   # behind
q:turn{priority:4 # inside
  # and below
ttl:10min}
layer work{on tool_call until tool_result at most 2h{q2:turn{retention:hold a}}
on turn_end{
# only a comment and a rule
turn{retention:drop}}}
limit any{hold:at most 40% of hbm}
test"t"{given turn
  at tool_call[tool=grep]
expect turn{priority:3 by r}# last of the test
}
# the end"""


def test_a_text_with_everything() -> None:
    assert laid_out(ALL) == (
        """\
# head
policy p "x"  # of the policy

let a = 5min
# a rule, why
r: turn[agent = coder, tokens >= 8k] over q when idle() > a { priority: 3  ttl: 5min }  # behind
q: turn {
  priority: 4  # inside
  # and below
  ttl:      10min
}

layer work {
  on tool_call until tool_result at most 2h { q2: turn { retention: hold a } }
  on turn_end {
    # only a comment and a rule
    turn { retention: drop }
  }
}

limit any { hold: at most 40% of gpu }

test "t" {
  given turn
  at tool_call[tool = grep]
  expect turn { priority: 3 by r }  # last of the test
}
# the end
"""
    )


def test_a_comment_in_every_gap_stays() -> None:
    plain = laid_out(ALL)
    source = read(plain)
    for token in tokens(source.tree):
        at = token.start_pos or 0
        if token.type == "COLON":
            continue
        text = f"{plain[:at]} # here\n{plain[at:]}"
        written = laid_out(text)
        assert laid_out(written) == written
        assert sorted(comments(read(written))) == sorted([*comments(source), "# here"])
        assert meaning(written) == meaning(plain)


def test_a_long_head_is_broken_where_it_reads_well() -> None:
    kinds = "turn, document, tool_result, scratchpad, branch, output"
    text = f"paused: {kinds} over other when idle() > 5s and turns_ago() > 3 or fan_out() > 2 {{ priority: 60 }}"
    assert laid_out(text) == (
        "paused: turn, document, tool_result, scratchpad, branch, output over other when idle() > 5s\n"
        "    and turns_ago() > 3 or fan_out() > 2 {\n"
        "  priority: 60\n"
        "}\n"
    )


def test_a_text_with_a_fault_of_syntax_is_refused_and_one_with_a_fault_of_words_is_not() -> None:
    refused = format_text("turn { priority 3 }", "a.kvp")
    assert refused.text is None
    assert [fault.code for fault in refused.diagnostics] == ["KVP100"]
    assert laid_out("turn{priorty:3}") == "turn { priorty: 3 }\n"


def test_a_rule_that_is_named_by_its_line_is_not_moved() -> None:
    test = 'test "t" { given turn expect turn { priority: 3 by "a.kvp:3" } }\n'
    refused = format_text(f"\n\nturn {{ priority: 3 }}\n{test}", "a.kvp")
    assert refused.text is None
    assert "by its line" in refused.diagnostics[0].message
    assert format_text(f"# a\n# b\nturn {{ priority: 3 }}\n{test}", "a.kvp").text is not None


def test_comments_know_where_they_stood() -> None:
    source = read("turn { priority: 3 }  # behind\n\n# above\n\ntools { priority: 4 }\n")
    gap = source.gap(tokens(source.tree)[6])
    assert gap.comments == (Comment("# behind", False, False), Comment("# above", True, True))
    assert gap.apart
