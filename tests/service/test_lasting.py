"""What outlives a process: learned times and policy versions, in a folder or told by other replicas."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from kvpolicy.language.load import load_text
from kvpolicy.policy.checked import examined
from kvpolicy.policy.policy import Policy
from kvpolicy.service.config import PolicySection
from kvpolicy.service.lasting import READ, LastingPolicies, LastingTimes, files_of, policy_of
from kvpolicy.service.policies import Policies, digest_of
from kvpolicy.store import MemoryStore
from kvpolicy.store.awaited import AwaitedStore
from kvpolicy.workflow.learned import Learned


def policy(text: str) -> Policy:
    return examined(load_text(text)).policy()


def live(file: Path) -> Policies:
    return Policies(PolicySection(name=str(file)), {}, lambda policy: None)


def test_learned_times_survive_a_restart(tmp_path: Path) -> None:
    learned = Learned()
    for seconds in (2.0, 3.0):
        learned.times("acme").tools.add(seconds)

    async def before() -> None:
        await LastingTimes(AwaitedStore(MemoryStore(tmp_path)), learned, "r0").keep()

    async def after() -> Learned:
        found = Learned()
        times = LastingTimes(AwaitedStore(MemoryStore(tmp_path)), found, "r0")
        await times.begin("acme")
        await times.begin("acme")
        await times.begin("nobody")
        return found

    asyncio.run(before())
    assert asyncio.run(after()).times("acme").tools.mean() == 2.5


def test_a_version_comes_back_from_its_files(tmp_path: Path) -> None:
    part, file = tmp_path / "part.kvp", tmp_path / "p.kvp"
    part.write_text("policy part\nlayer low { turn { priority: 44 } }\n")
    file.write_text('policy p\nuse "part.kvp"\nuse base\nlayer high { document { priority: 60 } }\n')
    policies = live(file)
    version = policies.current(str(file))
    files = files_of(version)
    part.unlink()
    file.unlink()  # another replica has neither
    assert digest_of(policy_of(files)) == version.digest


def test_what_a_call_brought_stands_until_the_files_change(tmp_path: Path) -> None:
    file, state = tmp_path / "p.kvp", tmp_path / "state"
    file.write_text("policy one\nturn { priority: 41 }\n")

    async def life(push: str | None = None) -> str:
        policies = live(file)
        lasting = LastingPolicies(AwaitedStore(MemoryStore(state)), policies)
        await lasting.start()
        if push is not None:
            policies.put(str(file), policy(push), "api")
            await lasting.close()
        return policies.current(str(file)).policy.name

    assert asyncio.run(life("policy pushed\nturn { priority: 70 }\n")) == "pushed"
    assert asyncio.run(life()) == "pushed"
    file.write_text("policy two\nturn { priority: 42 }\n")
    assert asyncio.run(life()) == "two"
    assert asyncio.run(life()) == "two"


def test_two_that_start_at_once_agree_on_the_first(tmp_path: Path) -> None:
    store = MemoryStore()
    names = []

    async def start(text: str) -> Policies:
        file = tmp_path / "p.kvp"
        file.write_text(text)
        policies = live(file)
        await LastingPolicies(AwaitedStore(store), policies).start()
        return policies

    one = asyncio.run(start("policy one\nturn { priority: 41 }\n"))
    other = asyncio.run(start("policy one\nturn { priority: 41 }\n"))
    for each in (one, other):
        names.append(each.current(each.names[0]).digest)
    assert names[0] == names[1]
    published = store.policy(one.names[0])
    assert published is not None
    assert published.serial == 1


def test_what_cannot_be_in_force_is_refused_and_counted(tmp_path: Path) -> None:
    file = tmp_path / "p.kvp"
    file.write_text("policy one\nturn { priority: 41 }\n")
    store = MemoryStore()
    policies = live(file)
    lasting = LastingPolicies(AwaitedStore(store), policies)
    asyncio.run(lasting.start())
    store.publish(str(file), {"x": "policy x\nturn { priority: 400 }\n", "//main": "x"})
    lasting.look()
    assert lasting.counts["refused"] == 1
    assert policies.current(str(file)).policy.name == "one"
    store.publish(str(file), {"x": "policy x\nturn { priority: 40 }\n", "//main": "x"})
    lasting.look()
    assert policies.current(str(file)).policy.name == "x"


def test_what_was_read_last_is_asked_of_the_store_once_for_all_policies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [tmp_path / f"{name}.kvp" for name in "abc"]
    for file in files:
        file.write_text(f"policy {file.stem}\nturn {{ priority: 41 }}\n")
    policies = Policies(PolicySection(name=str(files[0]), offered=tuple(map(str, files[1:]))), {}, lambda policy: None)
    store, asked = AwaitedStore(MemoryStore(tmp_path)), list[str]()
    kept = store.kept

    async def counted(kind: str, tenant: str) -> Any:
        asked.append(kind)
        return await kept(kind, tenant)

    async def told() -> None:
        lasting = LastingPolicies(store, policies)
        await lasting.start()
        await lasting.agree()

    monkeypatch.setattr(store, "kept", counted)
    asyncio.run(told())
    assert len(policies.names) == 3
    assert asked == [READ]
