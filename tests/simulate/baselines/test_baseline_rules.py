"""Each rule of others: against a slow and obvious form of it, or on a case counted by hand; none beats the bound."""

from __future__ import annotations

import itertools
import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvpolicy.faults import InputFault
from kvpolicy.request import Owner, Request, Span
from kvpolicy.simulate.baselines import BASELINES, FORESIGHT, RULES
from kvpolicy.simulate.baselines.evoke import score
from kvpolicy.simulate.baselines.in_the_wild import InTheWild, Seen
from kvpolicy.simulate.baselines.tree import Node, Order, RadixCache
from kvpolicy.simulate.baselines.workflow_aware import WorkflowAware
from kvpolicy.simulate.names import contender
from kvpolicy.simulate.oracle import History, belady
from kvpolicy.simulate.replay import Replay
from kvpolicy.simulate.tally import Tally
from kvpolicy.simulate.trace import END_TURN, TOOL_USE, Answer, Call

PATHS = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=7), min_size=1, max_size=25)


def call(ids: list[int], at: float = 0.0, session: str = "s", stop: str = END_TURN, **attributes: object) -> Call:
    request = Request(f"{session}@{at}", Owner(session=session), 16 * len(ids), 16, (), None, attributes)
    return Call(request, ids, at, Answer(stop, ("t",) if stop == TOOL_USE else ()))


def calls_of(paths: list[list[int]]) -> list[Call]:
    """An id is its whole path; sessions, pauses and answers follow from the number of the call."""
    names: dict[tuple[int, ...], int] = {}
    made = []
    for number, path in enumerate(paths):
        ids = [names.setdefault(tuple(path[: i + 1]), len(names)) for i in range(len(path))]
        stop = TOOL_USE if number % 3 else END_TURN
        made.append(call(ids, 3.0 * number, f"s{path[0]}", stop, turn=number % 5, priority=number % 2))
    return made


def every_rule(capacity: int, calls: list[Call]) -> dict[str, list[int]]:
    found = {}
    for name, make in RULES.items():
        rule = make(capacity)
        found[name] = [rule.serve(one) for one in calls]
    for name, order in FORESIGHT.items():
        cache = RadixCache(capacity, order(calls), whole=False)
        found[name] = [cache.serve(one) for one in calls]
    return found


@settings(max_examples=80)
@given(PATHS, st.integers(1, 12))
def test_no_rule_beats_the_bound(paths: list[list[int]], capacity: int) -> None:
    calls = calls_of(paths)
    history = History()
    for one in calls:
        history.append(one)
    bound = sum(belady(history, capacity)[0])
    for name, hits in every_rule(capacity, calls).items():
        assert sum(hits) <= bound, name


@settings(max_examples=120)
@given(PATHS, st.integers(1, 12))
def test_the_tree_in_its_plain_order_is_the_engine(paths: list[list[int]], capacity: int) -> None:
    """The same tree on which the rules run gives, in the order of last use, exactly the engine's hits and evictions."""
    calls = calls_of(paths)
    tally = Tally("lru", True, capacity)
    replay, cache = Replay(None, capacity, 16, tally), RadixCache(capacity, Order(), whole=False)
    for one in calls:
        before = tally.block_hits
        replay.feed(one)
        assert cache.serve(one) == tally.block_hits - before
    assert cache.evictions == tally.evictions


@settings(max_examples=60)
@given(PATHS, st.integers(1, 10))
def test_the_tree_holds_no_more_than_its_room_and_counts_that(paths: list[list[int]], capacity: int) -> None:
    for whole, order in itertools.product((True, False), (Order(), InTheWild())):
        cache = RadixCache(capacity, order, whole)
        for one in calls_of(paths):
            hits = cache.serve(one)
            assert hits <= len(one.hashes)
            held = _held(cache)
            assert held == cache.used <= capacity


def _held(cache: RadixCache) -> int:
    total, stack = 0, [cache._root]
    while stack:
        node = stack.pop()
        total += len(node.blocks)
        stack += node.children.values()
        assert node.parent is None or node.start == node.parent.start + len(node.parent.blocks)
    return total


# Four prompts of two blocks fill the cache; some are used again; a fifth comes, and one of the four has to go.
A, B, C, D, E = [1, 2], [3, 4], [5, 6], [7, 8], [9, 10]


