"""What `kvp simulate` says: keys, arithmetic, notices, the table, the page, and that processes change nothing."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from kvpolicy.cli.main import main
from kvpolicy.simulate.capacity import Capacity, in_blocks, read_capacities
from kvpolicy.simulate.chart import page
from kvpolicy.simulate.generator import GeneratedTrace
from kvpolicy.simulate.interleaving import Interleaving
from kvpolicy.simulate.library import DERIVED, KNOWN, data_folders, find, obtain
from kvpolicy.simulate.names import contender
from kvpolicy.simulate.progress import Bar
from kvpolicy.simulate.report import document, table
from kvpolicy.simulate.simulate import Outcome, simulate
from kvpolicy.simulate.trace import Facts
from tests.simulate.traces_for_tests import mooncake_rows, write

RUN_KEYS = {
    "policy", "baseline", "capacity_blocks", "block_refs", "block_hits", "hit_ratio", "prompt_tokens", "cached_tokens",
    "uncached_tokens", "recomputed_tokens", "cost", "evictions", "moved_bytes", "gap_closed", "wall_s",
}  # fmt: skip
SMALL = GeneratedTrace(seed=1, sessions=4, window_s=600.0)
SIZES = [Capacity(Fraction(5)), Capacity(Fraction(30))]  # percent


@pytest.fixture(scope="module")
def outcome() -> Outcome:
    names = ("lru", "lru-object", "fifo", "lfu", "belady", "belady-resident", "continuum-released")
    return simulate(SMALL, [contender(name) for name in names], SIZES, "percent")


def test_the_document_has_the_keys_of_the_interfaces(outcome: Outcome) -> None:
    said = json.loads(json.dumps(document(outcome, 10.0)))
    assert set(said) == {"trace", "runs", "notices"}
    assert {"requests", "block_refs", "unique_blocks", "block_size", "sessions", "sha256"} <= set(said["trace"])
    assert len(said["runs"]) == 14
    for run in said["runs"]:
        assert set(run) >= RUN_KEYS
        assert run["prompt_tokens"] == run["cached_tokens"] + run["uncached_tokens"] == said["trace"]["prompt_tokens"]
        assert run["cost"] == pytest.approx(run["uncached_tokens"] + run["cached_tokens"] / 10)
        assert 0 <= run["recomputed_tokens"] <= run["uncached_tokens"]
        assert run["planning_failures"] == 0
        assert run["baseline"] is True
        assert run["block_refs"] == said["trace"]["block_refs"]


def test_gap_closed(outcome: Outcome) -> None:
    for tally in outcome.tallies:
        gap = outcome.gap_closed(tally)
        assert gap is not None
        if tally.policy == "lru":
            assert gap == 0
        if tally.policy == "belady-resident":
            assert gap == 1


def test_the_gap_refers_to_lru_and_the_bound_even_if_nobody_asked(outcome: Outcome) -> None:
    alone = simulate(SMALL, [contender("fifo")], SIZES, "percent")
    assert [tally.policy for tally in alone.tallies] == ["fifo", "fifo"]
    wanted = [outcome.gap_closed(tally) for tally in outcome.tallies if tally.policy == "fifo"]
    assert [alone.gap_closed(tally) for tally in alone.tallies] == wanted


def test_processes_change_nothing(outcome: Outcome) -> None:
    contenders = [contender(tally.policy) for tally in outcome.tallies[:7]]
    apart = simulate(SMALL, contenders, SIZES, "percent", jobs=3)

    def counts(of: Outcome) -> list[tuple[object, ...]]:
        return [(t.policy, t.capacity_blocks, t.block_hits, t.evictions, t.recomputed_tokens) for t in of.tallies]

    assert counts(apart) == counts(outcome)
    assert apart.facts == outcome.facts


def test_recomputed_tokens_are_those_seen_before(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Blocks of 512: [0, 1] new, pushed out by [2, 3], then computed again; [0, 4] adds one new block."""
    path = write(tmp_path / "t.jsonl", mooncake_rows([[0, 1], [2, 3], [0, 1], [0, 4]]))
    assert main(["simulate", str(path), "--capacity", "2", "--format", "json"]) == 0
    run = json.loads(capsys.readouterr().out)["runs"][0]
    assert (run["block_refs"], run["block_hits"]) == (8, 1)
    assert (run["uncached_tokens"], run["recomputed_tokens"]) == (7 * 512, 2 * 512)
    assert run["evictions"] == 5


