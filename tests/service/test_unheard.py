"""Plans that change between requests need a way to the engine: one is given on the command line, and missed aloud."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from kvpolicy.cli.serve import add_arguments, read
from kvpolicy.faults import InputFault
from kvpolicy.policy.checked import open_policy
from kvpolicy.service.config import checked_config
from kvpolicy.service.unheard import unheard, without_channel
from tests.service.through import until
from tests.simulated.running import running, started

PATH = "/v1/chat/completions"
TEXT = "Where does the parser of the policies begin to read its text, and where does it end? " * 3
CALL = {
    "model": "sim",
    "messages": [{"role": "user", "content": TEXT}],
    "sim_reply": {
        "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "grep", "arguments": "{}"}}],
    },
}


def config(*words: str) -> Any:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return read(parser.parse_args(words))


@pytest.mark.parametrize("given", ["beside", "behind"])
def test_a_hold_is_carried_out_where_the_command_line_gives_a_channel(given: str, tmp_path: Path) -> None:
    at, log = f"unix:{tmp_path}/c", tmp_path / "log"
    with started("engine", "--blocks", "512", "--channel", at) as told:
        assert told["channel"] == at
        engine = told["url"]
        options = {
            "beside": ("--upstream", engine, "--channel", at),
            "behind": ("--upstream", f"{engine},channel={at}"),
        }
        with running("serve", *options[given], log=log) as url:
            answer = httpx.post(url + PATH, json=CALL, headers={"x-session-id": "s1"}, timeout=30)
            assert "mode=enforce" in answer.headers["x-kvp-decision"]
            assert until(lambda: httpx.get(f"{engine}/sim/blocks").json()["protected"] > 0, True)
    assert "no control channel" not in log.read_text()


def test_a_gateway_without_a_channel_says_what_it_cannot_carry_out(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with running("serve", "--upstream", "http://127.0.0.1:9", log=log):
        pass
    said = log.read_text()
    assert said.count("\n") == 1, said
    assert said.startswith("policy coding_agent: what rules decide between requests") and "(paused, " in said
    assert "http://127.0.0.1:9" in said and "--channel" in said


@pytest.mark.parametrize(
    ("more", "urls"),
    [
        ({}, ("http://b",)),
        ({"policy": {"mode": "shadow"}}, ()),
        ({"policy": {"mode": "off"}, "tenant": [{"name": "t", "mode": "enforce"}]}, ("http://b",)),
    ],
)
def test_only_engines_without_a_channel_that_plans_go_to_count(more: dict[str, Any], urls: tuple[str, ...]) -> None:
    upstream = [{"url": "http://a", "channel": "unix:/c"}, {"url": "http://b"}]
    assert without_channel(checked_config({"upstream": upstream, **more}, "test")) == urls


def test_a_policy_that_never_changes_its_mind_needs_no_channel(tmp_path: Path) -> None:
    file = tmp_path / "still.kvp"
    file.write_text("policy still\nhead: system { priority: 80 }\n", encoding="utf-8")
    assert unheard(open_policy([str(file)]), ("http://a",)) is None
    file.write_text("policy loud\nhead: system when idle() > 5s { priority: 80 }\n", encoding="utf-8")
    told = unheard(open_policy([str(file)]), ("http://a",))
    assert told is not None and "between requests is not carried out at http://a (head): there" in told


def test_channels_are_given_to_engines_in_their_order() -> None:
    told = config("--upstream", "http://a", "--upstream", "http://b", "--channel", "unix:/a", "--channel", "tcp://b:1")
    assert [(each.url, each.channel) for each in told.upstream] == [("http://a", "unix:/a"), ("http://b", "tcp://b:1")]
    (one,) = config("--upstream", "http://a,channel=unix:/a,events=tcp://a:5,name=first").upstream
    assert (one.url, one.channel, one.events, one.name) == ("http://a", "unix:/a", "tcp://a:5", "first")


def test_a_channel_is_given_to_the_engine_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "serve.toml"
    file.write_text('[[upstream]]\nurl = "http://a"\nname = "n"\n', encoding="utf-8")
    (one,) = config("--config", str(file), "--channel", "unix:/a").upstream
    assert (one.name, one.channel) == ("n", "unix:/a")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--upstream", "http://a", "--upstream", "http://b", "--channel", "unix:/a"), "1 of them for 2 engines"),
        (("--upstream", "http://a,chanel=unix:/a"), "'chanel=unix:/a': one of channel, "),
        (("--upstream", "http://a,channel="), "'channel=': one of channel, "),
    ],
)
def test_what_cannot_be_meant_is_refused(words: Sequence[str], said: str) -> None:
    with pytest.raises(InputFault, match=said):
        config(*words)
