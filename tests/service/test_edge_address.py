"""Whose connection it is decides who may operate the gateway, whatever a header and the environment say of it."""

from __future__ import annotations

import socket
from hashlib import sha256
from pathlib import Path

import httpx
import pytest

from tests.simulated.running import running

SAID = ("x-forwarded-for", "forwarded", "x-real-ip")


def own_address() -> str | None:
    """An address of this machine that is not loopback. Nothing is sent: the socket is only bound to a route."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        try:
            asking.connect(("192.0.2.1", 9))
        except OSError:
            return None
        found = str(asking.getsockname()[0])
    return None if found.startswith("127.") else found


def headers(address: str) -> dict[str, str]:
    return {name: f"for={address}" if name == "forwarded" else address for name in SAID}


@pytest.fixture
def believing(monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment in which the server's library would believe everybody's word for an address."""
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "*")


@pytest.mark.usefixtures("believing")
def test_who_is_behind_a_proxy_on_this_machine_is_not_the_operator(tmp_path: Path) -> None:
    """The proxy's own connection is loopback; whom it speaks for is whoever reached it, loopback or not."""
    settings = tmp_path / "kvp.toml"
    settings.write_text(
        f'[[upstream]]\nurl = "http://127.0.0.1:9"\n[[tenant]]\nname = "a"\nkeys = ["{sha256(b"key").hexdigest()}"]\n'
    )
    with running("serve", "--config", str(settings)) as at:
        for address in ("203.0.113.5", "127.0.0.1"):
            for name, said in headers(address).items():
                told = {name: said}
                asked = [httpx.get(f"{at}{path}", headers=told) for path in ("/admin/policies", "/metrics")]
                asked.append(httpx.post(f"{at}/admin/release-all", headers=told))
                assert [answer.status_code for answer in asked] == [403] * 3, told
                assert "admin.key" in asked[0].text
        assert httpx.get(f"{at}/admin/policies").status_code == 200


def test_a_proxy_passes_the_operators_key_on(tmp_path: Path) -> None:
    settings = tmp_path / "kvp.toml"
    settings.write_text(
        f'[[upstream]]\nurl = "http://127.0.0.1:9"\n[admin]\nkey = "{sha256(b"operator").hexdigest()}"\n'
    )
    with running("serve", "--config", str(settings)) as at:
        said = headers("203.0.113.5")
        assert httpx.get(f"{at}/admin/policies", headers=said).status_code == 401
        said["authorization"] = "Bearer operator"
        assert httpx.get(f"{at}/admin/policies", headers=said).status_code == 200


@pytest.mark.usefixtures("believing")
@pytest.mark.skipif(own_address() is None, reason="this machine has no address but loopback")
def test_no_header_makes_a_client_the_operator(tmp_path: Path) -> None:
    settings = tmp_path / "kvp.toml"
    settings.write_text(
        '[[upstream]]\nurl = "http://127.0.0.1:9"\n[listen]\nhost = "0.0.0.0"\n'
        f'[[tenant]]\nname = "a"\nkeys = ["{sha256(b"key").hexdigest()}"]\n'
    )
    with running("serve", "--config", str(settings)) as at:
        port = at.rpartition(":")[2]
        for path in ("/admin/policies", "/metrics"):
            answer = httpx.get(f"http://{own_address()}:{port}{path}", headers=headers("127.0.0.1"))
            assert answer.status_code == 403, path
            assert httpx.get(f"http://127.0.0.1:{port}{path}").status_code == 200
