"""Where units lie, by the tokenizer of the simulated engine: exact, remembered, and never guessed."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kvpolicy.service.meaning import dialects
from kvpolicy.service.meaning.annotations import Mark
from kvpolicy.service.meaning.offsets import Offsets, Places
from kvpolicy.service.meaning.spans import POSITION_UNKNOWN, located
from kvpolicy.simulated.chat import render
from kvpolicy.simulated.text import tokens as text_tokens

SALT = b"k" * 32
TOOLS = [{"type": "function", "function": {"name": "grep", "parameters": {}}}]


class Engine:
    """The simulated engine's tokenizer, with a count of calls. strips: a template that leaves the reasoning of earlier
    turns out, so that a prefix rendered alone is not the beginning of the whole."""

    def __init__(self, *, strips: bool = False, dead: bool = False) -> None:
        self.calls, self.strips, self.dead = 0, strips, dead

    async def tokens(
        self, model: str | None, messages: Sequence[Mapping[str, Any]], tools: Any, *, answer: bool
    ) -> Sequence[int] | None:
        self.calls += 1
        if self.dead:
            return None
        shown = list(messages)
        if self.strips:
            shown = [{**m, "reasoning_content": None} for m in shown[:-1]] + shown[-1:]
        return render(shown, tools, generate=answer).tokens

    async def begin(
        self, model: str | None, messages: Sequence[Mapping[str, Any]], tools: Any, whole: Sequence[int]
    ) -> int | None:
        found = await self.tokens(model, messages, tools, answer=False)
        return len(found) if found is not None and list(whole[: len(found)]) == list(found) else None

    async def length(self, model: str | None, prompt: str) -> int | None:
        self.calls += 1
        return None if self.dead else len(text_tokens(prompt))


def conversation(messages: list[dict[str, Any]], tools: Any = None) -> dialects.Conversation:
    made = dialects.read("chat", {"model": "m", "messages": messages, "tools": tools}, SALT)
    assert made is not None
    return made


def fetched(offsets: Offsets, asked: dialects.Conversation, engine: Engine) -> Places | None:
    return asyncio.run(offsets.fetch(asked, engine))


MESSAGES = st.lists(
    st.builds(dict, role=st.sampled_from(["user", "assistant"]), content=st.text(max_size=30)), min_size=1, max_size=6
)


@given(MESSAGES, st.booleans(), st.booleans())
def test_places_are_those_of_the_template(messages: list[dict[str, Any]], tools: bool, system: bool) -> None:
    listed = [*([{"role": "system", "content": "be kind to all"}] if system else []), *messages]
    defined = TOOLS if tools else None
    offsets = Offsets()
    places = fetched(offsets, conversation(listed, defined), Engine())
    truth = render(listed, defined)
    assert places is not None
    assert places.whole
    assert places.total == len(truth.tokens)
    assert list(places.ends)[bool(defined) :] == [end for _, end in truth.messages]
    assert places.tools == ((0, truth.tools) if tools else None)


def test_a_conversation_that_goes_on_asks_for_what_is_new_alone() -> None:
    offsets, engine = Offsets(), Engine()
    messages = [{"role": "system", "content": "be kind"}, {"role": "user", "content": "a"}]
    fetched(offsets, conversation(messages), engine)
    before = engine.calls
    messages += [{"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}]
    known = offsets.known(conversation(messages))
    assert known is not None
    assert known.open
    assert known.ends[:2] == tuple(end for _, end in render(messages).messages)[:2]
    fetched(offsets, conversation(messages), engine)
    assert engine.calls - before == 3  # the whole, and two new units


def test_a_prefix_that_does_not_begin_the_whole_is_not_taken() -> None:
    messages = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b", "reasoning_content": "let me think"},
        {"role": "user", "content": "c"},
    ]
    places = fetched(Offsets(), conversation(messages), Engine(strips=True))
    assert places is not None
    assert places.ends[1] is None  # the assistant's message alone is rendered with its reasoning
    assert places.ends[0] is not None


def test_the_same_prompt_of_several_at_once_is_asked_once_and_known_to_all() -> None:
    class Slow(Engine):
        async def tokens(self, *given: Any, **named: Any) -> Sequence[int] | None:
            await asyncio.sleep(0)
            return await super().tokens(*given, **named)

    asked = conversation([{"role": "user", "content": "the same for all"}])

    async def main(engine: Engine, offsets: Offsets) -> list[Places | None]:
        waiting = [asyncio.create_task(offsets.fetch(asked, engine)) for _ in range(4)]
        await asyncio.sleep(0)
        waiting[1].cancel()  # nobody else's affair
        return await asyncio.gather(*waiting[:1], *waiting[2:])

    one, several = Slow(), Slow()
    alone = fetched(Offsets(), asked, one)
    assert alone is not None
    assert asyncio.run(main(several, Offsets())) == [alone] * 3
    assert several.calls == one.calls
    assert asyncio.run(main(Slow(dead=True), Offsets())) == [None] * 3


def test_an_engine_that_cannot_say_leaves_it_unknown() -> None:
    offsets = Offsets()
    asked = conversation([{"role": "user", "content": "a"}])
    assert fetched(offsets, asked, Engine(dead=True)) is None
    assert offsets.known(asked) is None
    assert offsets.counts.unknown == 1


def test_spans_follow_kinds_and_marks_take_their_tokens_out() -> None:
    messages = [
        {"role": "system", "content": "be kind"},
        {"role": "user", "content": "read this: a b c d"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": "c1", "function": {"name": "grep", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "found"},
    ]
    asked = conversation(messages, TOOLS)
    places = fetched(Offsets(), asked, Engine())
    assert places is not None
    found = located(asked, places, [Mark("document", "message", 1, 2, None, {"name": "repo"})]).spans
    assert [span.kind for span in found] == ["tools", "system", "document", "turn", "tool_result", "turn", "output"]
    assert found[4].attributes == {"tool": "grep"}
    assert found[2].attributes == {"name": "repo"}
    starts = [span.start for span in found]
    assert starts == sorted(starts)
    assert all(a.end == b.start for a, b in pairwise(found))
    assert found[-1].end is None
    tokens = located(asked, places, [Mark("scratchpad", "token", 3, 5)]).spans
    assert any((span.kind, span.start, span.end) == ("scratchpad", 3, 5) for span in tokens)


def test_a_part_of_a_message_has_no_place_that_is_known() -> None:
    asked = conversation([{"role": "user", "content": "a"}])
    places = fetched(Offsets(), asked, Engine())
    assert places is not None
    assert located(asked, places, [Mark("scratchpad", "message", 0, 1, part=2)]).warned == (POSITION_UNKNOWN,)


@given(
    MESSAGES,
    st.lists(st.tuples(st.integers(-1, 8), st.integers(-1, 8), st.sampled_from(["message", "token"])), max_size=5),
)
def test_spans_never_overlap_and_stay_in_the_prompt(messages: list[dict[str, Any]], marks: list[Any]) -> None:
    asked = conversation(messages)
    places = fetched(Offsets(), asked, Engine())
    assert places is not None
    spans = located(asked, places, [Mark("document", unit, start, end) for start, end, unit in marks]).spans
    upto = 0
    for span in spans[:-1]:
        assert span.end is not None
        assert upto <= span.start < span.end <= places.total
        upto = span.end


TALK = [{"role": "system", "content": "be kind to all"}, {"role": "user", "content": "who is there"}]


class Gated(Engine):
    """One that answers once it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()

    async def tokens(self, *args: Any, **settings: Any) -> Sequence[int] | None:
        await self.gate.wait()
        return await super().tokens(*args, **settings)


