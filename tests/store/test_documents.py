"""Documents in-process: their ends, how many there may be, how large one may be, what does not fit."""

from __future__ import annotations

import math

import pytest

from kvpolicy.faults import InputFault
from kvpolicy.store.contract import Document
from kvpolicy.store.documents import LARGEST_B, MOST_SOURCES, Documents, dumped


def test_documents_end_at_their_time_and_the_longest_unchanged_leaves_first() -> None:
    documents = Documents()
    for number in range(MOST_SOURCES):
        documents.put("k", "t", Document(f"s{number}", 0.0, {"n": number}), 10.0, 0.0)
    documents.put("k", "t", Document("s0", 1.0, {"n": "again"}), 20.0, 1.0)
    assert len(documents.all("k", "t", 1.0)) == MOST_SOURCES
    documents.put("k", "t", Document("one more", 2.0, {}), 20.0, 2.0)
    there = [document.source for document in documents.all("k", "t", 2.0)]
    assert len(there) == MOST_SOURCES and there[:2] == ["one more", "s0"] and "s1" not in there
    assert [document.source for document in documents.all("k", "t", 10.0)] == ["one more", "s0"]
    again = Documents()
    again.load(documents.export("k", "t"), 10.0)
    assert [row[0] for row in again.export("k", "t")["documents"]] == ["s0", "one more"]
    documents.put("k", "t", Document("s0", 10.0, {}), 30.0, 10.0)  # with it goes what has ended by then
    assert [row[0] for row in documents.export("k", "t")["documents"]] == ["one more", "s0"]


@pytest.mark.parametrize("row", [["a", math.nan, 9.0, {}], ["a", 0.0, math.inf, {}], ["a", 0.0, 9.0, []], ["a", 0.0]])
def test_documents_that_do_not_fit_change_nothing(row: list[object]) -> None:
    documents = Documents()
    documents.put("k", "t", Document("s", 0.0, {}), 10.0, 0.0)
    with pytest.raises(InputFault):
        documents.load({"kind": "k", "tenant": "t", "documents": [["b", 0.0, 9.0, {}], row]}, 1.0)
    assert [document.source for document in documents.all("k", "t", 1.0)] == ["s"]


def test_a_document_may_be_as_large_as_that_and_no_larger() -> None:
    room = LARGEST_B - len(dumped({"n": ""}))
    assert len(dumped({"n": "x" * room})) == LARGEST_B
    with pytest.raises(InputFault, match=str(LARGEST_B + 1)):
        dumped({"n": "x" * (room + 1)})