def test_room_for_everything_is_a_notice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "t.jsonl", mooncake_rows([[0, 1], [0, 2], [0, 1]]))
    assert main(["simulate", str(path), "--capacity", "3", "--policy", "lru", "--format", "json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert [notice["code"] for notice in said["notices"]] == ["NO_PRESSURE"]
    assert said["runs"][0]["gap_closed"] is None
    assert main(["simulate", str(path), "--capacity", "2", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["notices"] == []


def test_several_traces_are_one_document(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = write(tmp_path / "one.jsonl", mooncake_rows([[0, 1], [0, 2]]))
    two = write(tmp_path / "two.jsonl", mooncake_rows([[5], [5]]))
    assert main(["simulate", str(one), str(two), "--capacity", "1,2", "--format", "json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert [run["trace"] for run in said["runs"]] == [str(one), str(one), str(two), str(two)]
    assert [trace["requests"] for trace in said["traces"]] == [2, 2]


def test_the_table_explains_itself(outcome: Outcome) -> None:
    text = table("small", outcome)
    above = text.split("Hit ratio:")[0].splitlines()
    rows = [line for line in above if line.startswith(("policy ", "lru ", "belady-resident "))]
    assert len({len(row.split("%")[0]) for row in rows[1:]}) == 1  # aligned
    for words in ("GENERATED", "hit ratio", "gap closed", "sha256", "Recomputed: tokens that had been computed before"):
        assert words in " ".join(text.split())
    legend = text.split("Hit ratio:")[1].splitlines()
    assert len(legend) == 5
    for words in (
        "Infinite: what a cache would find",
        "Seconds: how long this replay took here",
        "Blocks, tokens: the size",
    ):
        assert words in " ".join(text.split())
    assert max(map(len, legend)) <= 110


def test_sizes_in_tokens_have_one_unit(outcome: Outcome) -> None:
    small, large = (replace(outcome.tallies[0], capacity_blocks=size) for size in (2, 2_526))
    rows = table("small", replace(outcome, tallies=(small, large))).splitlines()
    assert [row.split()[1:3] for row in rows if row.startswith("lru ")] == [["2", "1,024"], ["2,526", "1,293k"]]


def test_the_page_shows_what_it_draws(outcome: Outcome) -> None:
    """The bound and lru are drawn whether asked for or not, so they have rows; sizes stand in percent, too."""
    alone = simulate(SMALL, [contender("fifo")], SIZES, "percent")
    html = page("small", alone)
    for name in ("lru", "fifo", "belady-resident"):
        assert html.count(f"<td>{name}</td>") == 2
    percents = [f"{100 * tally.capacity_blocks / alone.facts.unique_blocks:.3g} %" for tally in alone.tallies]
    assert all(f'"middle">{percent}</text>' in html for percent in percents)
    assert "percent of the trace's unique blocks" in html
    assert not re.search(r"<td>-", html)  # a minus sign is no hyphen


def test_the_page_stands_alone(outcome: Outcome, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    html = page('<b>"&', outcome)
    assert "<svg" in html
    assert html.count("<polyline") == 7
    assert "&lt;b&gt;&quot;&amp;" in html
    assert not re.search(r"(https?:)?//|<script|<link|<img|@import|url\(", html)
    path = write(tmp_path / "t.jsonl", mooncake_rows([[0, 1], [0, 2], [0, 1]]))
    target = tmp_path / "page.html"
    assert main(["simulate", str(path), "--capacity", "2,3", "--html", str(target)]) == 0
    assert capsys.readouterr().out
    assert "Hit ratio" in target.read_text()


def test_capacities_in_every_unit() -> None:
    counts = [Capacity(Fraction(1)), Capacity(Fraction(5, 2)), Capacity(Fraction(4000))]
    assert read_capacities(["1,2.5", "4k"]) == counts
    assert read_capacities(["5%, 0.5 %,5"]) == [
        Capacity(Fraction(5), "percent"), Capacity(Fraction(1, 2), "percent"), Capacity(Fraction(5))
    ]  # fmt: skip
    assert in_blocks(Fraction("2.5"), "percent", 512, 1000) == 25
    assert in_blocks(Fraction(1), "percent", 512, 96_534) == 965
    assert in_blocks(Fraction(10_000), "tokens", 512, 0) == 19


def test_a_percent_sign_is_a_share_of_the_trace_whatever_the_unit() -> None:
    sizes = [Capacity(Fraction(5), "percent"), Capacity(Fraction(30), "percent")]
    alone = simulate(SMALL, [contender("fifo")], sizes)
    plain = simulate(SMALL, [contender("fifo")], [Capacity(size.number) for size in sizes], "percent")
    assert [t.capacity_blocks for t in alone.tallies] == [t.capacity_blocks for t in plain.tallies] != [5, 30]


def test_the_generator_is_seeded_labelled_and_shaped() -> None:
    def read(trace: GeneratedTrace) -> tuple[list[tuple[float, int, int]], Facts]:
        facts = Facts()
        return [(c.at, c.request.tokens, c.seen) for c in trace.calls(facts)], facts

    calls, facts = read(SMALL)
    assert (calls, facts) == read(SMALL)
    assert read(GeneratedTrace(seed=2, sessions=4, window_s=600.0))[0] != calls
    assert facts.label.startswith("GENERATED")
    assert facts.sessions == 4
    assert [at for at, _, _ in calls] == sorted(at for at, _, _ in calls)
    assert max(tokens for _, tokens, _ in calls) <= 200_000


def test_without_any_source_a_generated_trace_stands_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    nowhere(tmp_path, monkeypatch)
    assert main(["simulate", "claude-code", "--capacity", "1", "--capacity-unit", "percent", "--format", "json"]) == 0
    told = capsys.readouterr()
    said = [line for line in told.err.splitlines() if not line.startswith("replaying")]  # a slow machine tells how far
    assert len(said) == 1
    assert "a generated trace is used instead" in told.err and told.err.count("cannot be fetched") == 1
    assert json.loads(told.out)["trace"]["source"].startswith("GENERATED")
    assert main(["simulate", "mooncake", "--capacity", "9"]) == 2
    assert "cannot be fetched" in capsys.readouterr().err


def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No data folder, no cache, no network."""
    monkeypatch.setenv("KVPOLICY_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def no_network(*args: object, **more: object) -> None:
        raise OSError("no network")

    monkeypatch.setattr("urllib.request.urlopen", no_network)


def test_a_fetched_trace_is_checked_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nowhere(tmp_path, monkeypatch)
    rows = [json.dumps(row) + "\n" for row in mooncake_rows([[0], [0, 1]])]
    monkeypatch.setattr("urllib.request.urlopen", lambda *_, **__: io.BytesIO("".join(rows).encode()))
    with pytest.raises(Exception, match=r"SHA-256 is \w+, not"):
        obtain("mooncake-synthetic")
    assert not list((tmp_path / "cache").rglob("*.gz"))


def test_a_changed_local_trace_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nowhere(tmp_path, monkeypatch)
    path = tmp_path / "data" / KNOWN["mooncake"].file
    path.parent.mkdir(parents=True)
    path.write_bytes(b"changed")
    with pytest.raises(Exception, match=r"SHA-256 is \w+, not"):
        find("mooncake", Interleaving())


def test_another_seed_is_another_interleaving(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("kvpolicy.simulate.library.obtain", lambda name: tmp_path / name)
    trace, told = find("claude-code", Interleaving(), 9)
    assert told is None
    assert trace.interleaving.seed == 9  # type: ignore[attr-defined]
    assert trace.interleaving.sample == DERIVED.sample  # type: ignore[attr-defined]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_on_a_terminal_and_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(0, 1000, 6))
    monkeypatch.setattr("kvpolicy.simulate.progress.monotonic", lambda: next(clock))
    live, file = Terminal(), io.StringIO()
    for stream in (live, file):
        with Bar("replaying x", stream) as bar:
            bar(0.25)
            bar(0.5)
    assert live.getvalue().startswith("\rreplaying x [########")
    assert live.getvalue().endswith("\r\033[K")
    assert file.getvalue() == "replaying x: 25 % after 6 s\nreplaying x: 50 % after 12 s\n"


def test_trace_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", "list"]) == 0
    listed = capsys.readouterr().out
    assert "claude-code-sessions" in listed
    assert f"below {data_folders()[0]}" in listed.splitlines()[-1] and "KVPOLICY_DATA" in listed.splitlines()[-1]
    assert main(["trace", "describe"]) == 0
    assert "call" in json.loads(capsys.readouterr().out)
    path = write(tmp_path / "t.jsonl", mooncake_rows([[0, 1], [0, 2]]))
    assert main(["trace", "info", str(path), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["unique_blocks"] == 3
    assert main(["trace", "get", "nobody"]) == 2
    assert main(["trace", "info"]) == 2
    assert main(["trace", "list", "x"]) == 2
    assert capsys.readouterr().err.count("\n") == 3
