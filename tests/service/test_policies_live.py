"""Policies while requests come: files followed, all or nothing; signal and call; versions, diff, rollback; shares."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from kvpolicy.faults import KvpError
from kvpolicy.policy.policy import Policy
from kvpolicy.request import Owner
from kvpolicy.service.config import PolicySection
from kvpolicy.service.policies import ENFORCE, SHADOW, Policies
from kvpolicy.service.reloading import Reloading
from kvpolicy.service.stillness import STILL_S
from kvpolicy.service.tenants import Tenant
from tests.service.through import until
from tests.simulated.running import running, started

ONE = "policy one\nturn { priority: 41 }\n"
TWO = "policy two\nturn { priority: 42 }\n"


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def policies(*files: Path, **section: Any) -> Policies:
    names = [str(file) for file in files]
    told = PolicySection(name=names[0], offered=tuple(names[1:]), **section)
    return Policies(told, {}, lambda policy: None)


def settle(reloading: Reloading, clock: Clock) -> bool:
    """Whether what changed up to now is taken up once nothing else does."""
    assert not reloading.due(clock.now)
    clock.now += STILL_S - 0.01
    assert not reloading.due(clock.now)
    clock.now += 0.02
    return reloading.due(clock.now)


def reload(reloading: Reloading, source: str = "file") -> list[str]:
    return [version.name for version in asyncio.run(reloading.reload(source))]


# --- files --------------------------------------------------------------------------------------------------------


def test_a_change_is_taken_up_once_the_file_is_still(tmp_path: Path) -> None:
    file = tmp_path / "p.kvp"
    file.write_text(ONE)
    live, clock = policies(file), Clock()
    reloading = Reloading(live, clock)
    assert not reloading.due(0.0)
    file.write_text("policy ha")
    assert not reloading.due(0.0)
    clock.now = STILL_S - 0.1
    file.write_text(TWO)
    assert not reloading.due(clock.now)
    clock.now += STILL_S - 0.1
    assert not reloading.due(clock.now)  # still for less than that since the second change
    clock.now += 0.2
    assert reloading.due(clock.now)
    assert reload(reloading) == [str(file)]
    assert live.current(str(file)).number == 2
    assert live.current(str(file)).policy.name == "two"
    assert not settle(reloading, clock)


def test_a_link_that_is_swapped_is_a_change(tmp_path: Path) -> None:
    for name, text in (("a", ONE), ("b", TWO)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "p.kvp").write_text(text)
        os.utime(tmp_path / name / "p.kvp", (1000, 1000))
    link = tmp_path / "data"
    link.symlink_to("a")
    live, clock = policies(link / "p.kvp"), Clock()
    reloading = Reloading(live, clock)
    (tmp_path / "new").symlink_to("b")
    (tmp_path / "new").rename(link)
    assert settle(reloading, clock)
    reload(reloading)
    assert live.current(str(link / "p.kvp")).policy.name == "two"


def test_a_used_file_is_watched_too(tmp_path: Path) -> None:
    file, part = tmp_path / "p.kvp", tmp_path / "part.kvp"
    part.write_text("policy part\nturn { priority: 44 }\n")
    file.write_text('policy p\nuse "part.kvp"\n')
    live, clock = policies(file), Clock()
    reloading = Reloading(live, clock)
    part.write_text("policy part\nturn { priority: 45 }\n")
    assert settle(reloading, clock)
    assert reload(reloading) == [str(file)]


def test_a_missing_file_is_an_error_and_not_an_empty_policy(tmp_path: Path) -> None:
    file = tmp_path / "p.kvp"
    file.write_text(ONE)
    live, clock = policies(file), Clock()
    reloading = Reloading(live, clock)
    file.unlink()
    assert settle(reloading, clock)
    with pytest.raises(KvpError, match="no such file"):
        reload(reloading)
    assert live.current(str(file)).policy.name == "one"
    assert live.fault is not None
    assert live.counts["reload_bad"] == 1
    file.write_text(TWO)
    assert settle(reloading, clock)
    reload(reloading)
    assert live.fault is None
    assert live.current(str(file)).policy.name == "two"


def test_all_sets_or_none(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.kvp", tmp_path / "bad.kvp"
    good.write_text(ONE)
    bad.write_text(TWO)
    live = policies(good, bad)
    reloading = Reloading(live, Clock())
    good.write_text("policy one\nturn { priority: 51 }\n")
    bad.write_text("policy two\nturn { priority: 152 }\n")
    with pytest.raises(KvpError):
        reload(reloading)
    assert [live.current(str(file)).number for file in (good, bad)] == [1, 1]
    bad.write_text("policy two\nturn { priority: 52 }\n")
    assert sorted(reload(reloading)) == sorted([str(good), str(bad)])


def test_a_file_that_did_not_change_undoes_no_call(tmp_path: Path) -> None:
    file, other = tmp_path / "p.kvp", tmp_path / "other.kvp"
    file.write_text(ONE)
    other.write_text(TWO)
    live = policies(file, other)
    reloading = Reloading(live, Clock())
    pushed = live.put(str(file), _policy("policy pushed\nturn { priority: 66 }\n"), "api")
    other.write_text("policy two\nturn { priority: 53 }\n")
    assert reload(reloading) == [str(other)]
    assert live.current(str(file)) is pushed


def test_a_policy_that_cannot_come_leaves_what_was_and_is_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "p.kvp"
    file.write_text(ONE)
    bad: list[str] = []

    def came(policy: Policy) -> None:
        if policy.name in bad:
            raise RuntimeError("no room")

    live, clock = Policies(PolicySection(name=str(file)), {}, came), Clock()
    reloading = Reloading(live, clock)
    with pytest.raises(RuntimeError):
        bad.append("new")
        live.put("new", _policy("policy new\nturn { priority: 47 }\n"))
    assert live.names == (str(file),), "no name without a version"
    bad.append("two")
    file.write_text(TWO)
    assert settle(reloading, clock)
    for tries in (1, 2):
        with pytest.raises(KvpError, match="no room"):
            reload(reloading)
        assert live.fault == "RuntimeError: no room"
        assert live.counts["reload_bad"] == tries
        assert live.current(str(file)).policy.name == "one"
        clock.now += STILL_S + 0.01
        assert reloading.due(clock.now), "though the file did not change"
    assert len([record for record in caplog.records if "no room" in record.getMessage()]) == 1
    bad.clear()
    assert reload(reloading) == [str(file)]
    assert live.current(str(file)).policy.name == "two"
    assert live.fault is None
    assert not settle(reloading, clock)


def _policy(text: str) -> Policy:
    from kvpolicy.language.load import load_text
    from kvpolicy.policy.checked import examined

    return examined(load_text(text)).policy()


# --- whose policy, and how far ------------------------------------------------------------------------------------


def test_a_share_of_owners_is_in_force_and_the_rest_shadowed(tmp_path: Path) -> None:
    file = tmp_path / "p.kvp"
    file.write_text(ONE)
    live = policies(file, share=0.25)
    modes = [live.choose(Tenant("t"), "m", Owner("t", f"s{n}"), None, None).mode for n in range(2000)]
    assert 0.2 < modes.count(ENFORCE) / len(modes) < 0.3
    assert set(modes) == {ENFORCE, SHADOW}
    again = [live.choose(Tenant("t"), "m", Owner("t", f"s{n}"), None, None).mode for n in range(2000)]
    assert modes == again


def test_policies_by_tenant_by_model_and_by_a_part_of_owners(tmp_path: Path) -> None:
    names = []
    for name in ("main", "model", "tenant", "new"):
        file = tmp_path / f"{name}.kvp"
        file.write_text(f"policy {name}_\nturn {{ priority: 41 }}\n")
        names.append(str(file))
    main, model, tenant, new = names
    section = PolicySection(name=main, models={"big": model}, canary={new: 0.1})
    live = Policies(section, {"gold": tenant}, lambda policy: None)

    anybody = Tenant("t")

    def of(owner: str, model: str = "m", tenant: Tenant = anybody) -> str:
        return live.choose(tenant, model, Owner("t", owner), None, None).version.name

    assert of("a", tenant=Tenant("gold", policy=tenant)) == tenant
    chosen = [of(f"s{n}") for n in range(2000)]
    assert set(chosen) == {main, new}
    assert 0.07 < chosen.count(new) / 2000 < 0.13
    assert {of(f"s{n}", "big") for n in range(200)} == {model, new}


# --- the process ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def engine() -> Iterator[str]:
    with running("engine") as at:
        yield at


def decision(at: str, session: str) -> str:
    body = {"model": "sim", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 2}
    answer = httpx.post(f"{at}/v1/chat/completions", json=body, headers={"x-session-id": session}, timeout=30)
    assert answer.status_code == 200
    return answer.headers["x-kvp-decision"]


def admin(at: str, body: dict[str, Any]) -> Any:
    return httpx.post(f"{at}/admin/policies", json=body, timeout=30)


def test_files_signal_calls_and_a_restart(engine: str, tmp_path: Path) -> None:
    file = tmp_path / "p.kvp"
    file.write_text(ONE)
    name = str(file)
    settings = tmp_path / "kvp.toml"
    settings.write_text(
        f'[[upstream]]\nurl = "{engine}"\n[policy]\nname = "{name}"\n[store]\nfile = "{tmp_path / "state"}"\n'
    )
    with started("serve", "--config", str(settings)) as gateway:
        at, process = gateway["url"], gateway["pid"]
        assert "v=1" in decision(at, "a")
        # a file
        file.write_text(TWO)
        assert until(lambda: "v=2" in decision(at, "a"), True)
        # a file with a fault: what was good stays, and that is said
        file.write_text("policy three\nturn { priority: 400 }\n")
        os.kill(process, signal.SIGHUP)
        assert until(lambda: httpx.get(f"{at}/admin/policies").json()["fault"] is not None, True)
        assert "v=2" in decision(at, "a")
        # a signal
        file.write_text("policy three\nturn { priority: 43 }\n")
        os.kill(process, signal.SIGHUP)
        assert until(lambda: "v=3" in decision(at, "a"), True)
        versions = httpx.get(f"{at}/admin/policies").json()["policies"][name]
        assert versions[-1]["source"] in ("signal", "file")
        # a call: validated, refused, swapped
        bad = admin(at, {"name": name, "text": "policy x\nturn { priority: 400 }\n"})
        assert bad.status_code == 422
        assert bad.json()["diagnostics"][0]["line"] == 2
        assert admin(at, {"name": name, "text": ONE, "validate_only": True}).json()["policy"] is None
        pushed = "policy pushed\nturn { priority: 70 }\n"
        assert admin(at, {"name": name, "text": pushed}).json()["policy"]["version"] == 4
        assert "v=4" in decision(at, "a")
        told = httpx.get(f"{at}/admin/policies/{name}/diff", params={"before": 3, "after": 4}).json()
        assert not told["same"]
        row = next(change for change in told["changes"] if change["property"] == "priority")
        assert json.dumps(row["before"]).count("43")
        assert json.dumps(row["after"]).count("70")
        # back again
        assert admin(at, {"name": name, "rollback": 2}).json()["policy"]["version"] == 5
        missing = admin(at, {"name": name, "rollback": 99})
        assert missing.status_code == 400
        assert "versions" in missing.json()["error"]["message"]
        assert admin(at, {"name": name, "text": pushed}).json()["policy"]["version"] == 6
    with running("serve", "--config", str(settings)) as at:  # what a call brought outlives the process
        versions = httpx.get(f"{at}/admin/policies").json()["policies"][name]
        assert versions[-1]["source"] == "replica"
        body = {"request": {"id": "r", "owner": {}, "model": "m", "block_size": 16, "tokens": 64,
                            "spans": [{"kind": "turn", "start": 0, "end": 64}]}}  # fmt: skip
        assert httpx.post(f"{at}/v1/plan", json=body).json()["directives"][0]["priority"] == 70
    file.write_text(ONE)  # … but not a file that changed meanwhile
    with running("serve", "--config", str(settings)) as at:
        assert httpx.post(f"{at}/v1/plan", json=body).json()["directives"][0]["priority"] == 41


def test_a_fault_on_disk_and_its_end_are_both_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "p.kvp"
    file.write_text(ONE)
    live, clock = policies(file), Clock()
    reloading = Reloading(live, clock)
    for mended, told in ((ONE, "nothing of it is new"), (TWO, f"{file} in version 2")):
        file.write_text("policy ha")
        with pytest.raises(KvpError):
            reload(reloading)
        file.write_text(mended)
        reload(reloading)
        reload(reloading)
        bad, good = [record for record in caplog.records if record.levelname == "WARNING"]
        assert "is not taken up" in bad.getMessage()
        assert good.getMessage() == f"policies: what is on disk is taken up again: {told}"
        caplog.clear()
