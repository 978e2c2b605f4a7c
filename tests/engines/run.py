"""`make test-engines`: the tests that run real engines, each suite in its own environment, and what was not run.

Builds what is missing (`environments.py`, `tiny_model.py`), runs pytest once a suite, and ends with a table. Exit
status 0 only where every suite ran tests and all of them passed.

    python3 tests/engines/run.py [SUITE…] [-- ARGUMENTS OF PYTEST]
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
CHECKOUT = HERE.parents[1]
sys.path.insert(0, str(CHECKOUT))

from tests.engines import environments  # noqa: E402
from tests.engines.environments import ENVIRONMENTS, HOME  # noqa: E402

MODEL_OF = "vllm-0.32.0"


@dataclass(frozen=True, slots=True)
class Suite:
    """title: what it shows. folder: its tests. environment: where they run. within_s: then it is stopped."""

    name: str
    title: str
    folder: str
    environment: str
    within_s: int = 900


@dataclass(slots=True)
class Result:
    """Counts of one suite. fault: why it did not run to its end. skipped: reasons."""

    passed: int = 0
    failed: int = 0
    seconds: float = 0.0
    fault: str | None = None
    skipped: list[str] = field(default_factory=list)

    @property
    def fine(self) -> bool:
        """It ran, and nothing failed."""
        return self.fault is None and self.passed > 0 and self.failed == 0


SUITES = (
    Suite("core-0.32.0", "vLLM 0.32.0: real BlockPool and Scheduler", "vllm/core", "vllm-0.32.0"),
    Suite("core-0.33.0", "vLLM 0.33.0: real BlockPool and Scheduler", "vllm/core", "vllm-0.33.0"),
    Suite("live-0.32.0", "vLLM 0.32.0: a served model, over HTTP", "vllm/live", "vllm-0.32.0", 1500),
    Suite("clients", "aiperf 0.13.0: the gateway in front of a simulated engine", "clients", "aiperf-0.13.0"),
)
NOT_RUN = (
    "vLLM 0.33.0 served: there is no build of it for machines without a GPU",
    "vLLM on a GPU, tensor and data parallel ranks, several KV groups in a served model: this needs such a machine",
    "the offloading connector's transfers to a CPU tier: they copy from a GPU",
    "other engines: no adapter for them is tested here",
)


def main(words: list[str]) -> int:
    """Run the named suites, or all."""
    names, _, extra = _split(words)
    chosen = [suite for suite in SUITES if not names or suite.name in names]
    if not chosen:
        print(f"no suite {names}; there are {', '.join(suite.name for suite in SUITES)}", file=sys.stderr)
        return 2
    needed = list(dict.fromkeys([MODEL_OF, *(suite.environment for suite in chosen)]))
    if environments.main(needed) != 0:
        return 1
    model = HOME / "models" / "tiny"
    if not (model / "ready").is_file():
        command = [str(ENVIRONMENTS[MODEL_OF].python), str(HERE / "tiny_model.py"), str(model)]
        quiet = {**os.environ, "HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}
        subprocess.run(command, stdin=subprocess.DEVNULL, env=quiet, check=True)
    results = {suite: _run(suite, model, extra) for suite in chosen}
    return _report(results)


def _split(words: list[str]) -> tuple[list[str], str, list[str]]:
    at = words.index("--") if "--" in words else len(words)
    return words[:at], "--", words[at + 1 :]


def _run(suite: Suite, model: Path, extra: list[str]) -> Result:
    python = ENVIRONMENTS[suite.environment].python
    print(f"— {suite.title}", flush=True)
    environment = {
        **os.environ,
        "KVPOLICY_ENGINE_TESTS": suite.environment,
        "KVPOLICY_TINY_MODEL": str(model),
        "KVPOLICY_PYTHON": sys.executable,
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_LOGGING_LEVEL": os.environ.get("VLLM_LOGGING_LEVEL", "WARNING"),
    }
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [str(python), "-m", "pytest", "-p", "no:cacheprovider", f"--junitxml={report}"]
        command += [str(HERE / suite.folder), *extra]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, cwd=CHECKOUT, env=environment)
        fault = None
        try:
            process.wait(suite.within_s)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)  # pytest ends its servers on the way out
            fault = f"stopped after {suite.within_s} s"
            try:
                process.wait(90)
            except subprocess.TimeoutExpired:
                process.kill()
        result = _read(report)
    result.seconds = time.monotonic() - began
    if fault is None and process.returncode not in (0, 1):
        fault = f"pytest ended with {process.returncode}"
    result.fault = fault or result.fault
    return result


def _read(report: Path) -> Result:
    if not report.is_file():
        return Result(fault="no report was written")
    result = Result()
    for case in ET.parse(report).getroot().iter("testcase"):
        skipped = case.find("skipped")
        if skipped is not None:
            result.skipped.append(f"{case.get('name')}: {skipped.get('message')}")
        elif case.find("failure") is not None or case.find("error") is not None:
            result.failed += 1
        else:
            result.passed += 1
    return result


def _report(results: dict[Suite, Result]) -> int:
    print("— tests on real engines")
    for suite, result in results.items():
        said = f"{result.passed} passed, {result.failed} failed, {len(result.skipped)} skipped"
        word = "ok    " if result.fine else "FAILED"
        print(
            f"  {word} {suite.title}: {said} in {result.seconds:.0f} s" + (f"; {result.fault}" if result.fault else "")
        )
    print("  Not run:")
    for suite in SUITES:
        if suite not in results:
            print(f"  - {suite.title}: not asked for")
    for suite, result in results.items():
        for reason in result.skipped:
            print(f"  - {suite.title}: {reason}")
    for line in NOT_RUN:
        print(f"  - {line}")
    return 0 if all(result.fine for result in results.values()) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
