"""The files in docs/deploy are read by the programs they are written for, and say of the gateway what is true."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import sys
import time
import tomllib
from hashlib import sha256
from pathlib import Path

import httpx
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from kvpolicy.service.config import Config, checked_config
from tests.simulated.running import running

DEPLOY = Path(__file__).resolve().parents[2] / "docs" / "deploy"
PROMETHEUS = DEPLOY / "prometheus"
CHAT = {"model": "sim", "messages": [{"role": "user", "content": "tell me"}], "max_tokens": 3}
needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool is not here: apt-get install prometheus"
)


def run(*words: str) -> str:
    told = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert told.returncode == 0, told.stdout + told.stderr
    return told.stdout + told.stderr


@needs_promtool
@pytest.mark.parametrize(
    "words",
    [("check", "config", "prometheus.yml"), ("check", "rules", "alerts.yml"), ("test", "rules", "alerts_test.yml")],
)
def test_promtool_takes_the_rules_and_their_tests(tmp_path: Path, words: tuple[str, ...]) -> None:
    shutil.copytree(PROMETHEUS, tmp_path, dirs_exist_ok=True)
    (tmp_path / "kvpolicy-metrics-key").write_text("the key for metrics")
    assert "SUCCESS" in run("promtool", *words[:2], str(tmp_path / words[2]))


def queries() -> dict[str, str]:
    """Every query of the dashboard and the rules, by where it stands."""
    board = json.loads((DEPLOY / "grafana" / "kvpolicy.json").read_text())
    found = {f"{p['title']} {t['refId']}": t["expr"] for p in board["panels"] for t in p["targets"]}
    rules = yaml.safe_load((PROMETHEUS / "alerts.yml").read_text())
    return found | {rule["alert"]: rule["expr"] for group in rules["groups"] for rule in group["rules"]}


@needs_promtool
def test_the_dashboards_queries_are_queries(tmp_path: Path) -> None:
    rows = [
        {"record": f"q{number}", "expr": text.replace("$__rate_interval", "5m")}
        for number, text in enumerate(queries().values())
    ]
    file = tmp_path / "q.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "q", "rules": rows}]}))
    run("promtool", "check", "rules", str(file))


def test_every_metric_that_is_asked_for_is_there() -> None:
    with running("engine") as engine, running("serve", "--upstream", engine) as at:
        for _ in range(2):
            assert httpx.post(f"{at}/v1/chat/completions", json=CHAT).status_code == 200
        text = httpx.get(f"{at}/metrics").text
    families = {family.name: family for family in text_string_to_metric_families(text)}
    there = {f"{name}{end}" for name in families for end in ("", "_total", "_bucket", "_count", "_sum")}
    for where, query in queries().items():
        for name in re.findall(r"kvpolicy_\w+", query):
            assert name in there, f"{where}: {name}"
    outcomes = {s.labels["outcome"] for s in families["kvpolicy_requests"].samples}
    for query in queries().values():
        for listed in re.findall(r'kvpolicy_requests_total{outcome=~?"([^"]+)"', query):
            assert set(listed.split("|")) <= outcomes
    count = next(s for s in families["kvpolicy_decision_duration_seconds"].samples if s.name.endswith("_count"))
    assert count.value == 2
    assert (
        sum(s.value for s in families["kvpolicy_time_to_first_byte_seconds"].samples if s.name.endswith("_count")) == 2
    )


def test_manifests_are_what_kubernetes_takes() -> None:
    pytest.importorskip("kubernetes_validate")
    program = str(Path(sys.executable).parent / "kubernetes-validate")
    paths = sorted((DEPLOY / "kubernetes").glob("*.yaml"))
    assert paths
    for path in paths:
        documents = list(yaml.safe_load_all(path.read_text()))
        assert len(documents) >= 6
        run(program, "--strict", "-k", "1.31", str(path))
        run(program, "--strict", str(path))


def test_a_manifest_with_a_wrong_key_is_noticed(tmp_path: Path) -> None:
    program = str(Path(sys.executable).parent / "kubernetes-validate")
    text = (DEPLOY / "kubernetes" / "kvpolicy.yaml").read_text().replace("readinessProbe:", "readynessProbe:")
    (tmp_path / "k.yaml").write_text(text)
    told = subprocess.run([program, "--strict", str(tmp_path / "k.yaml")], capture_output=True, check=False, timeout=60)
    assert told.returncode != 0


def texts() -> tuple[str, str]:
    """The configurations of the systemd unit and of the cluster."""
    (cluster,) = [
        document["data"]["serve.toml"]
        for document in yaml.safe_load_all((DEPLOY / "kubernetes" / "kvpolicy.yaml").read_text())
        if document["kind"] == "ConfigMap"
    ]
    return (DEPLOY / "serve.toml").read_text(), cluster


def configurations() -> list[Config]:
    """The same, read."""
    return [checked_config(tomllib.loads(text), "deploy") for text in texts()]


@pytest.mark.parametrize("which", [0, 1])
def test_the_gateway_starts_with_them(tmp_path: Path, which: int) -> None:
    """Moved are only the files' places, and where it listens: engines and Redis may be away."""
    text, named = texts()[which], []
    for name in re.findall(r'^(?:secret_file|channel_token_file) = "(.*)"', text, re.MULTILINE):
        (tmp_path / Path(name).name).write_text("0123456789abcdef" * 4)
        named.append(name)
        text = text.replace(name, str(tmp_path / Path(name).name))
    assert named
    text = text.replace("/var/lib/kvpolicy/state", str(tmp_path / "state"))
    text = text.replace('"0.0.0.0"', '"127.0.0.1"').replace("port = 8080", "port = 0")
    (tmp_path / "serve.toml").write_text(text)
    with running("serve", "--config", str(tmp_path / "serve.toml")) as at:
        assert httpx.get(f"{at}/healthz").text == "ok\n"


