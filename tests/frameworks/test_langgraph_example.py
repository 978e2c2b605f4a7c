"""docs/examples/research does what its page says: with the policy less is computed again."""

from __future__ import annotations

import json
import subprocess
import sys

from tests.frameworks.scenes import ROOT

PROGRAM = ROOT / "docs" / "examples" / "research" / "research.py"


def test_with_the_policy_less_is_computed_again() -> None:
    done = subprocess.run(
        [sys.executable, str(PROGRAM), "--json"], capture_output=True, text=True, timeout=240, check=False, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    off, on = json.loads(done.stdout)
    assert (off["mode"], on["mode"]) == ("off", "enforce")
    assert off["calls"] == on["calls"] == 16 and off["answer"] == on["answer"]
    assert off["prompt_tokens"] == on["prompt_tokens"]
    assert on["recomputed_tokens"] < 0.7 * off["recomputed_tokens"]
    assert {"planner", "judge", "searcher searcher-0"} <= set(on["why"])
    assert all("rule" in " ".join(sentences) for sentences in on["why"].values()), on["why"]
