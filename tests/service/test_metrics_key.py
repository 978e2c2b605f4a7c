"""Who reads the metrics is not the operator: a key of its own opens them, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from kvpolicy.faults import InputFault
from kvpolicy.service.config import checked_config
from tests.service.test_edge_failing_open import assembled, engine_like
from tests.service.test_edge_refusals import hashed
from tests.service.upstream import upstream

TENANT = [{"name": "t", "keys": [hashed("client")]}]


@pytest.fixture(scope="module")
def at() -> Iterator[str]:
    admin = {"key": hashed("operator"), "metrics_key": hashed("scraper")}
    with upstream(engine_like) as engine, assembled(engine.url, tenant=TENANT, admin=admin) as (found, _):
        yield found


def status(at: str, method: str, path: str, key: str | None) -> int:
    told = {} if key is None else {"authorization": f"Bearer {key}"}
    return httpx.request(method, at + path, headers=told, content=b"{}").status_code


@pytest.mark.parametrize(
    ("key", "expected"), [("scraper", 200), ("operator", 200), ("client", 401), (hashed("scraper"), 401), (None, 401)]
)
def test_who_may_read_metrics(at: str, key: str | None, expected: int) -> None:
    assert status(at, "GET", "/metrics", key) == expected


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/admin/policies"),
        ("POST", "/admin/policies"),
        ("GET", "/admin/tenants"),
        ("POST", "/admin/tenants"),
        ("GET", "/admin/policies/coding_agent/diff?before=1&after=1"),
        ("POST", "/admin/release-all"),
        ("GET", "/v1/owners"),
    ],
)
def test_the_key_for_metrics_opens_nothing_else(at: str, method: str, path: str) -> None:
    assert status(at, method, path, "scraper") == 401
    assert status(at, method, path, "client" if path == "/v1/owners" else "operator") in (200, 400, 404)


def test_without_an_operator_s_key_it_does_not_make_an_operator() -> None:
    admin = {"metrics_key": hashed("scraper")}
    with upstream(engine_like) as engine, assembled(engine.url, tenant=TENANT, admin=admin) as (at, _):
        for key, expected in (("scraper", 200), ("else", 403)):
            told = {"authorization": f"Bearer {key}", "x-forwarded-for": "203.0.113.5"}
            assert httpx.get(f"{at}/metrics", headers=told).status_code == expected
            assert httpx.post(f"{at}/admin/release-all", headers=told).status_code == 403


def test_it_is_another_than_the_operator_s() -> None:
    same = {"key": hashed("one"), "metrics_key": hashed("one")}
    with pytest.raises(InputFault, match="metrics_key must be another than key"):
        checked_config({"upstream": [{"url": "http://a"}], "admin": same}, "x")
