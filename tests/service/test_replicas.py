"""Several gateways over one Redis: they agree on runs, policies, workflows, salts; and go on where Redis does not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.service.test_edge_refusals import hashed
from tests.service.through import Through, until
from tests.simulated.running import running
from tests.store.servers import BINARY, Server

pytestmark = pytest.mark.skipif(BINARY is None, reason="redis-server is not installed")

CALLS = [{"id": "c1", "type": "function", "function": {"name": "grep", "arguments": "{}"}}]
LONG = " ".join(f"word{number}" for number in range(200))


class Replicas:
    """Gateways over one Redis in front of one engine."""

    def __init__(self, stack: ExitStack, folder: Path) -> None:
        self.stack, self.folder = stack, folder
        self.redis = Server(folder / "redis").start()
        stack.callback(self.redis.kill)
        self.channel = f"unix:{folder}/channel"
        self.engine = stack.enter_context(
            running("engine", "--blocks", "400", "--decode-s", "0.0005", "--channel", self.channel)
        )
        self.settings = folder / "kvp.toml"
        self.settings.write_text(
            f'[[upstream]]\nurl = "{self.engine}"\nchannel = "{self.channel}"\n[store]\nredis = "{self.redis.url}"\n'
            "[limits]\ndecide_within_s = 5.0\n"  # this machine may be slow: that is not what is tested here
        )

    def start(self) -> Through:
        """One more."""
        at = self.stack.enter_context(running("serve", "--config", str(self.settings)))
        return Through(at, self.engine)


@contextmanager
def replicas(folder: Path) -> Iterator[Replicas]:
    with ExitStack() as stack:
        yield Replicas(stack, folder)


def ask(gateway: Through, session: str, messages: list[dict[str, Any]], **reply: Any) -> httpx.Response:
    body = {"model": "sim", "messages": messages, "max_tokens": 8, **reply}
    headers = {"x-session-id": session}
    answer = httpx.post(f"{gateway.url}/v1/chat/completions", json=body, headers=headers, timeout=60)
    assert answer.status_code == 200
    return answer


def cached(answer: httpx.Response) -> int:
    return answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"]


def phase_by_plan(gateway: Through, session: str, key: dict[str, str] | None = None) -> int | None:
    """What this replica's state makes of a turn of the session: coding_agent ranks it 60 while its tool runs."""
    row = {"id": "probe", "owner": {"session": session}, "model": "m", "block_size": 16, "tokens": 64,
           "spans": [{"kind": "turn", "start": 0, "end": 64}]}  # fmt: skip
    rows = httpx.post(f"{gateway.url}/v1/plan", json={"request": row}, headers=key, timeout=30).json()["directives"]
    return rows[0]["priority"] if rows else None


def test_replicas_agree_also_with_one_that_starts_later(tmp_path: Path) -> None:
    with replicas(tmp_path) as made:
        one, two = made.start(), made.start()
        messages = [{"role": "system", "content": LONG}, {"role": "user", "content": "find it"}]
        first = ask(one, "s", messages, sim_reply={"content": "let me look", "tool_calls": CALLS})
        # the tool call that one saw pass is known to two
        assert one.phase("tool_pause", "s") == "tool_pause"
        assert until(lambda: phase_by_plan(two, "s"), 60) == 60
        # an event that is told two reaches what one holds
        event = {"event": "tool_result", "session": "s", "call": "c1"}
        hints = httpx.post(f"{two.url}/v1/events", json=event, timeout=30).json()["hints"]
        assert hints[0]["status"] == "accepted"
        assert one.phase("running", "s") == "running"
        # the next request may go to two: salts are the same, and one lets go
        messages += [first.json()["choices"][0]["message"], {"role": "tool", "tool_call_id": "c1", "content": "found"}]
        assert cached(ask(two, "s", messages)) >= 200
        assert until(lambda: len(one.owners("s")), 0) == 0
        assert until(lambda: len(two.owners("s")), 1) == 1
        # policies and workflows
        pushed = {"name": "coding_agent", "text": "policy pushed\nturn { priority: 77 }\n"}
        assert httpx.post(f"{one.url}/admin/policies", json=pushed, timeout=30).status_code == 200
        assert until(lambda: phase_by_plan(two, "t"), 77) == 77
        graph = {"nodes": ["a", "b"], "edges": [["a", "b"]]}
        assert httpx.put(f"{two.url}/v1/workflows/w", json=graph, timeout=30).status_code == 201
        late = made.start()
        assert phase_by_plan(late, "t") == 77
        assert until(lambda: httpx.get(f"{late.url}/v1/workflows/w", timeout=30).status_code, 200) == 200
        assert until(lambda: httpx.get(f"{one.url}/v1/workflows/w", timeout=30).status_code, 200, 15) == 200
        back = httpx.post(f"{two.url}/admin/policies", json={"name": "coding_agent", "rollback": 1}, timeout=30)
        assert back.status_code == 200
        assert until(lambda: phase_by_plan(one, "t"), None) is None


def test_a_policy_that_a_tenant_has_since_is_one_in_all_replicas(tmp_path: Path) -> None:
    with replicas(tmp_path) as made:
        own, key = tmp_path / "own.kvp", {"x-api-key": "a"}
        own.write_text("policy own\nturn { priority: 71 }\n")
        head = made.settings.read_text() + f'[[tenant]]\nname = "a"\nkeys = ["{hashed("a")}"]\n'
        made.settings.write_text(head)
        one, two = made.start(), made.start()
        made.settings.write_text(f'{head}policy = "{own}"\n')
        for each in (one, two):
            assert httpx.post(f"{each.url}/admin/tenants", json={"reload": True}, timeout=30).status_code == 200
            assert phase_by_plan(each, "s", key) == 71
        pushed = {"name": str(own), "text": "policy own\nturn { priority: 72 }\n"}
        assert httpx.post(f"{one.url}/admin/policies", json=pushed, timeout=30).status_code == 200
        assert until(lambda: phase_by_plan(two, "s", key), 72) == 72


