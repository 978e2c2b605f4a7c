"""A server takes over whose clock is behind: time stands until it has caught up, and goes back for nobody."""

from __future__ import annotations

import itertools
from pathlib import Path

import httpx

from kvpolicy.store.redis import RedisStore
from tests.service.test_edge_failing_open import assembled, engine_like
from tests.service.test_edge_refusals import hashed
from tests.service.upstream import upstream
from tests.store.conftest import Open
from tests.store.looks import QUICK, is_shared, numbers, record
from tests.store.servers import Server, until

LATE_S = 3600


def server_time(server: Server) -> float:
    seconds, micros = server.client().time()  # type: ignore[misc]
    return float(seconds + micros / 1e6)


def take_over(server: Server, late_s: int) -> None:
    """Another one in its place, with the same data and another clock."""
    server.kill()
    server.late_s = late_s
    server.start()


def follows(store: RedisStore, server: Server) -> bool:
    return is_shared(store) and abs(store.now() - server_time(server)) < 5


def test_time_stands_and_never_goes_back_and_records_still_come(tmp_path: Path, open_store: Open) -> None:
    server = Server(tmp_path / "redis", appendonly="yes", appendfsync="always")
    with server:
        store, other = open_store(server.url, **QUICK), open_store(server.url, **QUICK)
        assert until(lambda: follows(store, server))
        store.append(record(1))
        got: list[object] = []
        until(lambda: got.extend(numbers(other)) or got == [1])
        before = store.now()
        take_over(server, LATE_S)
        assert server_time(server) < before - LATE_S / 2, "its clock is behind"
        seen = []
        until(lambda: is_shared(store) and is_shared(other))
        store.append(record(2))
        until(lambda: seen.append(store.now()) or got.extend(numbers(other)) or got[-1:] == [2])
        assert all(one <= next_ for one, next_ in itertools.pairwise([before, *seen, store.now()]))
        stands = store.now()
        heard = store.status().counters["rounds"]
        until(lambda: store.status().counters["rounds"] > heard + 3)
        assert store.now() == stands <= before + 30
        late = open_store(server.url, **QUICK)  # who starts now has the new server's time
        assert until(lambda: follows(late, server))
        late.append(record(3))
        until(lambda: got.extend(numbers(other)) or got[-1:] == [3])
        take_over(server, 0)  # it has caught up
        assert until(lambda: follows(store, server) and store.now() > stands)


def test_caps_are_filled_while_it_stands(tmp_path: Path) -> None:
    server = Server(tmp_path / "redis", appendonly="yes")
    tenant = [{"name": "t", "keys": [hashed("k")], "caps": {"requests_per_minute": 60}}]
    with (
        server,
        upstream(engine_like) as engine,
        assembled(engine.url, tenant=tenant, store={"redis": server.url}) as (at, made),
    ):

        def status() -> int:
            return httpx.get(f"{at}/v1/models", headers={"x-api-key": "k"}).status_code

        assert status() == 200
        take_over(server, LATE_S)
        until(lambda: httpx.get(f"{at}/readyz").status_code == 200)
        made.proxy.admission._accounts["t"].left = -1
        assert status() == 429
        until(lambda: status() == 200, every=0.2)
