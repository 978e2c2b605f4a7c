"""The simulated server with the clients that people use: `openai` and `anthropic`, plain and streaming."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from tests.simulated.running import running

openai = pytest.importorskip("openai")
anthropic = pytest.importorskip("anthropic")

CALLS = [{"id": "c1", "type": "function", "function": {"name": "grep", "arguments": '{"q": "x"}'}}]
LOOK = {"content": "let me look", "tool_calls": CALLS}
SYSTEM = "You keep the answers short and the reasons long. " * 12


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with running("engine", "--blocks", "400", "--decode-s", "0.0005") as at:
        yield at


@pytest.fixture
def chat(url: str):
    return openai.OpenAI(base_url=f"{url}/v1", api_key="none").chat.completions


def cached(usage) -> int:
    return usage.prompt_tokens_details.cached_tokens


def conversation(first: str) -> list[dict]:
    return [{"role": "system", "content": SYSTEM}, {"role": "user", "content": first}]


def test_an_answer_sent_back_is_found_to_its_last_full_block(chat) -> None:
    messages = conversation("one")
    answer = chat.create(model="sim", messages=messages, max_tokens=40, extra_body={"ignore_eos": True})
    assert answer.system_fingerprint == "kvp-simulated"
    messages += [answer.choices[0].message.model_dump(exclude_none=True), {"role": "user", "content": "more"}]
    again = chat.create(model="sim", messages=messages, max_tokens=1)
    whole = answer.usage.prompt_tokens + answer.usage.completion_tokens - 1  # the last token's KV is not there
    assert cached(again.usage) == whole // 16 * 16


def test_the_same_prompt_again_leaves_one_token_to_compute(chat) -> None:
    messages = conversation("two")
    first = chat.create(model="sim", messages=messages, max_tokens=1)
    second = chat.create(model="sim", messages=messages, max_tokens=1)
    assert cached(second.usage) == (first.usage.prompt_tokens - 1) // 16 * 16
    assert second.choices[0].message.content == first.choices[0].message.content


def test_a_stream_says_the_same_as_an_answer_in_one_piece(chat) -> None:
    ask = {"model": "sim", "messages": conversation("three"), "extra_body": {"sim_reply": LOOK}}
    whole = chat.create(**ask).choices[0]
    text, name, arguments, finish = "", "", "", None
    for event in chat.create(**ask, stream=True):
        delta = event.choices[0].delta
        text += delta.content or ""
        for call in delta.tool_calls or ():
            name += call.function.name or ""
            arguments += call.function.arguments or ""
        finish = event.choices[0].finish_reason or finish
    assert (text, name, arguments) == ("let me look", "grep", '{"q": "x"}')
    assert (whole.message.content, whole.message.tool_calls[0].function.arguments) == (text, arguments)
    assert finish == whole.finish_reason == "tool_calls"


def test_responses_stream_and_whole(url: str) -> None:
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="none").responses
    ask = {"model": "sim", "instructions": SYSTEM, "input": "four", "extra_body": {"sim_reply": LOOK}}
    whole = client.create(**ask)
    with client.stream(**ask) as events:
        kinds = [event.type for event in events]
        final = events.get_final_response()
    assert whole.output_text == final.output_text == "let me look"
    assert [item.type for item in final.output] == ["message", "function_call"]
    assert final.output[1].arguments == '{"q": "x"}'
    assert kinds[0] == "response.created"
    assert kinds[-1] == "response.completed"
    assert final.usage.input_tokens_details.cached_tokens > 0


def test_anthropic_messages_stream_and_whole(url: str) -> None:
    client = anthropic.Anthropic(base_url=url, api_key="none").messages
    ask = {
        "model": "sim",
        "max_tokens": 50,
        "system": "Be kind. " + SYSTEM,
        "messages": [{"role": "user", "content": "five"}],
    }
    whole = client.create(**ask, extra_body={"sim_reply": LOOK})
    with client.stream(**ask, extra_body={"sim_reply": LOOK}) as events:
        final = events.get_final_message()
    assert [block.type for block in whole.content] == [block.type for block in final.content] == ["text", "tool_use"]
    assert final.content[1].input == whole.content[1].input == {"q": "x"}
    assert final.stop_reason == "tool_use"
    assert whole.usage.cache_read_input_tokens == 0
    assert final.usage.cache_read_input_tokens > 0
    turns = [*ask["messages"], {"role": "assistant", "content": [b.model_dump() for b in whole.content]}]
    result = {"type": "tool_result", "tool_use_id": "c1", "content": "found"}
    following = client.create(**{**ask, "messages": [*turns, {"role": "user", "content": [result]}]})
    made = whole.usage.input_tokens + whole.usage.output_tokens - 1
    assert following.usage.cache_read_input_tokens == made // 16 * 16


@pytest.mark.parametrize(
    ("body", "made", "finish"),
    [
        ({}, 16, "stop"),
        ({"max_tokens": 3000}, 16, "stop"),
        ({"max_tokens": 16}, 16, "stop"),
        ({"max_tokens": 15}, 15, "length"),
        ({"max_tokens": 1}, 1, "length"),
        ({"max_tokens": 200, "ignore_eos": True}, 200, "length"),
        ({"max_tokens": 5, "ignore_eos": True}, 5, "length"),
        ({"ignore_eos": True}, 16, "length"),
        ({"max_tokens": 200, "ignore_eos": False}, 16, "stop"),
        ({"max_tokens": 200, "min_tokens": 60}, 61, "stop"),
        ({"max_tokens": 60, "min_tokens": 60}, 60, "length"),
        ({"min_tokens": 3}, 16, "stop"),
        ({"min_tokens": 40, "ignore_eos": True}, 40, "length"),
    ],
)
def test_filler_ends_by_itself_unless_it_may_not(url: str, body: dict, made: int, finish: str) -> None:
    messages = [{"role": "user", "content": "say something"}]
    limits = {name: value for name, value in body.items() if name != "max_tokens"}
    most = {"max_tokens": body["max_tokens"]} if "max_tokens" in body else {}
    chat = httpx.post(f"{url}/v1/chat/completions", json={"messages": messages, **body}).json()
    assert (chat["usage"]["completion_tokens"], chat["choices"][0]["finish_reason"]) == (made, finish)
    text = httpx.post(f"{url}/v1/completions", json={"prompt": "say something", **body}).json()
    assert (text["usage"]["completion_tokens"], text["choices"][0]["finish_reason"]) == (made, finish)
    message = httpx.post(f"{url}/v1/messages", json={"messages": messages, **body}).json()
    ended = "end_turn" if finish == "stop" else "max_tokens"
    assert (message["usage"]["output_tokens"], message["stop_reason"]) == (made, ended)
    most = {"max_output_tokens": most["max_tokens"]} if most else {}
    answer = httpx.post(f"{url}/v1/responses", json={"input": "say something", **limits, **most}).json()
    assert answer["usage"]["output_tokens"] == made
    assert answer["status"] == ("completed" if finish == "stop" else "incomplete")


def test_what_is_pressed_out_is_not_found_again() -> None:
    with running("engine", "--blocks", "40", "--decode-s", "0") as url:
        chat = openai.OpenAI(base_url=f"{url}/v1", api_key="none").chat.completions
        messages = conversation("six")
        for expected in (0, None):
            usage = chat.create(model="sim", messages=messages, max_tokens=1).usage
            assert (cached(usage) == 0) == (expected == 0)
        for number in range(12):
            flood = [{"role": "user", "content": f"{number} other words entirely " * 20}]
            chat.create(model="sim", messages=flood, max_tokens=1)
        assert cached(chat.create(model="sim", messages=messages, max_tokens=1).usage) == 0


def test_a_client_that_leaves_lets_go_of_its_blocks() -> None:
    with running("engine", "--blocks", "100", "--decode-s", "0.05") as url:
        body = {"model": "sim", "messages": [{"role": "user", "content": "seven"}], "max_tokens": 500, "stream": True}
        body["ignore_eos"] = True
        with httpx.stream("POST", f"{url}/v1/chat/completions", json=body) as answer:
            lines = answer.iter_lines()  # kept: an iterator that goes away ends the stream
            next(lines)
            assert httpx.get(f"{url}/sim/blocks").json()["available"] < 100
        for _ in range(100):
            if httpx.get(f"{url}/sim/blocks").json()["available"] == 100:
                break
        assert httpx.get(f"{url}/sim/blocks").json()["available"] == 100
        assert "kvpolicy_sim_requests_cancelled_total" in httpx.get(f"{url}/metrics").text


@pytest.mark.parametrize(
    ("route", "body", "said"),
    [
        ("chat/completions", {"messages": []}, "messages must be a list"),
        ("chat/completions", {"messages": [{"role": "ghost"}]}, "messages[0].role"),
        ("chat/completions", {"messages": [{"role": "user", "content": "x " * 9000}]}, "the longest possible is"),
        ("chat/completions", {"messages": [{"role": "user"}], "max_tokens": 0}, "max_tokens"),
        ("chat/completions", {"messages": [{"role": "user"}], "max_tokens": 10**12}, "the longest possible is"),
        ("completions", {"prompt": "x", "max_tokens": 10**12}, "the longest possible is"),
        ("responses", {"input": "x", "max_output_tokens": 10**12}, "the longest possible is"),
        ("messages", {"messages": [{"role": "user", "content": "x"}], "max_tokens": 10**12}, "the longest possible is"),
        ("chat/completions", {"messages": [{"role": "assistant", "tool_calls": 5}]}, "messages[0].tool_calls must be"),
        ("completions", {"prompt": "x", "min_tokens": 10**12}, "the longest possible is"),
        ("completions", {"prompt": "x", "min_tokens": -1}, "min_tokens must be a number of at least 0"),
        ("completions", {"prompt": "x", "min_tokens": 9, "max_tokens": 8}, "min_tokens must be at most max_tokens, 8"),
        ("messages", {"messages": [{"role": "user", "content": "x"}], "ignore_eos": 1}, "ignore_eos must be true or"),
        ("completions", {"prompt": {"a": 1}}, "prompt must be"),
        ("responses", {"input": 7}, "input must be"),
        ("messages", {"messages": "hello"}, "messages must be a list"),
    ],
)
def test_what_cannot_be_served_is_refused_in_words(url: str, route: str, body: dict, said: str) -> None:
    answer = httpx.post(f"{url}/v1/{route}", json=body)
    assert answer.status_code == 400
    assert said in answer.json()["error"]["message"]
    assert answer.headers["x-kvp-simulated"] == "1"


def test_bytes_that_are_no_json_are_refused(url: str) -> None:
    answer = httpx.post(f"{url}/v1/chat/completions", content=b"\xff{")
    assert answer.status_code == 400
    assert "not JSON" in answer.json()["error"]["message"]
