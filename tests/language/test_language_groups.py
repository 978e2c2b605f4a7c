"""Names across files: rules by their paths, layers of used policies, files of one name in two folders."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvpolicy.language.check import check
from kvpolicy.language.load import load
from kvpolicy.policy.compile import compile as compile_files
from kvpolicy.policy.layers import used_groups


def written(folder: Path, **texts: str) -> Path:
    """Files `NAME.kvp`; `__` in a name is a folder."""
    for name, text in texts.items():
        path = folder / f"{name.replace('__', '/')}.kvp"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return folder / "main.kvp"


@pytest.mark.parametrize(
    ("path", "fine"),
    [("first", True), ("early.first", True), ("p.other", True), ("p.late.other", True), ("late.other", False)],
)
def test_over_names_a_rule_of_ones_own_by_layer_and_one_of_a_used_policy_by_group(
    path: str, fine: bool, tmp_path: Path
) -> None:
    own = f"layer early {{ first: turn {{ priority: 40 }} }}\nlayer last {{ z: turn over {path} {{ priority: 50 }} }}\n"
    main = written(tmp_path, p="policy p\nlayer late { other: turn { priority: 60 } }\n", main='use "p.kvp"\n' + own)
    files = load([main]).partial
    assert [fault.code for fault in check(files)] == ([] if fine else ["KVP101"])


def test_files_of_one_name_in_two_folders_are_two_groups(tmp_path: Path) -> None:
    main = written(
        tmp_path,
        a__p="policy one\nx: turn { priority: 60 }\n",
        b__p="policy two\ny: turn { priority: 70 }\n",
        main='use "a/p.kvp" as first\nuse "b/p.kvp"\nlayers first, two\nz: document { priority: 50 }\n',
    )
    files = load([main]).partial
    assert used_groups(files.members[-1], files) == ("first", "two")
    order = compile_files(files).order.layers
    assert order.is_later(("two", "two"), ("first", "one"))
    assert order.is_later(("", "main"), ("two", "two"))
