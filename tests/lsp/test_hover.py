"""Every word of the language has a meaning; names say where they come from; rules what they set and beat."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvpolicy import words
from kvpolicy.language.highlighting import ATTRIBUTE, CONSTANT, EVENT, FUNCTION, KEYWORD, KIND, PROPERTY, SERIES, WORDS
from kvpolicy.lsp import roles
from kvpolicy.lsp.hover import hover, quantity, word
from kvpolicy.lsp.project import Project
from kvpolicy.lsp.roles import Occurrence
from tests.lsp.texts import sound, text_of

_ROLES = {
    KEYWORD: (roles.STATEMENT, roles.CLAUSE), KIND: (roles.KIND,), PROPERTY: (roles.PROPERTY,), EVENT: (roles.EVENT,),
    FUNCTION: (roles.FUNCTION,), CONSTANT: (roles.CONSTANT, roles.CLAUSE, roles.TIER), ATTRIBUTE: (roles.ATTRIBUTE,),
    SERIES: (roles.SERIES,),
}  # fmt: skip


@pytest.mark.parametrize("kind", WORDS)
def test_every_word_of_the_tables_has_a_meaning(kind: str) -> None:
    for name in WORDS[kind]:
        of = "event" if kind == ATTRIBUTE and name not in words.ATTRIBUTES else ""
        told = [word(Occurrence(role, name, 0, 1, of=of)) for role in _ROLES[kind]]
        assert any(told), name


@pytest.mark.parametrize("path", sound(), ids=lambda path: path.name)
def test_every_word_of_a_sound_text_has_a_meaning(path: Path) -> None:
    view = Project().view(path)
    assert view.main is not None
    for one in view.main.reading.found:
        free = one.role in {roles.VALUE, roles.TEST, roles.POLICY}
        if not free and hover(view, one.start) is None:
            raise AssertionError(one)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("90s", "90 s"), ("1.5h", "5,400 s"), ("12k", "12,000 tokens"), ("2Ki", "2,048 tokens"), ("40%", "0.4"),
        ("3GiB", "3,221,225,472 bytes"), ("40d", "30 days"), ("7", "count"), ("5 min", "300 s"),
    ],
)  # fmt: skip
def test_quantities_in_base_units(text: str, said: str) -> None:
    told = quantity(text)
    assert told is not None and said in told


def test_no_unit_no_meaning() -> None:
    assert quantity("5parsecs") is None


_RULES = """layers low, high
layer low {
  everyone: turn { priority: 40  ttl: 5min }
  coder: turn[agent = coder] { priority: 60 }  # a comment }
  other: document { priority: 30 }
}
layer high {
  on tool_call until tool_result { waiting: turn, tool_result { priority: 80 } }
  away: turn over waiting when idle() > 1h { priority: 20 }
  talking: system { share: tenant }
}
"""


def _said(text: str, word_there: str, tmp_path: Path) -> str:
    (tmp_path / "p.kvp").write_text(text, encoding="utf-8")
    found = hover(Project().view(tmp_path / "p.kvp"), text.index(word_there))
    assert found is not None
    return found[0]


def test_a_rule_says_what_it_sets_and_what_it_beats(tmp_path: Path) -> None:
    coder = _said(_RULES, "coder:", tmp_path)
    assert "in layer low" in coder and "sets `priority: 60`" in coder
    assert "beats `everyone` (narrower)" in coder
    assert "is beaten by `waiting` (a later layer), `away` (a later layer)" in coder
    assert "other" not in coder and "talking" not in coder  # they never meet
    away = _said(_RULES, "away:", tmp_path)
    assert "beats `everyone` (a later layer), `coder` (a later layer), `waiting` (written over it)" in away
    assert "is beaten by no rule" in away
    waiting = _said(_RULES, "waiting when", tmp_path)  # where it is used
    assert "on tool_call until tool_result" in waiting and "is beaten by `away` (written over it)" in waiting
    assert "sets `priority: 40`, `ttl: 5min`" in _said(_RULES, "everyone:", tmp_path)


def test_a_rule_of_a_policy_with_errors_says_what_it_sets(tmp_path: Path) -> None:
    said = _said("a: turn { priority: 40 }\nb: turn { priority: 1000 }\n", "a:", tmp_path)
    assert "sets `priority: 40`" in said and "no errors" in said


def test_names_say_what_they_are(tmp_path: Path) -> None:
    (tmp_path / "ours.kvp").write_text('policy ours "What we share."\nlet wait = 20s\nlong: turn { priority: 55 }\n')
    text = (
        'use "ours.kvp" as o with wait = 5s\nlet mine = o.wait + 1s\nlayer high { x: turn over o.long { ttl: mine } }\n'
        "workflow w { agent a  barrier b  a -> b }\ny: document[agent = a] { ttl: mine  priority: 50 }\n"
    )
    assert "What we share." in _said(text, "o with", tmp_path)
    assert "let wait = 20s" in _said(text, "wait = 5s", tmp_path)
    assert "20 s" in _said(text, "wait + 1s", tmp_path)
    assert "let mine = o.wait + 1s" in _said(text, "mine  priority", tmp_path)
    assert "`high` (layer): 1 rule" in _said(text, "high", tmp_path)
    assert "in layer o.ours" in _said(text, "long {", tmp_path)
    assert "runs after `a`" in _said(text, "b  a ->", tmp_path)
    assert "is followed by `b`" in _said(text, "a] {", tmp_path)


def test_nodes_of_a_workflow_say_what_is_stated_of_them(tmp_path: Path) -> None:
    text = (
        "workflow w { agent a, helper of a\n workflow inner as step\n a -> step 30% -> a at most 2 }\n"
        "workflow inner { agent x, y  x -> y }\nturn { priority: 40 }\n"
    )
    a = _said(text, "a -> step", tmp_path)
    assert "an agent of the workflow `w`" in a and "calls `helper`" in a
    assert "runs after `step`" in a and "is followed by `step` (30%)" in a
    assert "is called by `a` while that runs" in _said(text, "helper", tmp_path)
    step = _said(text, "step 30%", tmp_path)
    assert "a node of the workflow `w`, which stands for the workflow `inner`" in step
    assert "runs after `a` (30%)" in step
    assert _said(text, "inner as", tmp_path) == "`inner`: a workflow"
    assert "a workflow of its own" in _said(text, "workflow inner as", tmp_path)
    assert "the agent that calls this one" in _said(text, "of a", tmp_path)
    assert "0.3 of the whole" in _said(text, "30%", tmp_path)


def test_a_packaged_policy_says_what_it_is_for() -> None:
    path = next(path for path in sound() if path.name == "coding_agent.kvp")
    view = Project().view(path)
    found = hover(view, text_of(path).index("base\n"))
    assert found is not None and "base.kvp" in found[0] and "packaged" in found[0]