@pytest.mark.parametrize(
    ("name", "leaves"),
    [("lru", B), ("lfu", C), ("fifo", A), ("mru", A), ("filo", D), ("slru", C), ("priority", B)],
)
def test_sglang_strategies(name: str, leaves: list[int]) -> None:
    """Used: A B B C D A B… by number; priority: of C and D 1, of A and B 0."""
    uses = [(A, 0), (B, 0), (C, 1), (D, 1), (B, 0), (D, 1), (A, 0)]
    if name == "lru":
        uses = [(A, 0), (B, 0), (C, 0), (D, 0), (C, 0), (D, 0), (A, 0)]
    if name == "priority":
        uses = [(A, 0), (B, 0), (C, 1), (D, 1), (B, 0), (A, 0)]
    rule = RULES[f"sglang-{name}"](8)
    for number, (ids, priority) in enumerate(uses):
        rule.serve(call(ids, float(number), priority=priority))
    rule.serve(call(E, 100.0, priority=1))
    gone = [ids for ids in (A, B, C, D) if _matched(rule, ids) == 0]
    assert gone == [leaves]


def _matched(rule: object, ids: list[int]) -> int:
    assert isinstance(rule, RadixCache)
    return sum(len(node.blocks) for node in _path(rule, ids))


def _path(cache: RadixCache, ids: list[int]) -> list[Node]:
    node, found = cache._root, list[Node]()
    while (at := node.start + len(node.blocks)) < len(ids) and ids[at] in node.children:
        node = node.children[ids[at]]
        found.append(node)
    return found


def test_an_sglang_leaf_leaves_as_a_whole() -> None:
    rule, gentle = RULES["sglang-lru"](8), RadixCache(8, Order(), whole=False)
    for cache in (rule, gentle):
        cache.serve(call([1, 2, 3, 4, 5, 6, 7, 8]))
        cache.serve(call([9], 1.0))
    assert (rule.evictions, gentle.evictions) == (8, 1)


@settings(max_examples=60)
@given(PATHS, st.integers(1, 8))
def test_evoke_equals_a_sort_of_everything(paths: list[list[int]], capacity: int) -> None:
    calls = calls_of(paths * 3)
    rule = RULES["evoke"](capacity)
    assert [rule.serve(one) for one in calls] == slow_evoke(calls, capacity)


def slow_evoke(calls: list[Call], capacity: int) -> list[int]:
    blocks: dict[object, list[int]] = {}  # block -> [touches, inserted, last touch]
    tick, answer = 0, []
    for one in calls:
        hits, leading = 0, True
        for block in one.hashes:
            tick += 1
            if block in blocks:
                hits += leading
                blocks[block] = [blocks[block][0] + 1, blocks[block][1], tick]
                continue
            leading = False
            if len(blocks) == capacity:
                now = tick
                victim = min(blocks, key=lambda b: (score(0.6, blocks[b][0], now - blocks[b][2]), blocks[b][1]))
                del blocks[victim]
            blocks[block] = [0, tick, tick]
        answer.append(hits)
    return answer


def test_evoke_by_hand() -> None:
    """Half of recency, half of reuse; rescaled onto what the floor leaves."""
    assert score(0.0, 0, 0) == 0.5
    assert score(0.0, 1, 64) == 0.25 + 0.25
    assert score(0.6, 1, 64) == pytest.approx(0.6 + 0.4 * 0.5)
    request = Request("r", Owner(), 64, 16, (Span("system", 0, 32), Span("tool_result", 32, 64)))
    rule = RULES["evoke"](4)
    rule.serve(Call(request, [1, 2, 3, 4], 0.0))
    rule.serve(call([9], 1.0))
    assert rule.serve(call([1, 2, 3, 4], 2.0)) == 2  # the first of the tool's result was the least worth


def test_in_the_wild_takes_the_category_that_comes_back_least() -> None:
    """First turns never come back here, later ones always do, after 10 s: a first turn goes, though it is younger."""
    cache = RadixCache(8, InTheWild(), whole=False)
    for number in range(30):
        at = 20.0 * number
        cache.serve(call([1, 2, 3, 4], at, turn=3))
        cache.serve(call([100 + 2 * number, 101 + 2 * number], at + 5, turn=1))
        cache.serve(call([1, 2, 3, 4], at + 10, turn=3))
    hits = []
    for number in range(4):
        cache.serve(call([500 + number, 600 + number], 600.0 + number, turn=1))
    hits.append(cache.serve(call([1, 2, 3, 4], 610.0, turn=3)))
    assert hits == [4]
    plain = RadixCache(8, Order(), whole=False)
    for number in range(4):
        plain.serve(call([1, 2, 3, 4], 0.0) if not number else call([500 + number, 600 + number], float(number)))
    assert plain.serve(call([1, 2, 3, 4], 10.0)) < 4


def test_in_the_wild_probability() -> None:
    seen = Seen()
    assert seen.probability(0.0, 60.0) == pytest.approx(0.5 * (1 - math.exp(-1)))
    for _ in range(10):
        seen.use()
        seen.gap(30.0)
    assert seen.probability(30.0, 30.0) == pytest.approx(math.exp(-1) - math.exp(-2), rel=0.01)


