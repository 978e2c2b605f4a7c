"""What a client is told of its hints is what has become of them: `accepted` only where an engine hears.

Real gateways in front of real simulated engines, with a channel, without one, and with one at which nobody listens.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.service.test_edge_refusals import hashed
from tests.service.through import until
from tests.simulated.running import running

PATH = "/v1/chat/completions"
BODY = {"model": "sim", "max_tokens": 2, "messages": [{"role": "user", "content": "Where does the parser begin? " * 9}]}


def told(at: str, session: str = "s", **more: Any) -> str:
    """The status and reason of a request, once the places of its messages are known: the second time they are."""
    headers = {"x-session-id": session, **more.pop("headers", {})}
    answer = httpx.post(at + PATH, json={**BODY, **more}, headers=headers, timeout=30)
    return answer.headers["x-kvp-decision"].rpartition("status=")[2]


def counted(at: str, status: str) -> float:
    rows = httpx.get(f"{at}/metrics", timeout=30).text.splitlines()
    return sum(float(row.split()[-1]) for row in rows if row.startswith(f'kvpolicy_hints_total{{status="{status}"}}'))


def test_accepted_is_said_where_the_engine_hears_it(tmp_path: Path) -> None:
    at = f"unix:{tmp_path}/c"
    with (
        running("engine", "--blocks", "256", "--channel", at) as engine,
        running("serve", "--upstream", engine, "--channel", at) as url,
    ):
        assert until(lambda: told(url), "accepted") == "accepted"
        assert counted(url, "accepted") >= 1
        assert 'kvpolicy_channel_up{engine="' + engine + '"} 1.0' in httpx.get(f"{url}/metrics").text
        row = {"event": "tool_call", "session": "s", "tool": "grep"}
        hint = httpx.post(f"{url}/v1/events", json=row, timeout=30).json()["hints"][0]
        assert (hint["status"], hint["reason"], hint["heard"]) == ("accepted", None, 1)
        refused = httpx.post(url + PATH, json={**BODY, "max_tokens": -1}, headers={"x-session-id": "s"}, timeout=30)
        assert refused.status_code == 400
        assert refused.headers["x-kvp-decision"].endswith("status=ignored;reason=refused")


def test_without_a_channel_nobody_claims_that_an_engine_took_it() -> None:
    with running("engine", "--blocks", "256") as engine, running("serve", "--upstream", engine) as url:
        assert told(url) == "ignored;reason=no_channel"  # its plan comes after it, and there is no way for that
        assert until(lambda: told(url), "unknown;reason=no_channel") == "unknown;reason=no_channel"
        assert counted(url, "accepted") == 0
        assert counted(url, "unknown") >= 1
        row = {"event": "tool_call", "session": "s", "tool": "grep"}
        hint = httpx.post(f"{url}/v1/events", json=row, timeout=30).json()["hints"][0]
        assert (hint["status"], hint["heard"]) == ("accepted", 0)
        assert "no engine" in hint["reason"]


def test_a_channel_at_which_nobody_listens_is_none(tmp_path: Path) -> None:
    with (
        running("engine", "--blocks", "256") as engine,
        running("serve", "--upstream", engine, "--channel", f"unix:{tmp_path}/nobody") as url,
    ):
        assert told(url) == "deferred;reason=channel_down"
        assert until(lambda: told(url), "unknown;reason=channel_down") == "unknown;reason=channel_down"


@pytest.mark.parametrize("mode", ["shadow", "off"])
def test_what_is_only_watched_is_ignored(mode: str, tmp_path: Path) -> None:
    at = f"unix:{tmp_path}/c"
    with (
        running("engine", "--blocks", "256", "--channel", at) as engine,
        running("serve", "--upstream", engine, "--channel", at, "--mode", mode) as url,
    ):
        for _ in range(2):
            assert told(url) == f"ignored;reason={mode}"
        assert until(lambda: told(url), f"ignored;reason={mode}") == f"ignored;reason={mode}"


def test_a_body_that_nobody_can_read_and_a_wish_above_the_caps(tmp_path: Path) -> None:
    at = f"unix:{tmp_path}/c"
    with running("engine", "--blocks", "256", "--channel", at) as engine:
        settings = tmp_path / "kvp.toml"
        (tmp_path / "p.kvp").write_text("policy p\nturn { priority: 90 }\n")
        settings.write_text(
            f'[[upstream]]\nurl = "{engine}"\nchannel = "{at}"\n[[tenant]]\nname = "t"\nkeys = ["{hashed("k")}"]\n'
            f'caps = {{ max_priority = 10 }}\n[policy]\nname = "{tmp_path}/p.kvp"\n'
        )
        key = {"x-api-key": "k"}
        with running("serve", "--config", str(settings)) as url:
            answer = httpx.post(url + PATH, json={"model": "sim", "messages": "none"}, headers=key, timeout=30)
            assert answer.headers["x-kvp-decision"].endswith("status=ignored;reason=unread")
            wish = {**key, "x-kvp-context": 'agent="a"'}
            assert until(lambda: told(url, headers=dict(wish)), "clipped;reason=caps") == "clipped;reason=caps"
