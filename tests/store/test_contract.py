"""One contract over all that keep it: in-process, with files, Redis, a cluster, and a Redis that is not there."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from kvpolicy.faults import InputFault
from kvpolicy.request import Owner
from kvpolicy.store.contract import Gap, Store
from kvpolicy.store.memory import MemoryStore
from kvpolicy.store.record import Record
from tests.store.conftest import Open
from tests.store.servers import free_port, until

KINDS = ("memory", "files", "redis", "cluster", "absent")
SHORT_S = 0.3  # a time to live that ends within a test
S = Owner("t", "s")


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path, open_store: Open) -> Iterator[Store]:
    kind = request.param
    if kind in ("memory", "files"):
        yield MemoryStore(tmp_path / "store" if kind == "files" else None, keep=50)
    elif kind == "absent":
        yield open_store(f"redis://127.0.0.1:{free_port()}/0", kept=50)
    elif kind == "redis":
        yield open_store(request.getfixturevalue("server").url, kept=50)
    else:
        nodes = request.getfixturevalue("nodes")
        yield open_store(f"redis+cluster://127.0.0.1:{nodes[0].port},127.0.0.1:{nodes[1].port}", kept=50, shards=4)


def shares(store: Store) -> bool:
    return store.status().mode == "shared"


def record(number: int, **fields: Any) -> Record:
    return Record("event", S, {"event": "tool_call", "number": number}, **fields)


def numbers(store: Store) -> list[object]:
    taken: list[object] = []
    for each in store.take():
        assert isinstance(each, Record), each
        taken.append(each.body["number"])
    return taken


def test_only_servers_that_are_there_are_shared(store: Store, request: pytest.FixtureRequest) -> None:
    kind = request.node.callspec.params["store"]
    assert shares(store) == (kind in ("redis", "cluster"))
    assert bool(store.status().reason) != shares(store)


def test_the_clock_tells_the_time_and_never_goes_back(store: Store) -> None:
    times = [store.now() for _ in range(100)]
    assert times == sorted(times)
    assert abs(times[-1] - time.time()) < 5.0


# --- records --------------------------------------------------------------------------------------------------


def test_records_come_in_order_and_once(store: Store) -> None:
    for number in range(30):
        store.append(record(number))
    assert store.settle() == (shares(store) or isinstance(store, MemoryStore))
    assert numbers(store) == list(range(30))
    assert store.take() == []


def test_a_record_comes_as_it_was_told(store: Store) -> None:
    owner = Owner("t", "s", "r", "a", "b", "p")
    body: dict[str, object] = {"event": "tool_call", "attributes": [["tool", "grep"], ["eta", 1.5]], "none": None}
    store.append(Record("event", owner, body, 1000.25, "k"))
    store.settle()
    (got,) = store.take()
    assert got == Record("event", owner, body, 1000.25, "k")


def test_a_record_without_a_time_is_of_now(store: Store) -> None:
    before = store.now()
    store.append(record(1))
    store.settle()
    (got,) = store.take()
    assert isinstance(got, Record) and got.at is not None
    assert before - 0.5 <= got.at <= store.now() + 0.5  # the server's time, as well as a replica knows it


def test_what_is_told_twice_counts_once(store: Store) -> None:
    for _ in range(3):
        store.append(record(1, key="same"))
        store.settle()
    store.append(record(2, key="other"))
    store.settle()
    assert numbers(store) == [1, 2]
    assert store.status().counters["duplicates"] == 2


def test_no_more_is_taken_than_asked_for(store: Store) -> None:
    for number in range(10):
        store.append(record(number))
    store.settle()
    assert len(store.take(4)) == 4
    assert numbers(store) == [4, 5, 6, 7, 8, 9]


@pytest.mark.parametrize(
    "bad",
    [
        Record("gossip", S),
        Record("event", Owner("")),
        Record("event", S, {"text": "x" * 600}),
        Record("event", S, {"what": {"nested": 1}}),
        Record("event", S, {"what": b"bytes"}),
        Record("event", S, {f"f{n}": n for n in range(65)}),
        Record("event", S, {f"f{n}": "x" * 500 for n in range(60)}),
        Record("event", S, at=float("nan")),
        Record("event", S, at=-1.0),
        Record("event", S, {"what": "\ud800"}),
    ],
    ids=range(10),
)
def test_records_that_cannot_be_meant_are_refused(store: Store, bad: Record) -> None:
    with pytest.raises(InputFault):
        store.append(bad)
    store.settle()
    assert store.take() == []


# --- versions -------------------------------------------------------------------------------------------------


def test_versions_come_into_force_one_after_another(store: Store) -> None:
    assert store.policy("p") is None
    for number in (1, 2, 3):
        answer = store.publish("p", {"a.kvp": f"policy v{number}"})
        assert answer.accepted and answer.version is not None
        assert answer.shared == shares(store)
        assert (answer.version.serial, answer.version.number) == (number, number)
        assert store.policy("p") == answer.version
    assert store.policy("q") is None


def test_a_version_is_only_put_in_force_over_the_one_that_was_expected(store: Store) -> None:
    assert store.publish("p", {"a": "1"}, expect=0).accepted
    refused = store.publish("p", {"a": "2"}, expect=0)
    assert not refused.accepted and "serial 1 is in force" in refused.reason
    assert store.policy("p") == refused.version
    assert store.publish("p", {"a": "2"}, expect=1).accepted


def test_roll_back_and_forth(store: Store) -> None:
    for text in "123":
        store.publish("p", {"a": text})
    back = store.roll_back("p")
    assert back.accepted and back.version is not None
    assert (back.version.serial, back.version.number, back.version.files) == (4, 2, {"a": "2"})
    assert store.policy("p") == back.version
    forth = store.roll_back("p")
    assert forth.version is not None and forth.version.files == {"a": "3"}
    first = store.roll_back("p", to=1)
    assert first.version is not None and first.version.files == {"a": "1"} and first.version.serial == 6
    fourth = store.publish("p", {"a": "4"})
    assert fourth.version is not None and (fourth.version.serial, fourth.version.number) == (7, 4)


def test_no_way_back_to_what_is_not_kept(store: Store) -> None:
    assert not store.roll_back("p").accepted
    store.publish("p", {"a": "1"})
    assert not store.roll_back("p").accepted  # there is none before
    refused = store.roll_back("p", to=7)
    assert not refused.accepted and "version 7" in refused.reason
    there = store.policy("p")
    assert there is not None and there.serial == 1
    for number in range(20):
        store.publish("p", {"a": str(number)})
    assert not store.roll_back("p", to=2).accepted
    assert store.roll_back("p", to=8).accepted


@pytest.mark.parametrize("files", [{"a": 1}, {"a": "x" * (1 << 20)}, {"a": "\ud800"}], ids=range(3))
def test_versions_that_are_no_texts_are_refused(store: Store, files: Any) -> None:
    with pytest.raises(InputFault):
        store.publish("p", files)
    with pytest.raises(InputFault):
        store.publish("", {"a": "1"})
    assert store.policy("p") is None


# --- documents ------------------------------------------------------------------------------------------------


def test_each_source_has_one_document_of_a_kind_and_tenant(store: Store, request: pytest.FixtureRequest) -> None:
    lasts = shares(store) or request.node.callspec.params["store"] == "files"
    assert store.kept("learned", "t") == ()
    assert store.keep("learned", "t", "a", {"n": 1}) == lasts
    time.sleep(0.01)
    store.keep("learned", "t", "b", {"n": [1.5, None, "x"]})
    time.sleep(0.01)
    store.keep("learned", "t", "a", {"n": 3})
    store.keep("learned", "u", "a", {"n": 4})
    store.keep("other", "t", "a", {"n": 5})
    kept = store.kept("learned", "t")
    assert [(document.source, document.body) for document in kept] == [("a", {"n": 3}), ("b", {"n": [1.5, None, "x"]})]
    assert abs(kept[0].at - store.now()) < 30


def test_a_kept_document_is_a_copy(store: Store) -> None:
    body: dict[str, object] = {"n": [1]}
    store.keep("learned", "t", "a", body)
    body["n"] = [2]
    assert store.kept("learned", "t")[0].body == {"n": [1]}


def test_documents_end(store: Store) -> None:
    store.keep("residency", "t", "a", {"n": 1}, ttl=SHORT_S)
    store.keep("residency", "t", "b", {"n": 1}, ttl=60)  # the end of one is not another's
    until(lambda: [document.source for document in store.kept("residency", "t")] == ["b"])


def test_no_document_that_is_no_json(store: Store) -> None:
    with pytest.raises(InputFault):
        store.keep("learned", "t", "a", {"n": {1, 2}})
    with pytest.raises(InputFault):
        store.keep("learned", "t", "a", {"n": "x" * (5 << 20)})
    with pytest.raises(InputFault):
        store.keep("learned", "t", "", {})


# --- sessions, requests, quotas -------------------------------------------------------------------------------


def test_a_session_stays_where_it_was_put(store: Store) -> None:
    assert store.pinned("t", "s") is None
    first = store.pin("t", "s", "w0", 60)
    assert (first.worker, first.fresh, first.shared) == ("w0", True, shares(store))
    second = store.pin("t", "s", "w1", 60)
    assert (second.worker, second.fresh) == ("w0", False)
    moved = store.pin("t", "s", "w1", 60, move=True)
    assert (moved.worker, moved.fresh) == ("w1", True)
    there = store.pinned("t", "s")
    assert there is not None and there.worker == "w1"
    assert store.pinned("u", "s") is None
    store.unpin("t", "s")
    store.unpin("t", "s")
    assert store.pinned("t", "s") is None


def test_a_pin_ends_unless_it_is_renewed(store: Store) -> None:
    names = (f"held{number}" for number in count())

    def renewed() -> str | None:
        """The name of a session that was pinned again in time; None where this machine was too slow for that."""
        name = next(names)
        store.pin("t", name, "w0", SHORT_S)
        return name if store.pin("t", name, "w1", 60).worker == "w0" else None

    held = until(renewed)
    store.pin("t", "s", "w0", SHORT_S)
    until(lambda: store.pinned("t", "s") is None)  # a look renews nothing; the other's first end is over by then
    there = store.pinned("t", held)
    assert there is not None and there.worker == "w0"


def test_a_request_with_a_known_key_is_not_the_first(store: Store) -> None:
    begun = store.begin("t", "k", 60)
    assert (begun.first, begun.shared) == (True, shares(store))
    again = store.begin("t", "k", 60)
    assert (again.first, again.result) == (False, None)
    store.finish("t", "k", '{"id": "r1"}', 60)
    done = store.begin("t", "k", 60)
    assert (done.first, done.result) == (False, '{"id": "r1"}')
    assert store.begin("u", "k", 60).first
    store.abandon("t", "k")  # it is done: there is nothing to abandon
    assert not store.begin("t", "k", 60).first


def test_a_request_that_was_abandoned_may_come_again(store: Store) -> None:
    store.begin("t", "k", 60)
    store.abandon("t", "k")
    assert store.begin("t", "k", 60).first


def test_idempotency_keys_end(store: Store) -> None:
    store.begin("t", "k", SHORT_S)
    store.finish("t", "done", "x", SHORT_S)
    time.sleep(SHORT_S * 1.3)
    assert store.begin("t", "k", 60).first
    assert store.begin("t", "done", 60).first
    with pytest.raises(InputFault):
        store.finish("t", "k", "x" * 20_000, 60)


def test_amounts_are_counted_up_to_the_limit(store: Store) -> None:
    window = 1000.0
    assert store.spend("t", "requests", 2, 5, window).granted
    spent = store.spend("t", "requests", 3, 5, window)
    assert (spent.granted, spent.shared) == (True, shares(store))
    assert 2.9 <= spent.used <= 5.0  # fewer where a window began between the two
    assert not store.spend("t", "requests", 5.5, 5, window).granted
    assert store.spend("u", "requests", 5, 5, window).granted
    assert store.spend("t", "tokens", 0.5, 5, window).used == pytest.approx(0.5)
    with pytest.raises(InputFault):
        store.spend("t", "requests", -1, 5, window)


def test_what_was_spent_is_free_again_after_the_window(store: Store) -> None:
    assert store.spend("t", "requests", 5, 5, 0.1).granted
    time.sleep(0.25)
    assert store.spend("t", "requests", 5, 5, 0.1).granted


def test_places_are_few_and_given_back(store: Store) -> None:
    one, two = store.enter("t", "running", "a", 2, 60), store.enter("t", "running", "b", 2, 60)
    assert (one.granted, one.inside, two.granted, two.inside) == (True, 1, True, 2)
    assert one.shared == shares(store)
    assert not store.enter("t", "running", "c", 2, 60).granted
    assert store.enter("t", "running", "a", 2, 60).granted  # it is in already
    store.leave("t", "running", "a")
    store.leave("t", "running", "a")
    assert store.enter("t", "running", "c", 2, 60).granted
    assert not store.enter("t", "running", "d", 2, 60).granted
    assert not store.enter("t", "none", "a", 0, 60).granted


def test_a_place_that_nobody_gives_back_ends(store: Store) -> None:
    store.enter("t", "running", "dead", 1, SHORT_S)
    until(lambda: store.enter("t", "running", "b", 1, 60).granted)
    assert not store.enter("t", "running", "c", 1, 60).granted


@pytest.mark.parametrize("ttl", [0, -1, float("nan"), float("inf"), True, "60s"])
def test_nothing_lives_for_no_time_or_for_ever(store: Store, ttl: Any) -> None:
    for call in (
        lambda: store.pin("t", "s", "w", ttl),
        lambda: store.begin("t", "k", ttl),
        lambda: store.spend("t", "w", 1, 1, ttl),
        lambda: store.enter("t", "w", "h", 1, ttl),
        lambda: store.keep("k", "t", "s", {}, ttl),
    ):
        with pytest.raises(InputFault):
            call()


# --- salts ----------------------------------------------------------------------------------------------------


def test_a_tenant_has_one_salt_of_its_own(store: Store, request: pytest.FixtureRequest) -> None:
    t, u = store.salt("t"), store.salt("u")
    assert t.text != u.text
    assert len(t.text) == 64 and set(t.text) <= set("0123456789abcdef")
    if request.node.callspec.params["store"] == "absent":  # nobody could say the key: each request for itself
        assert not t.lasting and store.salt("t").text != t.text
        assert not store.renew_salt("t")
        return
    assert t.lasting and store.salt("t") == t
    assert store.renew_salt("t")
    until(lambda: store.salt("t") != t)
    assert store.salt("u") == u
    assert store.renew_salt("t")


# --- bounds ---------------------------------------------------------------------------------------------------


def test_a_reader_too_far_behind_is_told(prefix: str) -> None:
    store = MemoryStore(keep=50)
    for number in range(120):
        store.append(record(number))
    taken = store.take()
    assert taken[0] == Gap(0, 70, "the reader was too far behind")
    assert [r.body["number"] for r in taken[1:] if isinstance(r, Record)] == list(range(70, 120))


def test_closing_twice_is_once(store: Store) -> None:
    store.append(record(1))
    store.close()
    store.close()
    assert store.status().mode in ("local", "shared")
