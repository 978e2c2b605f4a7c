"""The page about annotations is what the reader reads: examples, tables, lists, and each answer that it shows."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import httpx
import pytest

from kvpolicy import words
from kvpolicy.request import Owner
from kvpolicy.service.config import PolicySection
from kvpolicy.service.meaning import annotations, identity, known, sessions, spans
from kvpolicy.service.meaning.annotations import EVENT_NAMES, Context, merged
from kvpolicy.service.meaning.body_field import from_body
from kvpolicy.service.meaning.headers import from_headers
from kvpolicy.service.policies import Policies
from kvpolicy.service.tenants import Tenant
from tests.service.through import Through, through, until

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "annotations.md").read_text(encoding="utf-8")
HTTP = re.findall(r"^```http\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
JSON = re.findall(r"^```json\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
ANSWERED = re.findall(r"^\| `(x-kvp-[a-z]+): ([^`]+)` \| `([^`]+)` \|", PAGE, re.MULTILINE)
POLICY = """policy office
workflow research { agent planner, writer
  planner -> writer }
head: system { priority: 80 }
"""


def headers(block: str) -> dict[str, str]:
    return {name: value for name, _, value in (line.partition(": ") for line in block.splitlines())}


@pytest.mark.parametrize("block", HTTP)
def test_examples_of_headers_are_read_without_a_warning(block: str) -> None:
    said = from_headers(headers(block))
    assert said.warnings == ()
    assert said != annotations.NOTHING


def test_the_example_of_a_body_says_the_same_as_the_headers() -> None:
    (block,) = JSON
    body, header = from_body(json.loads(block)), from_headers(headers(HTTP[0]))
    assert body.warnings == ()
    assert (body.events, body.policy, body.mode) == (header.events, header.policy, header.mode)
    assert all(mark in body.marks for mark in header.marks)
    assert (body.context.session, body.context.node) == (header.context.session, header.context.node)
    assert merged(header, body).warned == (annotations.CONFLICT,)  # of the spans, where the body says one more


def test_every_member_of_the_context_has_its_row() -> None:
    part = PAGE[PAGE.index("| `x-kvp-context` |") : PAGE.index("`x-kvp-spans` says")]
    assert set(re.findall(r"^\| `(\w+)` \|", part, re.MULTILINE)) == {each.name for each in fields(Context)}


def test_kinds_other_names_of_events_and_session_names_are_all_there() -> None:
    part = PAGE[PAGE.index("`x-kvp-spans` says") : PAGE.index("## In the body")]
    assert all(f"`{kind}`" in part for kind in words.SPAN_KINDS)
    own = {name.replace("_", "-") for name in words.EVENTS}
    assert all(f"`{name}`" in part for name in set(EVENT_NAMES) - own)
    said = PAGE[PAGE.index("## Sessions that") : PAGE.index("## Answers")]
    for names in (
        identity.SESSION_HEADERS,
        identity.SESSION_FIELDS,
        identity.AGENT_HEADERS,
        identity.PARENT_HEADERS,
        identity.FINAL_HEADERS,
    ):
        assert all(f"`{name}`" in said for name in names)
    by_header, by_body = said.split("\n2. ")
    for part, names in ((by_header, identity.SESSION_HEADERS), (by_body, identity.SESSION_FIELDS)):
        places = [part.index(f"`{name}`") for name in names]
        assert places == sorted(places), "they count in this order"


def test_every_code_is_there() -> None:
    part = PAGE[PAGE.index("## Answers") :]
    ours = {
        *(annotations.UNKNOWN_TAG, annotations.MALFORMED, annotations.CONFLICT, annotations.TOO_MANY),
        *(known.NOT_OFFERED, known.NO_WORKFLOW, known.NO_NODE, sessions.ONCE, spans.POSITION_UNKNOWN),
    }
    assert all(re.search(rf"`{code}[`;]", part) for code in ours)


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Through]:
    file = tmp_path_factory.mktemp("policy") / "office.kvp"
    file.write_text(POLICY, encoding="utf-8")
    with through("--policy", str(file)) as made:
        yield made


def ask(gateway: Through, said: dict[str, str]) -> httpx.Response:
    body = {"model": "sim", "max_tokens": 2, "messages": [{"role": "user", "content": "Where is the parser?"}]}
    return httpx.post(f"{gateway.url}/v1/chat/completions", json=body, headers=said, timeout=60)


@pytest.mark.parametrize(("name", "value", "answer"), ANSWERED)
def test_each_answer_on_the_page_is_given(gateway: Through, name: str, value: str, answer: str) -> None:
    got = ask(gateway, {name: value})
    assert got.status_code == 200
    assert got.headers["x-kvp-warn"] == answer


def test_there_are_answers_on_the_page() -> None:
    assert len(ANSWERED) >= 10


@pytest.mark.parametrize("node", ["planner", "writer"])
def test_what_is_known_is_not_warned_of(gateway: Through, node: str) -> None:
    said = {"x-kvp-context": f'session="{node}", workflow="research", node="{node}"', "x-kvp-policy": "office"}
    assert "x-kvp-warn" not in ask(gateway, said).headers


def test_a_clients_word_cannot_break_the_answer(gateway: Through) -> None:
    said = {"x-kvp-context": r'workflow="a, b;c\"d' + "e" * 200 + '"'}
    told = ask(gateway, said).headers["x-kvp-warn"]
    assert told.startswith('UNKNOWN_WORKFLOW;workflow="a_ b;c_de') and len(told) < 120
    many = {f"x-kvp-{number}": "1" for number in range(40)}
    assert len(ask(gateway, many).headers["x-kvp-warn"].split(", ")) == 16


def test_clients_see_a_policys_name_and_not_the_operators_file(gateway: Through) -> None:
    answer = ask(gateway, {"x-session-id": "named"})
    assert 'policy="office"' in answer.headers["x-kvp-decision"]
    held = answer.headers["x-kvp-decision"].split('"')[1]
    at = f"{gateway.url}/v1/explain/{held}"
    assert until(lambda: httpx.get(at, timeout=30).status_code, 200) == 200
    assert httpx.get(at, timeout=30).json()["policy"]["name"] == "office"
    document = {"id": "r", "owner": {"session": "s"}, "model": "sim", "block_size": 16, "tokens": 16, "spans": []}
    assert httpx.post(f"{gateway.url}/v1/plan", json=document, timeout=30).json()["policy"]["name"] == "office"


def test_an_offered_policy_is_asked_for_by_its_own_name(tmp_path: Path) -> None:
    file = tmp_path / "a.kvp"
    file.write_text(POLICY, encoding="utf-8")
    policies = Policies(PolicySection(offered=(str(file),)), {}, lambda policy: None)
    for wish, had in (("office", str(file)), (str(file), str(file)), ("other", "coding_agent"), (None, "coding_agent")):
        assert policies.choose(Tenant("t"), None, Owner("t"), wish, None).version.name == had