def test_who_knows_tool_times_keeps_the_nearest_return() -> None:
    """Three sessions wait for tools, the one that was used last for the longest: lru keeps it, this rule does not."""
    calls = [
        call([1, 2, 3], 0.0, "a", TOOL_USE),
        call([4, 5, 6], 1.0, "b", TOOL_USE),
        call([7, 8, 9], 2.0, "c", TOOL_USE),
        call([20, 21, 22], 3.0, "d"),
        call([1, 2, 3], 5.0, "a"),
        call([4, 5, 6], 6.0, "b"),
        call([7, 8, 9], 900.0, "c"),
    ]
    knows = RadixCache(9, FORESIGHT["oracle-tool-times"](calls), whole=False)
    assert [knows.serve(one) for one in calls][4:6] == [3, 3]
    plain = RadixCache(9, Order(), whole=False)
    assert [plain.serve(one) for one in calls][4:6] == [0, 0]


def test_who_knows_which_sessions_are_over_drops_them_first() -> None:
    calls = [
        call([1, 2, 3], 0.0, "a"),
        call([4, 5, 6], 1.0, "over"),
        call([7, 8, 9], 2.0, "b"),
        call([1, 2, 3], 3.0, "a"),
        call([7, 8, 9], 4.0, "b"),
    ]
    knows = RadixCache(6, FORESIGHT["oracle-session-ends"](calls), whole=False)
    assert [knows.serve(one) for one in calls] == [0, 0, 0, 3, 3]
    plain = RadixCache(6, Order(), whole=False)
    assert sum(plain.serve(one) for one in calls) < 6


def test_workflow_aware_profile_by_hand() -> None:
    """Of the first prompt, 4 blocks: block 1 is used by four later calls, blocks 2 and 3 by two, with one call
    between."""
    calls = [
        call([1, 2, 3, 4], 0.0),
        call([1, 2, 3, 40], 1.0),
        call([1, 20], 2.0),
        call([1, 2, 3, 41], 3.0),
        call([1, 30], 4.0),
    ]
    order = WorkflowAware(calls)
    assert order.profile(calls[0]) == [(0, 1, 4, 0), (1, 3, 2, 1)]
    assert order.profile(calls[4]) == []
    cache = RadixCache(20, order, whole=False)
    cache.serve(calls[0])
    head = cache._root.children[1]
    assert (head.blocks, head.note) == ([1], (90, 15.0))
    middle = head.children[2]
    assert (middle.blocks, middle.note) == ([2, 3], (70, 24.0))
    assert middle.children[4].note is None


@pytest.mark.parametrize(("late", "gone"), [(10.0, [3, 4]), (20.0, [1, 2])])
def test_workflow_aware_lapses(late: float, gone: list[int]) -> None:
    """A directive holds for 15 s where the next call of its session is the one that uses it, no longer."""
    calls = [call([1, 2], 0.0), call([3, 4], 1.0, "t"), call([9], late, "u"), call([1, 2], 500.0)]
    cache = RadixCache(4, WorkflowAware(calls), whole=False)
    for one in calls[:3]:
        cache.serve(one)
    assert [ids for ids in ([1, 2], [3, 4]) if _matched(cache, ids) < 2] == [gone]


def test_libcachesim_agrees_where_we_have_the_same_rule() -> None:
    library = pytest.importorskip("libcachesim", reason="libcachesim is not installed: its rules were not tested")
    draw = random.Random(3)
    lists = [[draw.randrange(60) for _ in range(draw.randrange(1, 9))] for _ in range(600)]
    for name, kind in (("lru-object", "LRU"), ("fifo", "FIFO")):
        mine, theirs = BASELINES[name](30), getattr(library, kind)(cache_size=30)
        request = library.Request()
        request.obj_size = 1
        for ids in lists:
            leading, hits = True, 0
            for block in ids:
                request.obj_id = block + 1
                found = theirs.get(request)
                leading = leading and found
                hits += leading
            assert mine.use(ids) == hits


@pytest.mark.parametrize("name", ["arc", "s3fifo", "lirs", "2q"])
def test_libcachesims_rules_run_and_stay_below_the_bound(name: str) -> None:
    pytest.importorskip("libcachesim", reason="libcachesim is not installed: its rules were not tested")
    draw = random.Random(5)
    paths = [[min(int(draw.paretovariate(1.0)), 9) for _ in range(6)] for _ in range(400)]
    calls = calls_of(paths)
    history = History()
    for one in calls:
        history.append(one)
    cache = BASELINES[name](40)
    hits = sum(cache.use(one.hashes) for one in calls)
    assert 0 < hits <= sum(belady(history, 40)[0])
    assert cache.evictions > 0
    with pytest.raises(InputFault, match="at least 20 blocks"):
        BASELINES[name](19)


@pytest.mark.parametrize("name", ["continuum-released", "continuum-paper", "kvflow-paper"])
def test_published_rules_compile(name: str) -> None:
    one = contender(name)
    assert one.baseline and one.policy() is not None
