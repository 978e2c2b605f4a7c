"""Runs at once never mix: threads, tasks, threads within tasks; every client's calls say where they come from."""

from __future__ import annotations

import asyncio
import contextvars
import random
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import httpx
import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kvpolicy
from kvpolicy.client.scope import Scope, current, sources
from kvpolicy.client.transport import AsyncTransport, Transport
from kvpolicy.client.wire import CONTEXT
from kvpolicy.service.meaning.headers import from_headers

LIBRARIES = pytest.mark.parametrize("library", [httpx, httpx2], ids=["httpx", "httpx2"])
URL = "http://service/v1/chat/completions"


def echo(library: Any) -> Any:
    """An innermost transport that answers with the context it was sent, and with who sent it."""

    def answer(request: Any) -> Any:
        return library.Response(
            200, json={"context": request.headers.get(CONTEXT, ""), "who": request.content.decode()}
        )

    return library.MockTransport(answer)


def said(context: str) -> tuple[Any, ...]:
    read = from_headers({CONTEXT: context}).context
    return read.session, read.node, read.branch


@LIBRARIES
def test_hundreds_of_threads(library: Any) -> None:
    client = library.Client(transport=Transport(echo(library)))
    wrong: list[Any] = []
    at_once = threading.Barrier(100)

    def work(number: int) -> None:
        at_once.wait()
        for turn in range(3):
            with kvpolicy.run(session=f"s{number}") as run, run.step(f"n{number}-{turn}"), run.branch(f"b{number}"):
                told = client.post(URL, content=f"{number}").json()
                if said(told["context"]) != (f"s{told['who']}", f"n{told['who']}-{turn}", f"b{told['who']}"):
                    wrong.append(told)
            if "x" + client.post(URL, content="-").json()["context"] != "x":
                wrong.append("outside")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(100)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@LIBRARIES
def test_hundreds_of_tasks(library: Any) -> None:
    async def main() -> None:
        async with library.AsyncClient(transport=AsyncTransport(echo(library))) as client:

            async def branch(number: int, which: int) -> None:
                async with kvpolicy.branch(f"b{which}"):
                    await asyncio.sleep(random.random() / 50)
                    told = (await client.post(URL, content=f"{number}")).json()
                    assert said(told["context"]) == (f"s{number}", f"n{number}", f"b{which}")

            async def work(number: int) -> None:
                async with kvpolicy.run(session=f"s{number}"), kvpolicy.step(f"n{number}"):
                    await asyncio.sleep(random.random() / 50)
                    await asyncio.gather(*(branch(number, which) for which in range(3)))
                    told = (await client.post(URL, content=f"{number}")).json()
                    assert said(told["context"]) == (f"s{number}", f"n{number}", None)

            await asyncio.gather(*(work(number) for number in range(200)))

    asyncio.run(main())


@settings(max_examples=30, deadline=None)
@given(st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=6), min_size=2, max_size=12), st.randoms())
def test_any_interleaving_of_tasks_leaves_each_where_it_is(paths: list[list[int]], order: random.Random) -> None:
    """Each task walks its own way of steps and branches; after every wait it is still where it was."""

    async def walk(number: int, path: list[int]) -> None:
        if not path:
            return
        name = f"{number}-{path[0]}-{len(path)}"
        with kvpolicy.step(name) if path[0] % 2 else kvpolicy.branch(name):
            here = current()
            for _ in range(order.randrange(3)):
                await asyncio.sleep(0)
                assert current() == here
            assert name in (here.node, here.branch) and here.session == f"s{number}"
            await walk(number, path[1:])
            assert current() == here

    async def start(number: int, path: list[int]) -> None:
        with kvpolicy.run(session=f"s{number}"):
            await walk(number, path)
        assert current() == Scope()

    async def main() -> None:
        await asyncio.gather(*(start(number, path) for number, path in enumerate(paths)))

    asyncio.run(main())


