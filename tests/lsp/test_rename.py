"""Another name changes no meaning: it is tried on every name of every policy, and refused where it would."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from kvpolicy.language.parse import parse
from kvpolicy.lsp import roles
from kvpolicy.lsp.completion import quoted
from kvpolicy.lsp.project import Project
from kvpolicy.lsp.rename import Refused, edited_texts, renamed
from kvpolicy.policy.policy import Policy
from tests.lsp.texts import sound, text_of


def _policy(folder: Path, name: str) -> Policy:
    policy = Project().view(folder / name).policy
    assert policy is not None
    return policy


def _said(policy: Policy, was: str, now: str) -> list[object]:
    """What a policy says, with a name put back: rules with all that decides, in their order."""
    rows: list[object] = []
    for rule in policy.rules:
        beats = [other.name for other in policy.rules if other is not rule and policy.order.beats(rule, other)]
        rows.append((rule.matches, rule.interval, rule.condition, sorted(rule.values), beats, rule.layer, rule.name))
    return [_put_back(row, was, now) for row in rows]


def _put_back(value: object, was: str, now: str) -> object:
    if isinstance(value, str):
        return ".".join(was if part == now else part for part in value.split("."))
    if isinstance(value, tuple | list):
        return tuple(_put_back(part, was, now) for part in value)
    return value


@pytest.mark.parametrize("path", [p for p in sound() if not p.name.endswith(".test.kvp")], ids=lambda path: path.name)
@pytest.mark.parametrize("new", ["fresh_name", "a name in quotes"])
def test_every_name_of_a_sound_policy_can_be_another(path: Path, new: str, tmp_path: Path) -> None:
    text = text_of(path)
    for used in re.findall(r'use "([^"]+)"', text):
        (tmp_path / used).write_bytes((path.parent / used).read_bytes())
    (tmp_path / "p.kvp").write_text(text, encoding="utf-8")
    project = Project(roots=(tmp_path,))
    view = project.view(tmp_path / "p.kvp")
    assert view.policy is not None and view.main is not None
    for one in view.main.reading.found:
        if not one.gives or one.role not in {roles.RULE, roles.LET, roles.LAYER}:
            continue
        if one.role == roles.LET and " " in new:
            continue
        edits = renamed(project, view, one.start, new)
        changed = next(iter(edited_texts(edits).values()))
        assert changed != text and parse(changed, "p.kvp").diagnostics == parse(text, "p.kvp").diagnostics
        assert changed.replace(quoted(new), quoted(one.name)) == text.replace(f'"{one.name}"', quoted(one.name))
        (tmp_path / "p.kvp").write_text(changed, encoding="utf-8")
        assert _said(_policy(tmp_path, "p.kvp"), one.name, new) == _said(view.policy, one.name, new)
        (tmp_path / "p.kvp").write_text(text, encoding="utf-8")


_FILES = {
    "ours.kvp": (
        'policy ours "What we share."\nlet wait = 20s\nlet other = 1s\n'
        "layer deep { long: turn[tokens >= 8k] { priority: 55  ttl: wait } }\n"
    ),
    "a.kvp": (
        'use "ours.kvp" as o with wait = 5s\nlayers o, first, second\nlet wait = 7s\n'
        "layer first { x: turn over o.long { priority: 70  ttl: wait } }\n"
        'layer second { "y y": document { priority: 60  ttl: o.wait } }\n'
        "layer first { z: tools { priority: 80 } }\n"
    ),
    "a.test.kvp": 'test "t" {\n  given turn[tokens = 9k]\n  expect turn { priority: 70 by first.x  ttl: 7s by x }\n}\n',
    "b.kvp": 'use "a.kvp" as a\nlayer top { w: turn over a.x, o.long { priority: 75  ttl: a.wait } }\n',
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in _FILES.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def _renamed(folder: Path, name: str, at: str, new: str) -> dict[str, str]:
    """The texts of the files that change."""
    project = Project(roots=(folder,))
    view = project.view(folder / name)
    edits = renamed(project, view, _FILES[name].index(at), new)
    return {Path(identity).name: text for identity, text in edited_texts(edits).items()}


def test_the_files_are_sound(folder: Path) -> None:
    for name in _FILES:
        assert not Project().view(folder / name).checked.diagnostics, name


def test_a_rule_is_renamed_in_every_file(folder: Path) -> None:
    changed = _renamed(folder, "a.kvp", "x: turn", "new")
    assert changed == {
        "a.kvp": _FILES["a.kvp"].replace("x: turn", "new: turn"),
        "a.test.kvp": _FILES["a.test.kvp"].replace("first.x", "first.new").replace("by x", "by new"),
        "b.kvp": _FILES["b.kvp"].replace("a.x", "a.new"),
    }
    assert _renamed(folder, "b.kvp", "x, o.long", "new") == changed  # from where it is used
    assert _renamed(folder, "a.test.kvp", "x  ttl", "new") == changed
    assert _renamed(folder, "a.kvp", "x: turn", 'a "b"')["b.kvp"] == _FILES["b.kvp"].replace("a.x", 'a."a \\"b\\""')


def test_a_quoted_rule_gets_a_plain_name(folder: Path) -> None:
    assert _renamed(folder, "a.kvp", '"y y"', "yy") == {"a.kvp": _FILES["a.kvp"].replace('"y y"', "yy")}


def test_a_let_is_renamed_where_others_set_and_use_it(folder: Path) -> None:
    changed = _renamed(folder, "ours.kvp", "wait = 20s", "patience")
    assert changed == {
        "ours.kvp": _FILES["ours.kvp"].replace("wait", "patience"),
        "a.kvp": _FILES["a.kvp"].replace("with wait", "with patience").replace("o.wait", "o.patience"),
    }
    assert _renamed(folder, "a.kvp", "wait = 7s", "mine") == {
        "a.kvp": _FILES["a.kvp"].replace("let wait", "let mine").replace("ttl: wait", "ttl: mine"),
        "b.kvp": _FILES["b.kvp"].replace("a.wait", "a.mine"),
    }


def test_a_layer_is_renamed_in_all_its_blocks(folder: Path) -> None:
    assert _renamed(folder, "a.kvp", "first { x", "early") == {
        "a.kvp": _FILES["a.kvp"].replace("first", "early"),
        "a.test.kvp": _FILES["a.test.kvp"].replace("first.x", "early.x"),
    }


@pytest.mark.parametrize(
    ("name", "at", "new", "why"),
    [
        ("a.kvp", "x: turn", "z", "would no longer be what it is"),  # defined twice
        ("a.kvp", "wait = 7s", "yes", "a word of the language"),
        ("a.kvp", "wait = 7s", "turn", "a word of the language"),
        ("a.kvp", "wait = 7s", "two words", "letters, digits"),
        ("a.kvp", "x: turn", "", "one line"),
        ("a.kvp", "x: turn", "a\nb", "one line"),
        ("ours.kvp", "wait = 20s", "other", "would no longer be what it is"),
        ("ours.kvp", "ours", "us", "the policy's name"),
        ("a.kvp", "o with", "p", "use … as NAME"),
        ("a.kvp", "turn over", "p", "a word of the language"),
        ("a.kvp", "70", "p", "a word of the language"),
        ("a.kvp", "first { x", "second", "already stands for something else"),
    ],
)
def test_what_is_refused(folder: Path, name: str, at: str, new: str, why: str) -> None:
    with pytest.raises(Refused, match=why):
        _renamed(folder, name, at, new)


def test_a_name_that_another_file_would_see_instead_is_refused(tmp_path: Path) -> None:
    (tmp_path / "u.kvp").write_text("let wait = 1s\nturn { ttl: wait  priority: 50 }\n")
    (tmp_path / "a.kvp").write_text('use "u.kvp" as u\nlet slow = 2s\ntools { ttl: slow  priority: 60 }\n')
    # `slow` in u.kvp is its own, so this is fine; a name that is nowhere given would be given by it.
    (tmp_path / "b.kvp").write_text('use "u.kvp" as u\ntools { ttl: u.fast  priority: 60 }\n')
    project = Project(roots=(tmp_path,))
    view = project.view(tmp_path / "u.kvp")
    assert len(renamed(project, view, 4, "slow")) == 2
    with pytest.raises(Refused):
        renamed(project, view, 4, "fast")


def test_packaged_policies_and_what_requests_say_keep_their_names(tmp_path: Path) -> None:
    text = (
        "use coding_agent\nworkflow w { agent a, b  a -> b }\n"
        "layer l { x: turn[agent = a] over coding_agent.paused { priority: 1 } }\n"
    )
    (tmp_path / "p.kvp").write_text(text)
    project = Project(roots=(tmp_path,))
    view = project.view(tmp_path / "p.kvp")
    for at, why in [
        ("paused", "comes with kvpolicy"),
        ("w {", "requests"),
        ("a, b", "requests"),
        ("a] over", "requests"),
    ]:
        with pytest.raises(Refused, match=why):
            renamed(project, view, text.index(at), "new")


def test_the_layer_that_is_named_after_its_policy_keeps_its_name(tmp_path: Path) -> None:
    text = 'policy p "x"\nturn { priority: 40 }\nlayer p { tools { priority: 50 } }\n'
    (tmp_path / "f.kvp").write_text(text)
    project = Project(roots=(tmp_path,))
    with pytest.raises(Refused, match="outside any `layer` block"):
        renamed(project, project.view(tmp_path / "f.kvp"), text.index("p {"), "q")


def test_what_is_being_edited_counts(folder: Path) -> None:
    project = Project(roots=(folder,))
    text = _FILES["b.kvp"].replace("over a.x, o.long", "over a.x, a.x, o.long")
    project.documents.put((folder / "b.kvp").as_uri(), 1, text)
    edits = renamed(project, project.view(folder / "a.kvp"), _FILES["a.kvp"].index("x: turn"), "new")
    changed = {Path(identity).name: after for identity, after in edited_texts(edits).items()}
    assert changed["b.kvp"] == text.replace("a.x", "a.new")
    assert replace(edits[0], text="q").text == "q"