def test_two_replicas_grant_one_cap_between_them(tmp_path: Path) -> None:
    """As soon as both are known to be there; one alone grants it whole."""
    with replicas(tmp_path) as made:
        tenant = f'[[tenant]]\nname = "a"\nkeys = ["{hashed("a")}"]\ncaps = {{ requests_per_minute = 4 }}\n'
        made.settings.write_text(made.settings.read_text() + tenant)

        def granted(*gateways: Through) -> int:
            """Requests let through, of more than may be; the clock is the store's, and a minute fills slowly."""
            asked = [httpx.get(f"{at.url}/v1/models", headers={"x-api-key": "a"}, timeout=30) for at in gateways * 6]
            assert {answer.status_code for answer in asked} == {200, 429}
            return sum(answer.status_code == 200 for answer in asked)

        assert granted(made.start()) in (4, 5)
        two = made.start(), made.start()
        assert until(lambda: [each.counter("kvpolicy_store_replicas") for each in two], [3.0, 3.0]) == [3.0, 3.0]
        assert granted(*two) in (2, 3, 4)  # a third of four each, begun or whole


def test_a_last_request_ends_what_the_engine_holds_for_its_session(tmp_path: Path) -> None:
    """`final`: the event is told through Redis, and its engine hears of it when it comes back."""
    with replicas(tmp_path) as made:
        one = made.start()
        messages = [{"role": "system", "content": LONG}, {"role": "user", "content": f"find {LONG[::-1]}"}]

        def keeps(answer: httpx.Response) -> bool | None:
            """Whether the engine keeps a request's turn; None where it does not say (yet)."""
            held = answer.headers["x-kvp-decision"].split('"')[1]
            found = httpx.get(f"{one.url}/v1/explain/{held}/blocks/3", timeout=30)
            told = found.json() if found.is_success else {}
            turns = [claim for claim in told.get("claims", ()) if claim["kind"] == "turn" and not claim["dropped"]]
            return bool(turns) if told.get("answered") else None

        for session in ("ends", "stays"):
            assert until(lambda session=session: keeps(ask(one, session, messages)), True) is True
        stays, ends = ask(one, "stays", messages), ask(one, "ends", messages, kvp={"final": True})
        assert until(lambda: keeps(ends), False) is False
        assert until(lambda: keeps(stays), True) is True


def test_decisions_go_on_while_redis_hangs_and_when_it_is_gone(tmp_path: Path) -> None:
    with replicas(tmp_path) as made:
        one = made.start()
        messages = [{"role": "system", "content": LONG}, {"role": "user", "content": "find it"}]
        ask(one, "a", messages)
        made.redis.hang()
        for number in range(5):
            answer = ask(one, f"hung-{number}", messages)
            assert "policy=" in answer.headers["x-kvp-decision"]
            assert cached(answer) >= 200  # the same salt as before
        assert one.counter("kvpolicy_replicas_total", what="late") >= 1
        assert one.phase("human_pause", "hung-4") in ("human_pause", "idle", "running")
        made.redis.go_on()
        made.redis.kill()
        for number in range(3):
            assert "policy=" in ask(one, f"gone-{number}", messages).headers["x-kvp-decision"]
        assert until(lambda: len(one.owners("gone-2")), 1) == 1
        made.redis.start()

        def healed() -> bool:  # it tells the new server what was in force
            with made.redis.client() as client:
                return any(b":v:" in key for key in client.keys("*"))

        assert until(healed, True)
        pushed = {"name": "coding_agent", "text": "policy pushed\nturn { priority: 77 }\n"}
        assert httpx.post(f"{one.url}/admin/policies", json=pushed, timeout=30).status_code == 200
        two = made.start()
        assert until(lambda: phase_by_plan(two, "t"), 77) == 77


def test_an_event_that_means_many_reaches_those_of_every_replica(tmp_path: Path) -> None:
    """Told to one of them, of owners that both serve: a few at a time, nobody left out."""
    with replicas(tmp_path) as made:
        one, two = made.start(), made.start()
        messages = [{"role": "system", "content": LONG}, {"role": "user", "content": "find it"}]
        with httpx.Client(timeout=60) as client:
            for number in range(40):
                said = {"x-kvp-context": f'session="s{number}", run="r"'}
                body = {"model": "sim", "messages": messages, "max_tokens": 1}
                at = (one, two)[number % 2].url
                assert client.post(f"{at}/v1/chat/completions", json=body, headers=said).status_code == 200
        for gateway in (one, two):
            assert until(lambda gateway=gateway: len(gateway.owners()), 20) == 20
        row = {"event": "tool_call", "run": "r", "tool": "grep"}
        hint = httpx.post(f"{two.url}/v1/events", json=row, timeout=30).json()["hints"][0]
        assert hint["status"] in ("accepted", "deferred") and hint["requested"] == 40
        for gateway in (one, two):
            phases = [("tool_pause", 20)]
            assert until(lambda gateway=gateway: counted(gateway), phases) == phases


def counted(gateway: Through) -> list[tuple[str, int]]:
    """How many of its owners are in which phase."""
    phases = [row["phase"] for row in gateway.owners()]
    return sorted((phase, phases.count(phase)) for phase in set(phases))
