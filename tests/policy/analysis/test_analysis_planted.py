"""Rules that disagree, hide each other or share a name, planted in sound policies: each is told once, with both places,
and the span that a message names is one on which the resolver meets both rules unbeaten.

The faults are those that authors of other rule engines met at run time: a newer rule that silently shadows an older
one, two rules of equal right, two files with one name.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import kvpolicy
from kvpolicy.faults import ERROR, Diagnostic, PolicyFault
from kvpolicy.language.load import load, load_text
from kvpolicy.policy.analysis import analyse
from kvpolicy.policy.checked import examined
from kvpolicy.policy.compile import compile
from kvpolicy.policy.explain import explain
from kvpolicy.policy.model import IntervalPattern, Opening, Subject
from kvpolicy.policy.order import interval_implies
from kvpolicy.policy.snapshot import Snapshot
from kvpolicy.request import Owner
from tests.policy.analysis.test_analysis_index import texts

CONDITIONS = ("", "[agent = a]", "[depth > 3]", "[agent != b]", "[tool in {a, b}]", "[tokens >= 8k, agent = a]")


class Open(Snapshot):
    """A state in which some intervals are open, and what they imply; no function has data, so no guard holds."""

    patterns: tuple[IntervalPattern, ...] = ()

    def opening(self, interval: IntervalPattern, subject: Subject) -> Opening | None:
        found = any(interval_implies(pattern, interval) for pattern in self.patterns)
        return Opening(0.0, 3600.0) if found else None


def faults(text: str) -> list[Diagnostic]:
    files = load_text(text, "a.kvp").files
    assert files is not None, text
    return list(analyse(files))


@settings(max_examples=120, suppress_health_check=[HealthCheck.filter_too_much])
@given(texts())
def test_the_resolver_meets_both_rules_on_the_span_that_is_named(text: str) -> None:
    told = [fault for fault in faults(text) if fault.code == "KVP201"]
    assume(told)
    files = load_text(text, "a.kvp").files
    assert files is not None
    policy = compile(files)
    at = {rule.place: rule for rule in policy.rules}
    for fault in told:
        pair = [at[note.place] for note in fault.notes]
        if any(rule.guard is not None for rule in pair):
            continue
        span = dict(fault.witness or {})
        subject = Subject(str(span.pop("kind")), span, Owner())
        state = Open()
        state.patterns = tuple(rule.interval for rule in pair if rule.interval is not None)
        named = {rule.name for rule in pair}
        met = [row for row in explain(policy, subject, state).properties if named <= {r.name for r in row.unbeaten}]
        assert met, (fault.message, state.patterns)


@given(st.sampled_from(CONDITIONS), st.sampled_from(("turn", "tools", "any")), st.integers(36, 90), st.booleans())
def test_a_rule_that_a_newer_one_shadows_is_told(conditions: str, kind: str, rank: int, labelled: bool) -> None:
    assume(conditions or kind != "any")  # else each hides the other
    old = f"{'old: ' if labelled else ''}{kind}{conditions} {{ priority: {rank} }}"
    text = f"layers first, second\nlayer first {{ {old} }}\nlayer second {{ any {{ priority: 35 }} }}\n"
    (fault,) = [f for f in faults(text) if f.code == "KVP202"]
    assert (fault.place.line, [note.place.line for note in fault.notes]) == (2, [3])
    assert fault.fix
    # The other way round it shadows nothing, however the lines stand.
    lines = text.replace("layers first, second", "layers second, first").splitlines(keepends=True)
    for order in (lines, [lines[0], lines[2], lines[1]]):
        assert not [f for f in faults("".join(order)) if f.code in ("KVP202", "KVP201")]


@given(st.sampled_from(CONDITIONS[:3]), st.sampled_from(CONDITIONS[3:5]), st.integers(0, 100), st.integers(0, 100))
def test_two_rules_of_equal_right_are_refused_in_any_order(one: str, other: str, high: int, low: int) -> None:
    assume(one)
    rows = [f"a: turn{one} {{ priority: {high} }}", f"b: turn{other} {{ priority: {low} }}"]
    told = [
        sorted(fault.code for fault in faults("\n".join(order)) if fault.code == "KVP201")
        for order in (rows, rows[::-1])
    ]
    expected = (
        [] if high == low or (one, other) == ("[agent = a]", "[agent != b]") else ["KVP201"]
    )  # the last: the first lies within the second
    assert told == [expected, expected]
    if expected:
        with pytest.raises(PolicyFault):
            kvpolicy.load("\n".join(rows))


def test_one_name_in_two_files_is_refused_with_both_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("one.kvp").write_text("\nsame: tools { priority: 60 }\n")
    Path("two.kvp").write_text("same: document { priority: 40 }\n")
    for names in (["one.kvp", "two.kvp"], ["two.kvp", "one.kvp"]):
        checked = examined(load(names))
        (fault,) = [d for d in checked.diagnostics if d.severity == ERROR]
        places = {(p.file, p.line) for p in (fault.place, *(note.place for note in fault.notes))}
        assert (fault.code, places) == ("KVP107", {("one.kvp", 2), ("two.kvp", 1)})
        with pytest.raises(PolicyFault):
            checked.policy()


def test_a_file_that_was_changed_is_another_policy_and_a_broken_one_is_none(tmp_path: Path) -> None:
    file = tmp_path / "house.kvp"
    file.write_text("turn { priority: 60 }\n")
    before = kvpolicy.load(str(file))
    file.write_text("turn { priority: 60 }\nturn { priority: 50 }\n")
    with pytest.raises(PolicyFault):
        kvpolicy.load(str(file))
    span = Subject("turn", {}, Owner())
    assert before.resolve(span, Snapshot())["priority"].value == 60  # who holds the old one goes on with it
    file.write_text("turn { priority: 50 }\n")
    after = kvpolicy.load(str(file))
    assert after.digests.keys() == before.digests.keys()
    assert after.digests != before.digests
    assert after.resolve(span, Snapshot())["priority"].value == 50
