"""The configuration read anew in this process: what goes wrong around it has one outcome, and is tried again."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from kvpolicy.faults import KvpError
from kvpolicy.service.app import Gateway
from kvpolicy.service.assembly import assemble
from kvpolicy.service.config import Config, read_config
from kvpolicy.service.following import Following, Source, wanted
from kvpolicy.service.policies import Policies
from kvpolicy.service.stillness import STILL_S
from kvpolicy.service.tenants import hash_key

HEAD = '[[upstream]]\nurl = "http://127.0.0.1:9"\n'


class Followed:
    """A configuration's file that is followed. planted: what reading it raises; unkept: what the store does."""

    def __init__(self, file: Path, text: str) -> None:
        self.file, self.now = file, 0.0
        self.planted: Exception | None = None
        self.unkept: Exception | None = None
        self.write(text)
        config = read_config(str(file))
        self.gateway: Gateway = assemble(config)[1]
        policies = Policies(config.policy, wanted(config), lambda _: None)
        source = Source(file, self._read)
        self.following = Following(source, self.gateway, policies, self._brought, lambda: self.now)
        asyncio.run(self.following.reload())

    def write(self, text: str) -> None:
        self.file.write_text(HEAD + text)

    def reload(self) -> None:
        asyncio.run(self.following.reload())

    def due(self) -> bool:
        """Whether it is read again by itself, once the file is still."""
        if self.following.due(self.now):
            return True
        self.now += STILL_S + 0.01
        return self.following.due(self.now)

    def outcome(self) -> tuple[int, int, str | None]:
        """How often it was taken up, and was not; why it is not in force."""
        return self.following.counts["good"], self.following.counts["bad"], self.following.fault

    def _read(self) -> Config:
        if self.planted is not None:
            raise self.planted
        return read_config(str(self.file))

    async def _brought(self) -> None:
        if self.unkept is not None:
            raise self.unkept


def tenant(key: str, more: str = "") -> str:
    return f'[[tenant]]\nname = "a"\nkeys = ["{hash_key(key)}"]\n{more}\n'


def said(caplog: pytest.LogCaptureFixture, text: str) -> int:
    """How often the log warns of something."""
    return sum(text in row.getMessage() for row in caplog.records if row.levelno == logging.WARNING)


def test_what_nobody_foresaw_is_a_fault_and_tried_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    made = Followed(tmp_path / "serve.toml", tenant("one"))
    assert made.outcome() == (1, 0, None)
    assert not made.due()
    made.planted = RuntimeError("no thread is left")
    fault = f"{made.file}: RuntimeError: no thread is left"
    for tries in (1, 2):
        with pytest.raises(KvpError, match="no thread is left"):
            made.reload()
        assert made.outcome() == (1, tries, fault)
        assert made.due(), "though the file did not change"
    assert said(caplog, fault) == 1
    made.planted = None
    made.reload()
    assert made.outcome() == (2, 2, None)
    assert not made.due()


def test_a_store_that_cannot_keep_a_policy_does_not_keep_a_key(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made = Followed(tmp_path / "serve.toml", tenant("one"))
    made.write(tenant("two"))
    made.unkept = OSError(28, "No space left on device")
    for good in (2, 3):
        made.reload()
        assert made.outcome() == (good, 0, None), "one outcome"
        assert made.gateway.config.tenant[0].keys == (hash_key("two"),)
        assert made.due(), "what the store has not is tried again"
    assert said(caplog, "No space left on device") == 1
    made.unkept = None
    made.reload()
    assert not made.due()


def test_the_operator_s_key_does_not_go_while_it_runs(tmp_path: Path) -> None:
    made = Followed(tmp_path / "serve.toml", tenant("one"))
    made.write(tenant("one", f'[admin]\nkey = "{hash_key("op")}"'))
    made.reload()  # it may come
    made.write(tenant("two"))
    with pytest.raises(KvpError, match=r"admin\.key is gone, and every caller on loopback would be the operator"):
        made.reload()
    assert made.gateway.config.admin.key == hash_key("op")
    assert made.gateway.config.tenant[0].keys == (hash_key("one"),), "nothing of it"
    made.write(tenant("two", f'[admin]\nkey = "{hash_key("new")}"'))
    made.reload()  # another in its place
    assert made.gateway.config.admin.key == hash_key("new")
    assert made.gateway.config.tenant[0].keys == (hash_key("two"),)


def test_a_packaged_policy_is_no_file_of_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "run").mkdir()
    monkeypatch.chdir(tmp_path / "run")
    made = Followed(tmp_path / "etc" / "serve.toml", tenant("one", 'policy = "coding_agent"'))
    made.write("[[tenant\n")
    with pytest.raises(KvpError, match="not TOML"):
        made.reload()
    assert not made.due()
    Path("other").write_text("")
    assert not made.due()
    made.write(tenant("two", 'policy = "coding_agent"'))
    assert made.due()
