"""`make test-frameworks`: the tests of each agent framework, in its own environment, and a table at the end.

Builds what is missing (`environments.py`). Exit status 0 only where every framework ran tests and all of them passed.

    python3 tests/frameworks/run.py [NAME…]
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))

from tests.frameworks import environments  # noqa: E402
from tests.frameworks.environments import ENVIRONMENTS  # noqa: E402

WITHIN_S = 600


def main(names: list[str]) -> int:
    """Run the named ones, or all."""
    chosen = names or [name for name in ENVIRONMENTS if (HERE / f"test_{name}.py").is_file()]
    built = environments.main(chosen)
    said = {name: _run(name) for name in chosen if name in ENVIRONMENTS}
    print("— tests with agent frameworks")
    for name, (fine, text) in said.items():
        print(f"  {'ok    ' if fine else 'FAILED'} {' '.join(ENVIRONMENTS[name].packages)}: {text}")
    return 0 if built == 0 and all(fine for fine, _ in said.values()) else 1


def _run(name: str) -> tuple[bool, str]:
    environment = ENVIRONMENTS[name]
    if not environment.ready:
        return False, "its environment could not be built"
    print(f"— {' '.join(environment.packages)}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [str(environment.python), "-m", "pytest", "-p", "no:cacheprovider", f"--junitxml={report}"]
        command += [str(path) for path in sorted(HERE.glob(f"test_{name}*.py"))]
        told = {**os.environ, "KVPOLICY_FRAMEWORK": name}
        try:
            subprocess.run(
                command, stdin=subprocess.DEVNULL, cwd=HERE.parents[1], env=told, timeout=WITHIN_S, check=False
            )
        except subprocess.TimeoutExpired:
            return False, f"stopped after {WITHIN_S} s"
        if not report.is_file():
            return False, "no report was written"
        cases = list(ET.parse(report).getroot().iter("testcase"))
    failed = sum(case.find("failure") is not None or case.find("error") is not None for case in cases)
    skipped = sum(case.find("skipped") is not None for case in cases)
    passed = len(cases) - failed - skipped
    return passed > 0 and not failed, f"{passed} passed, {failed} failed, {skipped} skipped"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
