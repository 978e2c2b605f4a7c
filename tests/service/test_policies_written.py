"""Policy files that are written while they are read: what is on disk is in force in the end, whatever the moment."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kvpolicy.faults import KvpError
from kvpolicy.service import reloading as reloading_module
from kvpolicy.service.reloading import Reloading
from tests.service.test_policies_live import ONE, TWO, Clock, _policy, policies, reload, settle

THREE = "policy three\nturn { priority: 43 }\n"


@contextmanager
def written_while_read(file: Path, text: str) -> Iterator[None]:
    """Somebody writes the file just after it was read, and before that is in force."""
    read = reloading_module.load

    def then_written(names: list[str]) -> Any:
        try:
            return read(names)
        finally:
            file.write_text(text)
            os.utime(file, (2000, 2000))  # no two writings of a test are of one moment

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reloading_module, "load", then_written)
        yield


def test_what_is_written_while_the_files_are_read_is_not_lost(tmp_path: Path) -> None:
    file = tmp_path / "p.kvp"
    file.write_text(ONE)
    live, clock = policies(file), Clock()
    reloading = Reloading(live, clock)
    with written_while_read(file, TWO):
        reload(reloading, "signal")
    assert live.current(str(file)).policy.name == "one"
    assert settle(reloading, clock)
    reload(reloading)
    assert live.current(str(file)).policy.name == "two"
    assert not settle(reloading, clock)


def test_nor_what_mends_a_file_while_its_fault_is_found(tmp_path: Path) -> None:
    file = tmp_path / "p.kvp"
    file.write_text(ONE)
    live, clock = policies(file), Clock()
    reloading = Reloading(live, clock)
    file.write_text("policy ha")
    with written_while_read(file, TWO), pytest.raises(KvpError):
        reload(reloading, "signal")
    assert settle(reloading, clock)
    reload(reloading)
    assert live.current(str(file)).policy.name == "two"
    assert live.fault is None


def test_nor_a_missing_file_that_comes_back_meanwhile(tmp_path: Path) -> None:
    file = tmp_path / "p.kvp"
    file.write_text(ONE)
    live, clock = policies(file), Clock()
    reloading = Reloading(live, clock)
    file.unlink()
    with written_while_read(file, TWO), pytest.raises(KvpError):
        reload(reloading, "signal")
    assert settle(reloading, clock)
    reload(reloading)
    assert live.current(str(file)).policy.name == "two"


def test_nor_what_is_written_while_the_gateway_starts(tmp_path: Path) -> None:
    file = tmp_path / "p.kvp"
    file.write_text(ONE)
    live, clock = policies(file), Clock()
    file.write_text(TWO)
    reloading = Reloading(live, clock)
    assert settle(reloading, clock)
    reload(reloading)
    assert live.current(str(file)).policy.name == "two"


def test_nor_what_is_written_while_tenants_come_to_want_others(tmp_path: Path) -> None:
    file, other = tmp_path / "p.kvp", tmp_path / "other.kvp"
    file.write_text(ONE)
    other.write_text(TWO)
    live, clock = policies(file), Clock()
    reloading = Reloading(live, clock)
    live.put(str(file), _policy("policy pushed\nturn { priority: 66 }\n"), "api")
    file.write_text(THREE)
    assert not reloading.due(clock.now)
    wanted = {"t": str(other)}
    live.want(wanted, live.missing(wanted))
    reloading.follow()
    assert settle(reloading, clock)
    reload(reloading)
    assert [live.current(str(each)).policy.name for each in (file, other)] == ["three", "two"]
    reloading.follow()
    assert not settle(reloading, clock)


def test_a_fault_of_ours_ends_no_looking(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "p.kvp"
    file.write_text(ONE)
    reloading = Reloading(policies(file), Clock())
    looks: list[float] = []

    def broken(now: float) -> bool:
        looks.append(now)
        raise RuntimeError

    async def some() -> None:
        job = asyncio.create_task(reloading.run())
        while len(looks) < 2 and not job.done():
            await asyncio.sleep(0.01)
        job.cancel()

    monkeypatch.setattr(reloading, "due", broken)
    asyncio.run(some())
    assert len(looks) == 2


def test_files_that_stay_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "p.kvp"
    file.write_bytes(b"\xef\xbb\xbf" + ONE.replace("\n", "\r\n").encode())
    live, clock = policies(file), Clock()
    reloading = Reloading(live, clock)
    assert not settle(reloading, clock)
    reload(reloading, "signal")
    assert not settle(reloading, clock)
    monkeypatch.setattr(reloading_module, "_text", lambda path: pytest.fail(f"{path} is read again"))
    reloading.follow()  # tenants changed, and want the same policies
