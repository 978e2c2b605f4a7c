"""TLS on both sides, with certificates of an authority made for the test: whom we believe, and who may come in."""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import trustme

from tests.service.test_edge_passing import CHAT, PATH
from tests.service.upstream import upstream
from tests.simulated.running import running


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("tls")
    ours, theirs = trustme.CA(), trustme.CA()
    made = {"ca": folder / "ca.pem", "other_ca": folder / "other.pem"}
    ours.cert_pem.write_to_path(made["ca"])
    theirs.cert_pem.write_to_path(made["other_ca"])
    for name in ("server", "client"):
        issued = ours.issue_cert("127.0.0.1", "localhost")
        made[f"{name}_cert"], made[f"{name}_key"] = folder / f"{name}.pem", folder / f"{name}.key"
        issued.cert_chain_pems[0].write_to_path(made[f"{name}_cert"])
        issued.private_key_pem.write_to_path(made[f"{name}_key"])
    return made


def server_context(files: dict[str, Path], *, mutual: bool = False) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(files["server_cert"], files["server_key"])
    if mutual:
        context.load_verify_locations(files["ca"])
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def config(folder: Path, text: str) -> str:
    path = folder / "serve.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


@pytest.fixture
def engine(files: dict[str, Path]) -> Iterator[Any]:
    with upstream(ssl=server_context(files, mutual=True)) as found:
        yield found


def test_an_engine_is_reached_only_where_its_certificate_is_believed(
    files: dict[str, Path], engine: Any, tmp_path: Path
) -> None:
    known = f'cert_file = "{files["client_cert"]}"\nkey_file = "{files["client_key"]}"\n'
    for ca, own, status in ((files["ca"], known, 200), (files["other_ca"], known, 502), (files["ca"], "", 502)):
        text = f'[[upstream]]\nurl = "{engine.url}"\nca_file = "{ca}"\n{own}[policy]\nmode = "off"\n'
        before = len(engine.asked)
        with running("serve", "--config", config(tmp_path, text)) as at:
            assert httpx.post(at + PATH, json=CHAT, timeout=30).status_code == status
        assert (len(engine.asked) > before) is (status == 200)


def test_clients_come_in_over_tls_and_with_a_certificate_where_one_is_asked(
    files: dict[str, Path], tmp_path: Path
) -> None:
    text = (
        f'[[upstream]]\nurl = "http://127.0.0.1:9"\n[listen]\ncert_file = "{files["server_cert"]}"\n'
        f'key_file = "{files["server_key"]}"\nclient_ca_file = "{files["ca"]}"\n'
    )
    with running("serve", "--config", config(tmp_path, text)) as at:
        assert at.startswith("https://")
        trusting = ssl.create_default_context(cafile=str(files["ca"]))
        with pytest.raises(httpx.TransportError):
            httpx.get(f"{at}/healthz", verify=trusting)
        trusting.load_cert_chain(files["client_cert"], files["client_key"])
        assert httpx.get(f"{at}/healthz", verify=trusting).status_code == 200
        with pytest.raises(httpx.TransportError):
            httpx.get(at.replace("https", "http") + "/healthz")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[[upstream]]\nurl = "https://127.0.0.1:1"\nca_file = "/nowhere.pem"\n', "/nowhere.pem"),
        ('[[upstream]]\nurl = "http://a"\n[listen]\ncert_file = "/nowhere.pem"\n', "/nowhere.pem"),
        ('[[upstream]]\nurl = "http://a"\n[listen]\nkey_file = "/nowhere.pem"\n', "cert_file is needed"),
        ('[[upstream]]\nurl = "http://user:secret@a"\n', "host, port and path alone"),
        ('[[upstream]]\nurl = "ftp://a"\n', "http://"),
    ],
)
def test_what_cannot_be_read_is_said_before_anything_listens(tmp_path: Path, text: str, said: str) -> None:
    import subprocess
    import sys

    told = subprocess.run(
        [sys.executable, "-m", "kvpolicy", "serve", "--config", config(tmp_path, text)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert told.returncode == 2
    assert said in told.stderr
    assert "Traceback" not in told.stderr
    assert not told.stdout or not json.loads(told.stdout)
