"""Whether results on the page hang on a rounding: at the loads where policies differ most, steps taken at once and
steps taken one by one give the same, though times there have no exact sums.
"""

from __future__ import annotations

import pytest

from kvpolicy.simulate.closed.compare import Engine, play
from kvpolicy.simulate.closed.demand import schedule_of
from kvpolicy.simulate.closed.engine import Engine as Modelled
from kvpolicy.simulate.closed.models import engine_model
from kvpolicy.simulate.names import contender
from kvpolicy.simulate.trace import Facts
from kvpolicy.simulate.workloads.catalogue import workload

POOL_TOKENS = 458_000  # as in the results


@pytest.mark.parametrize(("shape", "per_s"), [("continuum-bfcl", 0.6), ("continuum-swe", 0.1)])
def test_results_are_the_same_with_steps_one_by_one(shape: str, per_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rules that no policy is asked for: under one, steps taken at once are looked at every 0.25 s, and so not the
    same."""
    facts = Facts()
    schedule = schedule_of(workload(shape, 11, {"sessions": 60.0, "per_s": per_s}).calls(facts))
    for name, queue in (("lru", "fcfs"), ("lru", "session"), ("continuum-released", "fcfs")):
        engine = Engine(engine_model("h100-8b"), queue=queue)
        many = play(schedule, facts, contender(name), POOL_TOKENS // facts.block_size, engine)
        with monkeypatch.context() as patch:
            patch.setattr(Modelled, "steps_at_once", lambda engine, plan, until, now: 1)
            single = play(schedule, facts, contender(name), POOL_TOKENS // facts.block_size, engine)
        assert many.evictions > 0
        assert (many.steps, many.block_hits, many.evictions) == (single.steps, single.block_hits, single.evictions)
        assert many.ttft == pytest.approx(single.ttft, rel=0, abs=1e-9)
        assert many.session_s == pytest.approx(single.session_s, rel=0, abs=1e-9)
