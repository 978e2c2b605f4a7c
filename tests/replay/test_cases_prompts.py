"""Public fault reports as timelines: what a prompt says differently this time (C20, C21, C25)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.replay.timeline_steps import finish, named, play, ranks, refusal, request, show, span

Row = dict[str, Any]
SYSTEM = list(range(1000, 3048))


def codes(answer: Row) -> list[str]:
    return [notice["code"] for notice in answer.get("notices", ())]


def picture(at: float, id: str, tenant: str, digest: str, length: int | None = 48) -> list[Row]:
    """32 tokens of text, a picture of 48, 16 of text."""
    image = {"start": 32, "digest": digest} | ({} if length is None else {"length": length})
    spans = [span("system", 0, 32), span("document", 32, 80), span("turn", 80, 96)]
    owner = {"tenant": tenant, "session": id}
    step = request(at, id, owner=owner, tokens=[7] * 32 + [0] * 48 + [9] * 16, spans=spans, extra={"images": [image]})
    return [step, finish(at, id)]


def test_c20_two_pictures_share_the_text_before_them(tmp_path: Path) -> None:
    steps = [*picture(0, "one", "t1", "aa00"), *picture(1, "two", "t1", "aa01"), *picture(2, "three", "t1", "aa00")]
    answers = play(tmp_path, steps, "system { priority: 80 }\n")
    assert answers[2]["cached_tokens"] == 2 * 16
    assert answers[2]["stored"] == ["two:2", "two:3", "two:4", "two:5"]
    assert answers[4]["cached_tokens"] == 6 * 16


@pytest.mark.parametrize("policy", ["system { priority: 80 }\n", "system { priority: 80  share: global }\n"])
def test_c20_two_tenants_never_meet(tmp_path: Path, policy: str) -> None:
    """`share: global` on one span alone is narrowed to the rest of the request: an engine has one salt for it."""
    steps = [*picture(0, "one", "t1", "aa00"), *picture(1, "two", "t2", "aa00"), show(1, ["two:0"])]
    answers = play(tmp_path, steps, policy)
    assert answers[2]["cached_tokens"] == 0
    (row,) = answers[4]["blocks"]
    assert {claim["owner"]["tenant"] for claim in row["claims"]} == {"t2"}
    assert "t1" not in str(answers[2:])
    assert ("SHARE_NARROWED" in codes(answers[2])) == ("share" in policy)


def test_c20_what_all_spans_share_is_shared(tmp_path: Path) -> None:
    steps = [*picture(0, "one", "t1", "aa00"), *picture(1, "two", "t2", "aa00")]
    answers = play(tmp_path, steps, "any { share: global }\nsystem { priority: 80 }\n")
    assert answers[2]["cached_tokens"] == 96


def test_c20_a_picture_of_unknown_length_leaves_no_place_behind_it(tmp_path: Path) -> None:
    steps = [*picture(0, "one", "t1", "aa00", None), show(0, ["one:0"])]
    answers = play(tmp_path, steps, "turn { priority: 80 }\nsystem { priority: 60 }\n")
    assert "POSITION_UNKNOWN" in codes(answers[0])
    assert [hint["kind"] for hint in answers[0]["hints"]] == ["system"]
    assert answers[0]["stored"] == ["one:0", "one:1"]
    assert ranks(answers[2]) == [60]


def series(at: int | None) -> list[Row]:
    """Three requests of one session; the token at `at` differs each time."""
    steps: list[Row] = []
    for number in range(3):
        system = list(SYSTEM)
        if at is not None:
            system[at : at + 2] = [number, number + 50]
        tokens = [*system, *range(64)]
        spans = [span("system", 0, 2048), span("turn", 2048, 2112)]
        steps.append(request(number, f"r{number}", "s", tokens=tokens, spans=spans, show_difference=True))
        steps.append(finish(number, f"r{number}", finished=True))
    return [*steps, show(3, [f"r0:{i}" for i in range(128)])]


@pytest.mark.parametrize("at", [5, 9])
def test_c21_a_clock_in_the_head(tmp_path: Path, at: int) -> None:
    answers = play(tmp_path, series(at), "system { priority: 90 }\n")
    second = answers[2]
    assert second["cached_tokens"] == 0
    (notice,) = second["notices"]
    assert notice["code"] == "VOLATILE_PREFIX"
    assert notice["first_differing_token"] == at and notice["span"] == "system"
    assert notice["old_tokens"] != notice["new_tokens"]
    # After two requests in a row that do not reproduce it, the old copy is not worth a claim.
    assert not any(row["claims"] for row in answers[6]["blocks"])
    assert codes(answers[4]) == ["VOLATILE_PREFIX"]


def test_c21_the_same_three_times(tmp_path: Path) -> None:
    answers = play(tmp_path, series(None), "system { priority: 90 }\n")
    assert not any(codes(answer) for answer in answers)
    assert set(ranks(answers[6])) == {90}


def test_c21_without_being_asked_no_text_is_shown(tmp_path: Path) -> None:
    steps = [{k: v for k, v in step.items() if k != "show_difference"} for step in series(5)]
    (notice,) = play(tmp_path, steps)[2]["notices"]
    assert "old_tokens" not in notice


def tools(at: float, id: str, order: list[int]) -> list[Row]:
    tokens, spans = list(range(32)), [span("system", 0, 32)]
    for tool in order:
        spans.append(span("tools", len(tokens), len(tokens) + 16, name=f"t{tool}"))
        tokens += range(100 * tool, 100 * tool + 16)
    return [request(at, id, "s", tokens=[*tokens, 1, 2, 3], spans=spans), finish(at, id)]


def test_tools_in_another_order(tmp_path: Path) -> None:
    answers = play(tmp_path, [*tools(0, "a", [1, 2, 3]), *tools(1, "b", [1, 3, 2]), *tools(2, "c", [1, 3, 2])])
    (notice,) = answers[2]["notices"]
    assert notice["code"] == "TOOL_ORDER_CHANGED" and notice["first_differing_token"] == 48
    assert codes(answers[4]) == []


def test_another_head_is_no_volatile_one(tmp_path: Path) -> None:
    spans = [span("system", 0, 64)]
    one = request(0, "a", "s", tokens=list(range(80)), spans=spans)
    two = request(0, "b", "s", tokens=list(range(5000, 5080)), spans=spans)
    assert codes(play(tmp_path, [one, two])[1]) == []


THINKING = "on turn_end until turn_start { scratchpad { retention: drop } }\n"
TURN_1 = named("p", 20) + named("think", 30) + named("answer", 10)
PARTS = [span("turn", 0, 320), span("scratchpad", 320, 800), span("turn", 800, 960)]


def turn_1(**end: Any) -> list[Row]:
    """The prompt, and behind it what the first turn thought and answered."""
    return [request(0, "r1", "s", hashes=TURN_1, spans=PARTS), finish(1, "r1", **end)]


def test_c25_thinking_goes_when_a_human_is_next(tmp_path: Path) -> None:
    """The answer behind the thinking cannot be reached without it, so it goes along."""
    steps = [*turn_1(finished=True), show(2, TURN_1), {"at": 2, "do": "evict", "count": 40}, show(2, TURN_1[:20])]
    user = request(3, "r2", "s", hashes=[*TURN_1[:20], *named("again", 14)])
    _, _, shown, evicted, kept, asked = play(tmp_path, [*steps, user], THINKING)
    assert [row["dropped"] for row in shown["blocks"]] == [False] * 20 + [True] * 40
    assert {row["rank"] for row in shown["blocks"][:20]} == {35}
    assert evicted["evicted"] == TURN_1[59:19:-1]
    assert [row["state"] for row in kept["blocks"]] == ["resident"] * 20
    assert asked["cached_tokens"] == 320
    (notice,) = asked["notices"]
    assert notice["code"] == "HISTORY_DIVERGED" and notice["first_differing_token"] == 320


def test_c25_thinking_stays_inside_the_tool_loop(tmp_path: Path) -> None:
    steps = [
        *turn_1(tool_calls=["grep"]),
        show(2, TURN_1),
        request(3, "r2", "s", hashes=[*TURN_1, *named("result", 4)]),
    ]
    _, _, shown, asked = play(tmp_path, steps, THINKING)
    assert not any(row["dropped"] for row in shown["blocks"])
    assert asked["cached_tokens"] == 960
    assert codes(asked) == []


def test_c25_while_it_is_not_known_what_comes_nothing_goes(tmp_path: Path) -> None:
    shown = play(tmp_path, [*turn_1(), show(1.5, TURN_1), show(10, TURN_1)], THINKING)
    for answer in shown[2:]:
        assert {(row["rank"], row["dropped"]) for row in answer["blocks"]} == {(35, False)}


def test_what_a_new_request_does_not_reproduce_is_dead(tmp_path: Path) -> None:
    """No rule has to say so: the blocks behind token 320 have no claim once the next user turn has come."""
    user = request(3, "r2", "s", hashes=[*TURN_1[:20], *named("again", 14)])
    shown = play(tmp_path, [*turn_1(finished=True), user, show(3, TURN_1)], "any { priority: 60 }\n")[-1]
    assert [bool(row["claims"]) for row in shown["blocks"]] == [True] * 20 + [False] * 40


def test_c25_an_answer_is_labelled_by_its_parts_when_it_ends(tmp_path: Path) -> None:
    """What was one output while it was generated is thinking and text afterwards: a re-ranking, no request. The drop of
    the thinking takes the text behind it along; inside a tool loop nothing goes."""
    policy = "turn { priority: 60 }\noutput { priority: 20 }\n" + THINKING
    parts = [span("scratchpad", 320, 800), span("turn", 800, 960)]
    blocks = [f"r1:{i}" for i in range(60)]

    def shown(**end: Any) -> list[Row]:
        steps = [
            request(0, "r1", "s", tokens=list(range(320)), spans=[span("output", 320, None)]),
            {"at": 1, "do": "progress", "id": "r1", "accepted": list(range(1000, 1640))},
            show(1, blocks),
            finish(2, "r1", parts=parts, **end),
            show(2, blocks),
            show(10, blocks),
            {"at": 10, "do": "stats"},
        ]
        answers = play(tmp_path, steps, policy)
        assert answers[-1]["failures"] == 0
        assert [row["rank"] for row in answers[2]["blocks"]] == [60] * 20 + [20] * 40
        return answers

    human = shown(finished=True)[4]["blocks"]
    assert [row["dropped"] for row in human] == [False] * 20 + [True] * 40
    tool = shown(tool_calls=["grep"])[4]["blocks"]
    assert [row["rank"] for row in tool] == [60] * 60  # the text's claim covers the thinking before it
    assert {claim["kind"] for claim in tool[59]["claims"]} == {"turn"}
    unknown = shown()[5]["blocks"]
    assert [row["rank"] for row in unknown] == [60] * 60


@pytest.mark.parametrize(
    "parts",
    [
        [span("scratchpad", 300, 330)],  # begins before the output
        [span("scratchpad", 320, 2000)],  # more than was generated
        [span("scratchpad", 320, None)],
        [span("thinking", 320, 330)],
        "scratchpad",
    ],
)
def test_parts_that_cannot_be(tmp_path: Path, parts: Any) -> None:
    asked = request(0, "r1", "s", tokens=list(range(320)), spans=[span("output", 320, None)])
    grown = {"at": 1, "do": "progress", "id": "r1", "accepted": list(range(100))}
    assert "timeline.jsonl:3: " in refusal(tmp_path, [asked, grown, finish(2, "r1", parts=parts)])