def test_who_asks_for_the_same_at_one_moment_gets_the_same() -> None:
    async def all_of_them() -> tuple[list[Any], int]:
        offsets, engine = Offsets(), Gated()
        asked = [asyncio.create_task(offsets.fetch(conversation(TALK), engine)) for _ in range(3)]
        await asyncio.sleep(0)
        engine.gate.set()
        found = await asyncio.gather(*asked)
        assert offsets.counts.shared == 2
        return found, engine.calls

    found, calls = asyncio.run(all_of_them())
    assert found[0] is not None
    assert found[0].whole
    assert found[1] == found[2] == found[0]
    alone = Engine()
    asyncio.run(Offsets().fetch(conversation(TALK), alone))
    assert calls == alone.calls


def test_another_model_has_tokens_of_its_own() -> None:
    async def both() -> list[Any]:
        offsets, engine = Offsets(), Gated()
        each = [conversation(TALK), replace(conversation(TALK), model="another")]
        asked = [asyncio.create_task(offsets.fetch(one, engine)) for one in each]
        await asyncio.sleep(0)
        engine.gate.set()
        assert offsets.counts.shared == 0
        await asyncio.gather(*asked)
        return [offsets.known(one) for one in each]

    assert None not in asyncio.run(both())


def test_whoever_waits_for_one_that_breaks_off_waits_no_longer() -> None:
    async def both() -> object:
        offsets, engine = Offsets(), Gated()
        first, second = (asyncio.create_task(offsets.fetch(conversation(TALK), engine)) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()
        assert await second is None
        engine.gate.set()
        return await offsets.fetch(conversation(TALK), engine)

    assert asyncio.run(both()) is not None
