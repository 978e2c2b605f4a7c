"""What is wrong with a configuration is said once, with its place and the mend; a key's hash is had from a real key."""

from __future__ import annotations

import io
from hashlib import sha256
from pathlib import Path

import pytest

from kvpolicy.cli.main import main
from kvpolicy.faults import InputFault
from kvpolicy.service.config import checked_config, read_config
from kvpolicy.service.tenants import Tenants

GOOD = {"url": "http://a"}


def said(document: object) -> str:
    with pytest.raises(InputFault) as fault:
        checked_config(document, "serve.toml")
    return str(fault.value)


def test_what_is_wrong_inside_a_list_is_not_said_of_the_list_too() -> None:
    address = "an address that begins with http:// or https:// is needed"
    assert said({"upstream": [{"url": "127.0.0.1:8901"}]}) == f"serve.toml: upstream.0.url: {address}"
    assert said({"upstream": [GOOD, {"url": "b"}], "policy": {"mode": "loud"}}).count("serve.toml: ") == 2


def test_an_empty_list_is_still_said() -> None:
    assert said({"upstream": []}).startswith("serve.toml: upstream: ")


@pytest.mark.parametrize("key", ["secret", "0" * 63, "A" * 64])
@pytest.mark.parametrize("place", ["tenant.0.keys.0", "admin.key"])
def test_a_key_that_is_no_hash_is_told_how_to_be_one(key: str, place: str) -> None:
    more = {"admin": {"key": key}} if place == "admin.key" else {"tenant": [{"name": "t", "keys": [key]}]}
    told = said({"upstream": [GOOD], **more})
    assert told.startswith(f"serve.toml: {place}: the SHA-256 of a key is needed, 64 hexadecimal digits")
    assert "`kvp serve --hash-key`" in told
    assert key not in told, "it may be the key itself"


@pytest.mark.parametrize("given", ["", "\n", "  \n"])
def test_nothing_is_no_key(given: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(given))
    assert main(["serve", "--hash-key"]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("kvp: --hash-key: there is no key on the standard input")


def test_a_key_is_hashed_and_its_hash_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("the key\n"))
    assert main(["serve", "--hash-key"]) == 0
    digest = capsys.readouterr().out.strip()
    assert digest == sha256(b"the key").hexdigest()
    file = tmp_path / "serve.toml"
    file.write_text(f'[[upstream]]\nurl = "http://a"\n[[tenant]]\nname = "t"\nkeys = ["{digest}"]\n', encoding="utf-8")
    assert read_config(str(file)).tenant[0].keys == (digest,)


def test_a_key_of_tokens_that_is_no_text_is_told(tmp_path: Path) -> None:
    pytest.importorskip("jwt")
    file = tmp_path / "key.der"
    file.write_bytes(b"\x30\x82\xff\xfe")
    config = checked_config({"upstream": [GOOD], "jwt": {"key_file": str(file)}}, "kvp.toml")
    with pytest.raises(InputFault, match=r"jwt\.key_file: .*key\.der: it is no text; .*PEM"):
        Tenants(config)


@pytest.mark.parametrize(
    ("text", "algorithms", "said"),
    [
        ("", ["HS256"], "HS256"),
        ("-----BEGIN PUBLIC KEY-----\nMIIB", ["RS256", "ES256"], "RS256 or ES256"),
        ("a secret", ["RS256"], "RS256"),
    ],
    ids=["empty", "half", "another's"],
)
def test_a_file_without_a_key_of_tokens_is_told(text: str, algorithms: list[str], said: str, tmp_path: Path) -> None:
    """Else every token is refused, and nobody knows why; an empty secret is one that anybody has."""
    pytest.importorskip("jwt")
    file = tmp_path / "key"
    file.write_text(text)
    section = {"key_file": str(file), "algorithms": algorithms}
    with pytest.raises(InputFault) as fault:
        Tenants(checked_config({"upstream": [GOOD], "jwt": section}, "kvp.toml"))
    assert str(fault.value) == f"jwt.key_file: {file}: it holds no key for {said}"