def test_configurations_are_ones_the_gateway_reads() -> None:
    for config in configurations():
        assert not config.open
        assert config.admin.key is not None
        assert config.policy.mode == "shadow", "what is new begins by watching"


def test_metrics_are_open_to_nobody_who_is_only_a_client() -> None:
    """They name all tenants. A network policy that lets clients in on the port does not keep them from a path."""
    rules = [
        rule
        for document in yaml.safe_load_all((DEPLOY / "kubernetes" / "kvpolicy.yaml").read_text())
        if document["kind"] == "NetworkPolicy"
        for rule in document["spec"]["ingress"]
    ]
    assert rules
    alone, cluster = configurations()
    assert not alone.admin.metrics_open
    assert not cluster.admin.metrics_open or all(rule.get("from") for rule in rules)
    (scraper,) = yaml.safe_load((PROMETHEUS / "prometheus.yml").read_text())["scrape_configs"]
    assert scraper["authorization"]["credentials_file"] == "kvpolicy-metrics-key"
    assert alone.admin.metrics_key is not None
    assert cluster.admin.metrics_key is not None


def test_times_to_stop_fit_together() -> None:
    drain = checked_config({"upstream": [{"url": "http://a"}]}, "x").limits.drain_s
    unit = (DEPLOY / "systemd" / "kvpolicy.service").read_text()
    assert int(re.search(r"TimeoutStopSec=(\d+)", unit).group(1)) > drain  # type: ignore[union-attr]
    documents = yaml.safe_load_all((DEPLOY / "kubernetes" / "kvpolicy.yaml").read_text())
    (pod,) = [each["spec"]["template"]["spec"] for each in documents if each["kind"] == "Deployment"]
    wait = int(pod["containers"][0]["lifecycle"]["preStop"]["exec"]["command"][1])
    assert pod["terminationGracePeriodSeconds"] > drain + wait


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not here")
def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    text = (DEPLOY / "systemd" / "kvpolicy.service").read_text()
    assert "ExecStart=/opt/kvpolicy/bin/kvp serve" in text
    given = {f"/run/credentials/kvpolicy.service/{name}" for name in re.findall(r"^LoadCredential=(.*?):", text, re.M)}
    assert given == set(re.findall(r'^(?:secret_file|channel_token_file) = "(.*)"', texts()[0], re.M))
    unit = tmp_path / "kvpolicy.service"
    unit.write_text(text.replace("/opt/kvpolicy/bin/kvp", sys.executable))
    told = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)], capture_output=True, text=True, timeout=60, check=False
    )
    assert "kvpolicy.service" not in told.stderr, told.stderr


def test_the_container_runs_the_gateway_as_nobody_with_extras_that_exist() -> None:
    text = (DEPLOY / "Containerfile").read_text()
    project = tomllib.loads((DEPLOY.parents[1] / "pyproject.toml").read_text())["project"]
    extras = re.search(r"'\.\[([^\]]+)\]'", text)
    assert extras is not None
    assert set(extras.group(1).split(",")) <= set(project["optional-dependencies"])
    assert "kvp" in project["scripts"]
    assert re.search(r"^USER \d+", text, re.MULTILINE)
    entry = re.search(r"^ENTRYPOINT (\[.*\])$", text, re.MULTILINE)
    assert entry is not None
    assert json.loads(entry.group(1))[-1] == "serve"


# --- the real Prometheus --------------------------------------------------------------------------------------


@pytest.mark.skipif(shutil.which("prometheus") is None, reason="prometheus is not here: apt-get install prometheus")
def test_prometheus_scrapes_the_gateway(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    key, keys = "the scraper's key", sha256(b"a client's key").hexdigest()
    (tmp_path / "kvpolicy-metrics-key").write_text(f"{key}\n")
    settings = tmp_path / "kvp.toml"
    with running("engine") as engine:
        settings.write_text(
            f'[[upstream]]\nurl = "{engine}"\n[[tenant]]\nname = "a"\nkeys = ["{keys}"]\n'
            f'[admin]\nkey = "{"0" * 64}"\nmetrics_key = "{sha256(key.encode()).hexdigest()}"\n'
        )
        with running("serve", "--config", str(settings)) as at:
            scraped(at, tmp_path, port)


def scraped(at: str, tmp_path: Path, port: int) -> None:
    """A Prometheus with our configuration finds a gateway's counters."""
    for _ in range(3):
        httpx.post(f"{at}/v1/chat/completions", json=CHAT, headers={"x-api-key": "a client's key"})
    config = yaml.safe_load((PROMETHEUS / "prometheus.yml").read_text())
    config["global"]["scrape_interval"] = "200ms"
    config["scrape_configs"][0]["static_configs"][0]["targets"] = [at.removeprefix("http://")]
    shutil.copy(PROMETHEUS / "alerts.yml", tmp_path)
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(config))
    words = [
        "prometheus",
        f"--config.file={tmp_path / 'prometheus.yml'}",
        f"--storage.tsdb.path={tmp_path / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            found, ends = None, time.monotonic() + 60
            while not found and time.monotonic() < ends:
                time.sleep(0.3)
                try:
                    told = httpx.get(
                        f"http://127.0.0.1:{port}/api/v1/query",
                        params={"query": 'kvpolicy_requests_total{outcome="requests"}'},
                    ).json()
                    found = told["data"]["result"]
                except (httpx.HTTPError, ValueError, KeyError):
                    continue
            assert found
            assert found[0]["value"][1] == "3"
            assert found[0]["metric"]["job"] == "kvpolicy"
        finally:
            process.terminate()
