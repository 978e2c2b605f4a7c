"""Where a prompt parts from its owner's earlier ones, by tokens and by block hashes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kvpolicy.faults import Notice
from kvpolicy.history import History
from kvpolicy.request import Owner, Request, Span

SESSION = Owner(session="s")


def ask(
    history: History, tokens: list[int], *spans: Span, owner: Owner = SESSION, known: bool = True, id: str = "r"
) -> list[Notice]:
    """Notices about a request with these tokens; `known` False: only its block hashes are told. Blocks of 4."""
    hashes = [tuple(tokens[:end]) for end in range(4, len(tokens) + 1, 4)]
    return history.compare(Request(id, owner, len(tokens), 4, spans), hashes, tokens if known else None)


def system(end: int) -> Span:
    return Span("system", 0, end)


def test_a_prompt_that_goes_on_says_nothing() -> None:
    history = History()
    for length in (8, 12, 12, 40):
        assert ask(history, list(range(length)), system(4)) == []


def test_a_shorter_one_says_nothing() -> None:
    history = History()
    assert ask(history, list(range(40))) == [] and ask(history, list(range(20))) == []


def test_a_rewritten_history() -> None:
    history = History()
    ask(history, list(range(40)), system(8))
    (notice,) = ask(history, [*range(21), 99, *range(22, 40)], system(8))
    assert notice.code == "HISTORY_DIVERGED"
    assert (notice.details["first_differing_token"], notice.details["span"]) == (21, "turn")


def test_by_hashes_alone_the_place_is_known_to_the_block() -> None:
    history = History()
    ask(history, list(range(40)), system(8), known=False)
    (notice,) = ask(history, [*range(21), 99, *range(22, 40)], system(8), known=False)
    assert (notice.details["first_differing_token"], notice.details["exact"]) == (20, False)
    (notice,) = ask(history, [0, 77, *range(2, 40)], system(8), known=False)
    assert notice.code == "VOLATILE_PREFIX"


def test_what_was_generated_belongs_to_the_history() -> None:
    history = History()
    request = Request("r", SESSION, 8, 4, (system(4), Span("output", 8, None)))
    history.compare(request, [], list(range(8)))
    history.grew(request, [8, 9, 10, 11])
    assert ask(history, list(range(16)), system(4)) == []
    history.grew(request, [1])  # it has gone on: nothing left to grow
    (notice,) = ask(history, [*range(10), 5, 5, 5, 5], system(4))
    assert notice.details["first_differing_token"] == 10


def test_a_side_request_with_another_head_is_left_alone() -> None:
    history = History()
    for _ in range(3):
        assert ask(history, list(range(40)), system(8)) == []
        assert ask(history, list(range(500, 530)), system(8)) == []


def test_a_nonce_that_shifts_the_rest_is_still_a_nonce() -> None:
    history = History()
    ask(history, [1, 2, 3, *range(50, 90)], system(43))
    (notice,) = ask(history, [1, 2, 7, 7, *range(50, 90)], system(44))
    assert notice.code == "VOLATILE_PREFIX" and notice.details["first_differing_token"] == 2


def test_users_without_a_name_are_no_history_of_each_other() -> None:
    history = History()
    ask(history, list(range(40)), system(20), owner=Owner())
    assert ask(history, [*range(30), *range(70, 80)], system(20), owner=Owner()) == []
    assert ask(history, [*range(12), *range(70, 98)], system(20), owner=Owner()) == []  # another prompt in part
    (notice,) = ask(history, [0, 1, 99, *range(3, 40)], system(20), owner=Owner())
    assert notice.code == "VOLATILE_PREFIX"
    assert ask(history, [0, 1, 98, *range(3, 40)], system(20), owner=Owner(tenant="other")) == []


def test_one_span_of_tools_in_another_order() -> None:
    history = History()
    tools = Span("tools", 8, 24)
    ask(history, [*range(8), *range(100, 116), 1], system(8), tools)
    (notice,) = ask(history, [*range(8), *range(108, 116), *range(100, 108), 1], system(8), tools)
    assert notice.code == "TOOL_ORDER_CHANGED" and notice.details["span"] == "tools"


def test_it_keeps_no_more_than_it_may() -> None:
    history = History(most_tokens=1000)
    for number in range(200):
        ask(history, list(range(number, number + 50)), owner=Owner(session=f"s{number}"))
        assert history._kept <= 1050
    kept = sum(len(prompt.tokens or ()) for prompts in history._prompts.values() for prompt in prompts)
    assert kept == history._kept


@given(st.lists(st.integers(0, 3), max_size=20), st.lists(st.integers(0, 3), max_size=20))
def test_the_place_is_the_first_difference(one: list[int], two: list[int]) -> None:
    history = History()
    ask(history, one)
    notices = ask(history, two)
    differ = next((i for i, (a, b) in enumerate(zip(one, two, strict=False)) if a != b), None)
    if differ is None or differ < 4:
        assert notices == []
    else:
        assert [n.details["first_differing_token"] for n in notices] == [differ]