def test_worker_threads_that_get_the_context_are_where_their_task_is() -> None:
    async def main() -> None:
        async def work(number: int) -> None:
            with kvpolicy.run(session=f"s{number}"):
                assert (await asyncio.to_thread(current)).session == f"s{number}"
                with ThreadPoolExecutor(1) as pool:  # one that does not get it says nothing, rather than another's
                    assert pool.submit(current).result() == Scope()
                    assert pool.submit(contextvars.copy_context().run, current).result().session == f"s{number}"

        await asyncio.gather(*(work(number) for number in range(50)))

    asyncio.run(main())


@LIBRARIES
def test_a_client_is_annotated_in_place_once_and_only_towards_its_own_address(library: Any) -> None:
    def answer(request: Any) -> Any:
        if request.url.path == "/away":
            return library.Response(307, headers={"location": "http://elsewhere/x"})
        return library.Response(200, text=request.headers.get(CONTEXT, "none"))

    client = library.Client(base_url="http://service", transport=library.MockTransport(answer), follow_redirects=True)
    assert kvpolicy.annotate(kvpolicy.annotate(client)) is client
    assert len(client.event_hooks["request"]) == 1
    with kvpolicy.run(session="s"):
        assert client.post("/v1/x").text == 'session="s"'
        assert client.post("/v1/x", headers={CONTEXT: 'session="own"'}).text == 'session="own"'
        assert client.get("/v1/x").text == "none"
        assert client.post("http://elsewhere/x").text == "none"
        assert client.post("/away").text == "none"
    assert client.post("/v1/x").text == "none"


@LIBRARIES
@pytest.mark.parametrize("by", ["sdk", "annotate", "transport"])
def test_a_redirect_carries_no_scope_to_another_host(library: Any, by: str) -> None:
    """Also where the SDK's user made the httpx client, which then has no address of its own."""

    def answer(request: Any) -> Any:
        if request.url.host == "service" and request.url.path.startswith("/v1"):
            return library.Response(307, headers={"location": f"http://{request.content.decode()}/x"})
        return library.Response(200, text=request.headers.get(CONTEXT, "none"))

    if by == "transport":
        client = library.Client(transport=Transport(library.MockTransport(answer)), follow_redirects=True)
    else:
        client = library.Client(transport=library.MockTransport(answer), follow_redirects=True)
    if by == "annotate":
        kvpolicy.annotate(client)
    if by == "sdk":
        sdk = SimpleNamespace(_client=client, base_url=library.URL("http://service/v1/"))
        kvpolicy.annotate(sdk)
    with kvpolicy.run(session="s"):
        for host, context in (("service", 'session="s"'), ("elsewhere", "none"), ("service", 'session="s"')):
            assert client.post(URL, content=host).text == context
        assert client.post("http://elsewhere/x").text == ("none" if by == "sdk" else 'session="s"')


def test_what_has_no_client_inside_is_said() -> None:
    with pytest.raises(kvpolicy.InputFault, match="no httpx client is found in this dict"):
        kvpolicy.annotate({})


def test_an_adapter_that_breaks_costs_its_annotation_alone() -> None:
    def broken() -> dict[str, Any]:
        raise RuntimeError("changed")

    sources.append(broken)
    try:
        with kvpolicy.run(session="s"):
            assert current().session == "s"
    finally:
        sources.remove(broken)


def test_headers_body_and_base_url_of_here() -> None:
    with kvpolicy.run(session="s", workflow="w"), kvpolicy.step("writer"), kvpolicy.said(turn=3):
        with kvpolicy.spans(kvpolicy.mark("document", 1, 3, name="repo_map")):
            assert kvpolicy.headers() == {
                CONTEXT: 'session="s", workflow="w", node="writer", agent="writer", turn=3',
                "x-kvp-spans": '(1 3);t=document;name="repo_map"',
            }
            assert kvpolicy.body()["spans"] == [{"messages": [1, 3], "kind": "document", "name": "repo_map"}]
        told = "session=s;workflow=w;node=writer;agent=writer;turn=3"
        assert kvpolicy.base_url("http://h:1/v1") == f"http://h:1/kvp/{told}/v1"
