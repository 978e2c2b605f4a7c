"""The pages about frameworks can be followed: the start's commands run, its example runs against them, every page leads
to that start and installs an extra that there is, and faults say what to install from a checkout."""

from __future__ import annotations

import functools
import re
import shlex
import tomllib
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from kvpolicy.client.service import Service
from kvpolicy.faults import install
from tests.frameworks.scenes import example
from tests.simulated.running import running

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted((ROOT / "docs" / "frameworks").glob("*.md"))
START = (ROOT / "docs" / "frameworks" / "README.md").read_text(encoding="utf-8")
EXTRAS = set(tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"])


def test_the_start_runs_and_so_does_its_example(tmp_path: Path) -> None:
    found = re.search(r"^```sh\n(.*?)^```$", START, re.MULTILINE | re.DOTALL)
    assert found is not None
    places = {"/tmp/kvp.sock": str(tmp_path / "kvp.sock")}
    with ExitStack() as servers:
        for line in found[1].splitlines():
            words = shlex.split(line.removesuffix("&"))
            command, name, *options = (
                functools.reduce(lambda text, place: text.replace(*place), places.items(), word) for word in words
            )
            if command != "kvp":
                assert (command, name) in (("python3", "-m"), ("pip", "install"))
                continue
            at = options.index("--port")
            port = options[at + 1]
            del options[at : at + 2]
            places[f"http://127.0.0.1:{port}"] = servers.enter_context(running(name, *options))
        service = places["http://127.0.0.1:8700"]  # where every page's example goes
        made = example("README", service)["service"]
        assert isinstance(made, Service)
        assert made.flush(10) and not made.counts.get("failed")
        asked, shown = re.findall(r"^```(?:sh|json)\n(.*?)\n```$", START, re.MULTILINE | re.DOTALL)[1:3]
        assert asked.startswith("curl -s http://127.0.0.1:8700/")
        said = httpx.get(asked.split()[-1].replace("http://127.0.0.1:8700", service)).text
        assert re.fullmatch(".*".join(map(re.escape, shown.split("…"))), said), said
        run, request = (made._ask("GET", "/v1/owners")["owners"][0][name] for name in ("run", "requests"))
        assert made._ask("GET", f"/v1/runs/{run}")["ended"] and made.explain(request[0])["spans"]
        made.close()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_page_leads_to_the_start_and_installs_what_there_is(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    extras = [name for group in re.findall(r"pip install\s-e '\.\[([\w,-]+)\]'", text) for name in group.split(",")]
    assert extras and set(extras) <= EXTRAS
    assert "kvpolicy[" not in text, "no registry has it"
    assert "#start" in text or "## Start" in text
    assert set(re.findall(r"Service\(\"([^\"]+)\"\)(.*)", text)) == {
        ("http://127.0.0.1:8700", "  # kvp serve --port 8700"),
    }


def test_faults_say_what_to_install_from_a_checkout_too() -> None:
    assert install("serve") == "pip install 'kvpolicy[serve]', or in a checkout pip install -e '.[serve]'"
    said = {
        extra for path in (ROOT / "kvpolicy").rglob("*.py")
        for extra in re.findall(r"\{install\('(\w+)'\)\}", path.read_text(encoding="utf-8"))
    }  # fmt: skip
    assert {"serve", "lsp", "otel", "jwt", "events", "bench"} <= said <= EXTRAS
    raw = [path for path in (ROOT / "kvpolicy").rglob("*.py") if "pip install 'kvpolicy[" in path.read_text("utf-8")]
    assert [path.name for path in raw] == ["faults.py"]
