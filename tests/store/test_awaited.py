"""The face for asyncio: the same answers, and the event loop goes on whatever the server does."""

from __future__ import annotations

import asyncio
import gc
from pathlib import Path

from kvpolicy.request import Owner
from kvpolicy.store.awaited import AwaitedStore
from kvpolicy.store.memory import MemoryStore
from kvpolicy.store.record import Record
from kvpolicy.store.redis import RedisStore
from tests.store.conftest import Open
from tests.store.servers import Server, until


async def everything(store: MemoryStore | RedisStore) -> list[object]:
    """One of each call, and what it answered."""
    awaited = AwaitedStore(store)
    store.append(Record("event", Owner("t", "s"), {"number": 1}))
    got: list[object] = [await awaited.settle()]
    got.append([r.body for r in store.take() if isinstance(r, Record)])
    got.append((await awaited.publish("p", {"a": "1"})).accepted)
    got.append((await awaited.publish("p", {"a": "2"}, 7)).accepted)
    got.append((await awaited.roll_back("p")).accepted)
    await awaited.keep("learned", "t", "a", {"n": 1})
    got.append([d.body for d in await awaited.kept("learned", "t")])
    got.append((await awaited.pin("t", "s", "w0", 60)).worker)
    got.append((await awaited.pin("t", "s", "w1", 60)).worker)
    pinned = await awaited.pinned("t", "s")
    got.append(pinned and pinned.worker)
    got.append((await awaited.begin("t", "k", 60)).first)
    store.finish("t", "k", "done", 60)
    got.append((await awaited.begin("t", "k", 60)).result)
    got.append((await awaited.spend("t", "w", 2, 3, 600)).granted)
    got.append((await awaited.spend("t", "w", 4, 3, 600)).granted)
    got.append((await awaited.enter("t", "running", "a", 1, 60)).granted)
    store.leave("t", "running", "a")
    got.append((await awaited.enter("t", "running", "b", 1, 60)).granted)
    before = store.salt("t")
    got.append(await awaited.renew_salt("t"))
    got.append(store.salt("t") != before)
    await awaited.close()
    return got


def test_both_stores_answer_alike(server: Server, open_store: Open, tmp_path: Path) -> None:
    memory = asyncio.run(everything(MemoryStore(tmp_path)))
    shared = asyncio.run(everything(open_store(server.url)))
    assert shared == memory
    assert memory[:3] == [True, [{"number": 1}], True]


def test_a_hung_server_does_not_hold_up_the_loop(own_server: Server, open_store: Open) -> None:
    store = open_store(own_server.url, budget=0.05, timeout=30.0)

    async def scene() -> tuple[int, int]:
        awaited, ticks, stop = AwaitedStore(store), 0, asyncio.Event()

        async def tick() -> None:
            nonlocal ticks
            while not stop.is_set():
                ticks += 1
                await asyncio.sleep(0)

        ticking = asyncio.create_task(tick())
        own_server.hang()
        spent = await awaited.spend("t", "w", 1, 5, 60)
        assert not spent.shared and spent.granted
        during = ticks
        for number in range(200):
            store.append(Record("event", Owner("t", "s"), {"number": number}))
            assert not await awaited.settle()
            await awaited.pin("t", f"s{number}", "w0", 60)
        stop.set()
        await ticking
        return during, len(store.take())

    try:
        during, taken = asyncio.run(scene())
    finally:
        own_server.go_on()
    assert during > 10  # others ran while one call waited
    assert taken == 200
    assert store.status().counters["late"] == 1
    until(lambda: store.spend("t", "w", 1, 5000, 60).shared)


def test_answers_that_come_too_late_are_nobodys(own_server: Server, open_store: Open) -> None:
    store = open_store(own_server.url, budget=0.02, timeout=0.2)
    reported: list[object] = []

    async def scene() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
        awaited = AwaitedStore(store)
        own_server.hang()
        store.append(Record("event", Owner("t", "s"), {"number": 1}))
        await asyncio.gather(awaited.settle(), *(awaited.pin("t", f"s{number}", "w0", 60) for number in range(20)))
        while store.status().mode == "shared":  # now all those questions fail
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)
        gc.collect()

    try:
        asyncio.run(scene())
    finally:
        own_server.go_on()
    gc.collect()
    assert reported == []
    assert store.status().counters["late"] >= 1


def test_a_caller_that_is_cancelled_leaves_nothing_behind(own_server: Server, open_store: Open) -> None:
    store = open_store(own_server.url, budget=30.0, timeout=30.0)

    async def scene() -> None:
        call = asyncio.create_task(AwaitedStore(store).pin("t", "s", "w0", 60))
        await asyncio.sleep(0.05)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        assert call.cancelled()

    own_server.hang()
    try:
        asyncio.run(scene())
    finally:
        own_server.go_on()
    until(lambda: store.pin("t", "other", "w0", 60).shared)
