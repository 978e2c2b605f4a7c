"""File sets: what `use` brings in, under which name, and what cannot be read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kvpolicy.faults import InputFault
from kvpolicy.language.load import load, load_text
from tests.language.language_texts import faults_of_files

Write = Callable[..., None]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Write files by name into an empty working directory."""
    monkeypatch.chdir(tmp_path)

    def written(**texts: str) -> None:
        for name, text in texts.items():
            path = Path(name.replace("__", "/") + ".kvp")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    return written


def names(*targets: str) -> list[str]:
    return [fault.name for fault in faults_of_files(targets)]


def test_used_files_come_first_each_once(write: Write) -> None:
    write(
        main='use "parts/one.kvp"\nuse "two.kvp" as other with wait = 5s\nturn { priority: 3 }\n',
        parts__one='use "../two.kvp" as other with wait = 5s\nlet wait = 1s\ntools { priority: 40 }\n',
        two="policy second\nlet wait = 3s\nsystem { priority: 90  ttl: wait }\n",
    )
    loaded = load(["main.kvp"])
    assert loaded.diagnostics == ()
    assert loaded.files is not None
    assert [(m.file.name, m.group) for m in loaded.files.members] == [
        ("parts/../two.kvp", "other"),
        ("parts/one.kvp", "one"),
        ("main.kvp", ""),
    ]
    assert [s.name for s in loaded.files.members[0].settings] == ["wait"]
    assert len({m.file.digest for m in loaded.files.members}) == 3


def test_a_group_is_called_by_its_policy(write: Write) -> None:
    write(main='use "two.kvp"\nturn { priority: 3 }\n', two="policy second\nsystem { priority: 90 }\n")
    loaded = load(["main.kvp"])
    assert loaded.files is not None
    assert loaded.files.members[0].group == "second"


def test_circles_are_told(write: Write) -> None:
    write(a='use "b.kvp"\nturn { priority: 3 }\n', b='use "c.kvp"\n', c='use "a.kvp"\n')
    (fault,) = faults_of_files(["a.kvp"])
    assert fault.name == "use-cycle"
    assert str(fault.place) == "c.kvp:1:1"
    assert "a.kvp → b.kvp → c.kvp → a.kvp" in fault.message


def test_a_missing_file_is_told_with_the_nearest(write: Write) -> None:
    write(a='use "limit.kvp"\nturn { priority: 3 }\n', limits="limit any { priority: at most 40 }\n")
    (fault,) = faults_of_files(["a.kvp"])
    assert (fault.name, fault.fix) == ("unknown-name", 'did you mean "limits.kvp"?')


def test_an_unknown_packaged_policy_is_told(write: Write) -> None:
    write(a="use no_such\nturn { priority: 3 }\n")
    assert names("a.kvp") == ["unknown-name"]


def test_one_file_under_two_names_is_told(write: Write) -> None:
    write(a='use "b.kvp"\nuse "b.kvp" as other\nturn { priority: 3 }\n', b="system { priority: 90 }\n")
    assert names("a.kvp") == ["name-defined-twice"]


def test_two_groups_of_one_name_are_told(write: Write) -> None:
    write(
        a='use "b.kvp" as x\nuse "c.kvp" as x\nturn { priority: 3 }\n',
        b="system { priority: 90 }\n",
        c="tools { priority: 90 }\n",
    )
    assert names("a.kvp") == ["name-defined-twice"]


@pytest.mark.parametrize(
    ("use", "name"),
    [
        ("with patience = 5s", None),
        ("with patiense = 5s", "unknown-name"),
        ("with patience = 5", "unit-mismatch"),
        ("with patience = wait", None),
        ("with patience = wat", "unknown-name"),
    ],
)
def test_settings_fit_what_they_set(write: Write, use: str, name: str | None) -> None:
    write(
        a=f'use "b.kvp" {use}\nlet wait = 2s\nturn {{ priority: 3 }}\n',
        b="let patience = 1s\nsystem { priority: 90 ttl: patience }\n",
    )
    assert names("a.kvp") == ([name] if name else [])


def test_names_of_files_of_one_call_are_one_set(write: Write) -> None:
    write(a="let wait = 5s\nx: turn { priority: 3 }\n", b="x: tools { priority: 40  ttl: wait }\n")
    (fault,) = faults_of_files(["a.kvp", "b.kvp"])
    assert (fault.name, str(fault.place), str(fault.notes[0].place)) == ("name-defined-twice", "b.kvp:1:1", "a.kvp:2:1")


def test_names_of_used_files_stand_apart(write: Write) -> None:
    write(
        a='use "b.kvp"\nlet wait = 5s\nx: turn over b.x { priority: 3 }\ny: tools { priority: 60  ttl: b.wait }\n',
        b="let wait = 1s\nx: turn { priority: 40  ttl: wait }\n",
    )
    assert names("a.kvp") == []


def test_odd_bytes(tmp_path: Path) -> None:
    for number, (data, line) in enumerate(
        ((b"turn { priority: 3 }\n\xff\xfe", 2), (b"a\0b", 1), (b"#" * 5_000_000, 1))
    ):
        path = tmp_path / f"{number}.kvp"
        path.write_bytes(data)
        (fault,) = load([path]).diagnostics
        assert (fault.name, fault.place.line) == ("unusable-file", line)
    marked = tmp_path / "marked.kvp"
    marked.write_bytes(b"\xef\xbb\xbfturn { priority: 3 }\r\ntools { priority: 50 }\r\n")
    assert load([marked]).diagnostics == ()


@pytest.mark.parametrize("target", ["missing.kvp", "no_such_policy", ".", "a\0b"])
def test_targets_that_cannot_be_read(target: str) -> None:
    with pytest.raises(InputFault) as raised:
        load([target])
    assert "\n" not in str(raised.value)


def test_a_text_has_a_name() -> None:
    loaded = load_text("turn { priorty }", "mine")
    assert loaded.files is None
    assert loaded.diagnostics[0].place.file == "mine"
