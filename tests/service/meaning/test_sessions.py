"""Whose request it is: named sessions, chains without a name, rewritten histories, sides and forks."""

from __future__ import annotations

from typing import Any

from kvpolicy.service.meaning import dialects
from kvpolicy.service.meaning.annotations import Context
from kvpolicy.service.meaning.dialects import chat_value, digest_of
from kvpolicy.service.meaning.sessions import ONCE, Arrived, Sessions

SALT = b"k" * 32
SYSTEM = {"role": "system", "content": "be kind"}


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def said(text: str, *calls: tuple[str, str]) -> dict[str, Any]:
    made: dict[str, Any] = {"role": "assistant", "content": text}
    if calls:
        made["tool_calls"] = [
            {"id": i, "type": "function", "function": {"name": n, "arguments": "{}"}} for n, i in calls
        ]
    return made


def result(call: str, text: str = "found") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call, "content": text}


class Client:
    """Sends requests and their answers into one table of sessions."""

    def __init__(self, sessions: Sessions, tenant: str = "t", **context: Any) -> None:
        self.sessions, self.tenant, self.context = sessions, tenant, Context(**context)

    def ask(self, *messages: dict[str, Any], answer: dict[str, Any] | None = None, now: float = 0.0) -> Arrived:
        conversation = dialects.read("chat", {"model": "m", "messages": list(messages)}, SALT)
        assert conversation is not None
        arrived = self.sessions.arrive(self.tenant, self.context, conversation, now)
        if answer is not None:
            digest = digest_of(conversation.units[-1].digest, SALT, "assistant", chat_value(answer))
            calls = {c["id"]: c["function"]["name"] for c in answer.get("tool_calls", ())}
            self.sessions.answered(self.tenant, arrived.chain, [digest], calls, now)
        return arrived


def test_a_conversation_without_a_name_is_one_session() -> None:
    client = Client(Sessions())
    first = client.ask(SYSTEM, user("a"), answer=said("b"))
    second = client.ask(SYSTEM, user("a"), said("b"), user("c"), answer=said("d"))
    third = client.ask(SYSTEM, user("a"), said("b"), user("c"), said("d"), user("e"))
    assert first.new
    assert first.owner == second.owner == third.owner
    assert not second.new


def test_it_goes_on_also_where_the_answer_was_not_seen() -> None:
    client = Client(Sessions())
    first = client.ask(SYSTEM, user("a"))
    assert client.ask(SYSTEM, user("a"), said("whatever"), user("c")).owner == first.owner


def test_two_users_with_one_system_prompt_are_two() -> None:
    client = Client(Sessions())
    one = client.ask(SYSTEM, user("a"), answer=said("b"))
    two = client.ask(SYSTEM, user("x"), answer=said("y"))
    assert one.owner != two.owner
    assert client.ask(SYSTEM, user("a"), said("b"), user("c")).owner == one.owner
    assert client.ask(SYSTEM, user("x"), said("y"), user("z")).owner == two.owner


def test_an_earlier_state_continued_again_is_a_chain_of_its_own() -> None:
    client = Client(Sessions())
    first = client.ask(SYSTEM, user("a"), answer=said("b"))
    client.ask(SYSTEM, user("a"), said("b"), user("c"), answer=said("d"))
    fork = client.ask(SYSTEM, user("a"), said("b"), user("other"))
    assert fork.new
    assert fork.owner != first.owner


def test_another_tenant_or_model_never_joins() -> None:
    sessions = Sessions()
    one = Client(sessions, "a").ask(SYSTEM, user("a"), answer=said("b"))
    two = Client(sessions, "b").ask(SYSTEM, user("a"), said("b"), user("c"))
    assert two.new
    assert (one.owner.tenant, two.owner.tenant) == ("a", "b")
    other = dialects.read("chat", {"model": "n", "messages": [SYSTEM, user("a"), said("b"), user("c")]}, SALT)
    assert other is not None
    assert sessions.arrive("a", Context(), other, 0.0).new


def test_a_client_cannot_take_a_nameless_chain_by_its_name() -> None:
    sessions = Sessions()
    one = Client(sessions).ask(SYSTEM, user("a"), answer=said("b"))
    thief = Client(sessions, session=one.owner.session).ask(SYSTEM, user("mine"))
    assert thief.owner != one.owner


def test_results_are_those_of_open_calls() -> None:
    client = Client(Sessions(), session="s")
    calls = said("", ("grep", "c1"), ("ls", "c2"))
    client.ask(SYSTEM, user("a"), answer=calls)
    arrived = client.ask(SYSTEM, user("a"), calls, result("c2"), result("c9"))
    assert arrived.results == ("c2",)


def test_a_shorter_history_with_the_same_head_is_a_compaction() -> None:
    client = Client(Sessions(), session="s")
    client.ask(SYSTEM, user("a"), answer=said("b"))
    client.ask(SYSTEM, user("a"), said("b"), user("c"), answer=said("d"))
    arrived = client.ask(SYSTEM, user("in short: a and c"))
    assert arrived.compacted
    assert arrived.diverged == 0
    assert not client.ask(SYSTEM, user("in short: a and c"), said("ok"), user("go on")).compacted


def test_an_edited_message_is_told_by_its_place() -> None:
    client = Client(Sessions(), session="s")
    client.ask(SYSTEM, user("a"))
    client.ask(SYSTEM, user("a"), said("b"), user("c"))
    arrived = client.ask(SYSTEM, user("a"), said("b, edited"), user("c"), said("d"), user("e"))
    assert arrived.diverged is not None
    assert not arrived.compacted


def test_names_that_never_repeat_are_told() -> None:
    sessions = Sessions()
    history = [SYSTEM, user("a")]
    warned: list[str] = []
    for turn in range(120):
        warned += Client(sessions, session=f"request-{turn}").ask(*history, answer=said(str(turn))).warned
        history += [said(str(turn)), user("more")]
    assert ONCE in warned
    steady = Sessions()
    history = [SYSTEM, user("a")]
    for turn in range(120):
        assert not Client(steady, session="s").ask(*history, answer=said(str(turn))).warned
        history += [said(str(turn)), user("more")]


def test_what_was_silent_for_a_day_is_forgotten_and_the_number_is_bounded() -> None:
    sessions = Sessions(most=10)
    for number in range(50):
        Client(sessions, session=str(number)).ask(SYSTEM, user("a"), now=float(number))
    assert len(sessions) == 10
    sessions.forget(49.0 + 24 * 3600)
    assert len(sessions) == 0
