"""A load generator that people use, aiperf, against the gateway in front of a simulated engine. No network is needed.

Its tokenizer is one of whole words, made here, that round-trips exactly. It names its sessions in a header of its own
accord, and that is all the gateway needs.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.simulated.running import running

SNAPSHOT = "0" * 40


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Hugging Face home whose cache has a tokenizer named `local/wtok`."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    folder = tmp_path_factory.mktemp("hf")
    place = folder / "hub" / "models--local--wtok"
    (place / "refs").mkdir(parents=True)
    (place / "refs" / "main").write_text(SNAPSHOT, encoding="utf-8")
    snapshot = place / "snapshots" / SNAPSHOT
    snapshot.mkdir(parents=True)
    words = ["<|endoftext|>", "<unk>", *(f"word{n}" for n in range(2000))]
    made = Tokenizer(models.WordLevel({word: n for n, word in enumerate(words)}, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made.save(str(snapshot / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": "<|endoftext|>",
        "pad_token": "<|endoftext|>",
        "unk_token": "<unk>",
        "chat_template": "{% for m in messages %}{{ m.role }} {{ m.content }} {% endfor %}",
    }
    (snapshot / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    (snapshot / "config.json").write_text(json.dumps({"model_type": "gpt2"}), encoding="utf-8")
    return folder


def profile(url: str, home: Path, out: Path, *more: str) -> dict[str, Any]:
    """Run it; its figures."""
    words = f"profile --model sim --url {url} --endpoint-type chat --streaming --tokenizer local/wtok"
    words += " --conversation-num 3 --conversation-turn-mean 2 --conversation-turn-stddev 0"
    words += " --synthetic-input-tokens-mean 64 --output-tokens-mean 8 --concurrency 2 --ui None"
    command = [str(Path(sys.executable).with_name("aiperf")), *words.split(), "--artifact-dir", str(out), *more]
    quiet = {**os.environ, "HF_HOME": str(home), "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "NO_COLOR": "1"}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=400, env=quiet, stdin=subprocess.DEVNULL, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    (report,) = out.rglob("profile_export_aiperf.json")
    return json.loads(report.read_text(encoding="utf-8"))


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=30) as answer:
        return answer.read().decode()


def counter(text: str, name: str, **labels: str) -> float:
    total = 0.0
    for line in text.splitlines():
        head, _, value = line.rpartition(" ")
        if head.partition("{")[0] == name and all(f'{key}="{said}"' in head for key, said in labels.items()):
            total += float(value)
    return total


@pytest.mark.parametrize("header", ["x-session-affinity", "x-session-id"])
def test_its_conversations_are_sessions_whose_second_turn_is_found(home: Path, tmp_path: Path, header: str) -> None:
    channel = f"unix:{tmp_path}/c"
    with running("engine", "--blocks", "2000", "--decode-s", "0.001", "--channel", channel) as engine:
        settings = tmp_path / "kvp.toml"
        settings.write_text(f'[[upstream]]\nurl = "{engine}"\nchannel = "{channel}"\n', encoding="utf-8")
        with running("serve", "--config", str(settings)) as gateway:
            more = () if header == "x-session-affinity" else ("--session-header", header)
            report = profile(gateway, home, tmp_path / "out", *more)
            owners = json.loads(get(f"{gateway}/v1/owners"))["owners"]
            assert len({row["session"] for row in owners}) == 3, owners
            metrics = get(f"{gateway}/metrics")
            assert counter(metrics, "kvpolicy_decisions_total", outcome="places_wrong") == 0
        told = get(f"{engine}/metrics")
        assert counter(told, "vllm:prefix_cache_hits_total") >= 3 * 48  # each second turn finds its first
    assert report["request_count"]["avg"] == 6
    assert report.get("error_request_count", {}).get("avg", 0) in (0, None)
