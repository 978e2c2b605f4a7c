"""What a rank is known to hold, event by event: numbers, gaps, restarts, counts, media, groups."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from kvpolicy.faults import InputFault
from kvpolicy.pool import Pool
from kvpolicy.residency import LIVE, NO_EVENTS, STALE, KvEvent, Residency, event_from_row
from kvpolicy.residency.events import event_of_pool


def stored(*hashes: str, medium: str = "gpu", group: int | None = None, replayed: bool = False) -> KvEvent:
    return KvEvent("stored", hashes, medium=medium, group=group, replayed=replayed)


def removed(*hashes: str, medium: str = "gpu") -> KvEvent:
    return KvEvent("removed", hashes, medium=medium)


CLEARED = KvEvent("cleared", medium=None)


def told(*events: tuple[int, KvEvent], life: str | None = None, **settings: object) -> Residency:
    """An index that was told these numbered events of rank 0 of worker w."""
    index = Residency()
    index.worker("w", 0.0, incarnation=life, **settings)  # type: ignore[arg-type]
    for sequence, event in events:
        index.take("w", 0, sequence, event, 0.0, life)
    return index


def states(index: Residency, blocks: Iterable[str], now: float = 0.0) -> str:
    """One letter a block: p(resent), a(bsent), u(nknown)."""
    return "".join(row.state[0] for row in index.lookup("w", 0, list(blocks), now))


def test_events_in_a_row_are_the_truth() -> None:
    index = told((0, stored("a", "b")), (1, removed("b")), (2, stored("c")))
    assert index.state("w", 0, 0.0) == LIVE
    assert states(index, "abcd") == "papa"


def test_after_a_gap_only_what_came_since_is_certain() -> None:
    index = told((0, stored("a", "b")), (2, stored("c")))
    assert index.state("w", 0, 0.0) == STALE
    assert states(index, "abcd") == "uupu"
    assert index.row("w", 0, 0.0)["replay_from"] == 1
    index.take("w", 0, 3, removed("c"), 0.0)
    assert states(index, "c") == "u"  # another copy may have come in the gap
    index.take("w", 0, 1, KvEvent("removed", ("a",), replayed=True), 0.0)
    assert index.state("w", 0, 0.0) == LIVE
    assert states(index, "abcd") == "apaa"


def test_behind_a_second_gap_nothing_before_it_is_certain() -> None:
    index = told((0, stored("a")), (2, stored("c")), (4, stored("d")))
    assert states(index, "acd") == "uup"
    index.take("w", 0, 3, removed("c"), 0.0)
    assert states(index, "acd") == "uup"
    index.take("w", 0, 1, removed("a"), 0.0)
    assert states(index, "acd") == "aap" and index.state("w", 0, 0.0) == LIVE


def test_a_late_event_does_not_bring_back_what_a_later_one_removed() -> None:
    index = told((1, removed("a")), life="x")
    index.take("w", 0, 0, stored("a"), 0.0, "x")
    assert states(index, "a") == "a"
    index.take("w", 0, 0, stored("a"), 0.0, "x")
    assert states(index, "a") == "a" and index.state("w", 0, 0.0) == LIVE


def test_a_clearing_makes_what_was_missed_void() -> None:
    index = told((0, stored("a")), (5, CLEARED), (6, stored("b")), life="x")
    assert index.state("w", 0, 0.0) == LIVE and states(index, "ab") == "ap"
    index.take("w", 0, 3, stored("z"), 0.0, "x")  # late: before the clearing
    assert states(index, "z") == "a"


def test_a_clearing_of_one_medium_leaves_the_other() -> None:
    index = told((0, stored("a")), (1, stored("a", "b", medium="cpu")), (2, KvEvent("cleared", medium="gpu")))
    (row,) = index.lookup("w", 0, ["a"], 0.0)
    assert row.tiers == ("cpu",) and row.copies == 1
    index.take("w", 0, 3, KvEvent("cleared", medium="cpu"), 0.0)
    assert states(index, "ab") == "aa"


def test_removals_count_per_medium() -> None:
    index = told((0, stored("a")), (1, stored("a", medium="cpu")), (2, removed("a", medium="disk")))
    assert index.lookup("w", 0, ["a"], 0.0)[0].tiers == ("gpu", "cpu")
    index.take("w", 0, 3, removed("a"), 0.0)
    assert index.lookup("w", 0, ["a"], 0.0)[0].tiers == ("cpu",)
    index.take("w", 0, 4, removed("a"), 0.0)  # once too often
    index.take("w", 0, 5, removed("a", medium="cpu"), 0.0)
    assert states(index, "a") == "a"
    index.take("w", 0, 6, stored("a"), 0.0)
    assert index.lookup("w", 0, ["a"], 0.0)[0].copies == 1  # nothing is owed for the surplus removal


def test_where_blocks_are_told_again_a_repeated_store_is_one_copy() -> None:
    index = told((0, stored("a")), (1, stored("a")), reannounces=True)
    assert index.lookup("w", 0, ["a"], 0.0)[0].copies == 1
    index.take("w", 0, 2, removed("a"), 0.0)
    assert states(index, "a") == "a"


def test_a_block_counts_when_all_groups_have_it() -> None:
    index = told((0, stored("a", "b", group=0)), (1, stored("a", group=1)), groups=(0, 1))
    assert states(index, "ab") == "pa"


def test_a_restart_ends_the_blocks_of_all_ranks() -> None:
    index = told((0, stored("a")), life="x")
    index.take("w", 1, 0, stored("b"), 0.0, "x")
    index.take("w", 0, 0, stored("c"), 1.0, "y")
    assert states(index, "ac") == "ap"
    assert index.source("w", 1).present() == []
    taken, _ = index.take("w", 1, 1, stored("d"), 2.0, "x")  # of the life before
    assert taken.status == "ignored"
    assert index.source("w", 1).present() == []
    index.worker("w", 3.0, incarnation="z")
    assert states(index, "ac") == "uu"


def test_numbered_lives_have_an_order() -> None:
    index = told((0, stored("c")), life="3")
    taken, _ = index.take("w", 0, 0, stored("a"), 0.0, "2")  # its first frame, late
    assert taken.status == "ignored" and states(index, "ac") == "ap"
    index.take("w", 0, 0, stored("b"), 0.0, "10")
    assert states(index, "bc") == "pa"


def test_without_incarnations_a_second_delivery_is_no_restart() -> None:
    index = told((0, stored("a")), (1, stored("b")), (0, stored("a")))
    assert index.state("w", 0, 0.0) == STALE  # it may be a restart with the same first prompt
    index.take("w", 0, 2, stored("c"), 0.0)
    assert index.state("w", 0, 0.0) == LIVE and states(index, "abc") == "ppp"


def test_without_incarnations_other_content_under_an_old_number_voids_everything() -> None:
    index = told((0, stored("a")), (1, stored("b")), (2, stored("c")), (1, stored("z")))
    assert states(index, "abcz") == "uuuu" and index.row("w", 0, 0.0)["replay_from"] == 0


def test_no_events() -> None:
    index = told()
    assert index.state("w", 0, 59.9) == STALE and index.state("w", 0, 60.0) == NO_EVENTS
    index.take("w", 0, 0, stored("a"), 70.0)
    assert index.state("w", 0, 1000.0) == LIVE  # an idle engine has nothing to tell
    index.sent("w", 1000.0)
    assert index.state("w", 0, 1059.9) == LIVE and index.state("w", 0, 1060.0) == NO_EVENTS
    assert states(index, "a", 1060.0) == "u"
    index.take("w", 0, 1, stored("b"), 1061.0)
    assert states(index, "ab", 1061.0) == "pp"


def test_an_unknown_worker_is_unknown() -> None:
    index = Residency()
    assert [row.state for row in index.lookup("nobody", 0, ["a"], 0.0)] == ["unknown"]
    assert index.row("nobody", 0, 0.0)["state"] == STALE
    assert index.ranks("nobody") == []


def test_a_flood_behind_a_gap_is_not_kept_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvpolicy.residency.source.MOST_PENDING", 10)
    index = told((0, stored("a")), *((n, stored(f"b{n}")) for n in range(2, 40)), life="x")
    assert len(index.source("w", 0)._pending) <= 10
    for n in range(1, 40):
        index.take("w", 0, n, stored(f"b{n}", replayed=True), 0.0, "x")
    assert index.state("w", 0, 0.0) == LIVE and states(index, ["a", "b1", "b20", "b39"]) == "pppp"


def test_the_embedded_engine_tells_where_its_blocks_lie() -> None:
    pool = Pool(2, cpu_blocks=4, events=True)
    index = Residency()
    pool.release(pool.acquire(["a", "b"], 0.0), 0.0)
    pool.release(pool.acquire(["c"], 1.0), 1.0)
    for number, event in enumerate(pool.events or ()):
        index.take("w", 0, number, event_of_pool(event), 1.0, "x")
    rows = index.lookup("w", 0, ["a", "b", "c", "d"], 1.0)
    assert [(row.state, row.tiers) for row in rows] == [
        ("present", ("gpu",)),
        ("present", ("cpu",)),
        ("present", ("gpu",)),
        ("absent", ()),
    ]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ([], "a JSON object is needed"),
        ({"type": "stored"}, "hashes: missing"),
        ({"type": "gone", "hashes": []}, "'gone' is no KV event"),
        ({"type": "stored", "hashes": [1.5]}, "hashes: a list of block hashes"),
        ({"type": "stored", "hashes": ["a"], "parent": [1]}, "parent: a block hash"),
        ({"type": "stored", "hashes": ["a"], "via": "mail"}, "via: live or replay"),
        ({"type": "stored", "hashes": ["a"], "tokens": ["x"]}, "tokens: a list of whole numbers"),
        ({"type": "stored", "hashes": ["a"], "group": "x"}, "group: a whole number"),
        ({"type": "stored", "hashes": ["a"], "medium": 3}, "medium: a name"),
        ({"type": "stored", "hashes": ["a"], "hash": "a"}, "unknown key 'hash'"),
    ],
)
def test_an_event_that_cannot_be_read(row: object, message: str) -> None:
    with pytest.raises(InputFault, match=message):
        event_from_row(row)


def test_names_of_media() -> None:
    media = [event_from_row({"type": "stored", "hashes": [], "medium": m}).medium for m in ("GPU", "hbm", "STORAGE")]
    assert media == ["gpu", "gpu", "disk"]
