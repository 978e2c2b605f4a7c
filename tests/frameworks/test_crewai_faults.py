"""What goes wrong beside CrewAI, the real package: the application never notices."""

from __future__ import annotations

import asyncio

import pytest
from crewai import Crew
from crewai.hooks import clear_all_hooks

import kvpolicy
from kvpolicy.adapters.frameworks import crewai as adapter
from kvpolicy.adapters.frameworks.crewai import watch
from kvpolicy.client import once
from tests.frameworks.conftest import Stack
from tests.frameworks.crewai_crews import SLOW_S, Engine, agent, crew, fresh, model, served, task
from tests.frameworks.scenes import owners

__all__ = ["fresh", "served"]


def test_a_run_that_is_closed_twice_and_a_crew_that_changes(served: Stack) -> None:
    service, engine = kvpolicy.Service(served.service), Engine()
    llm = model(served, engine)
    team = crew(agent("a", llm))
    run = watch(team, service, session="changed")
    with run:
        late = agent("late", llm)
        team.agents.append(late)
        team.tasks.append(task(late))
        assert team.kickoff().raw == "fine"
    run.__exit__(None, None, None)
    assert [who for who, _ in engine.found] == ["a", "late"]
    assert sum(once.counts.values()) == 1
    assert service.flush(SLOW_S)
    assert {row["phase"] for row in owners(served.service, session="changed")} == {"ended"}


def test_a_task_that_failed_is_not_at_work_any_more(served: Stack) -> None:
    """The application goes on in the same run: the next of that role is the same owner, no branch beside it."""
    service, llm = kvpolicy.Service(served.service), model(served, Engine())

    def refused() -> Crew:
        one = agent("a", llm)
        wrong = task(one, guardrail=lambda output: (False, "refused"), guardrail_max_retries=0)
        return Crew(agents=[one], tasks=[wrong])

    with watch(refused(), service, session="failed"):
        with pytest.raises(Exception, match="refused"):
            refused().kickoff()
        with pytest.raises(Exception, match="refused"):
            asyncio.run(refused().akickoff())
        assert crew(agent("a", llm)).kickoff().raw == "fine"
    assert service.flush(SLOW_S) and once.counts == {}
    assert [(row["agent"], row["branch"]) for row in owners(served.service, session="failed")] == [("a", None)]


def test_what_cannot_be_read_or_is_of_another_version(served: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    service, engine = kvpolicy.Service(served.service), Engine()
    monkeypatch.setattr("kvpolicy.adapters.frameworks.quiet.version", lambda package: "3.0.0")
    monkeypatch.setattr(adapter, "name_of", lambda agent: 1 / 0)
    team = crew(agent("a", model(served, engine)))
    for _ in range(2):
        with watch(object(), service, session="unread"):
            assert team.kickoff().raw == "fine"
    assert [who for who, _ in engine.found] == [None, None]
    assert once.counts["version crewai"] == 2 and once.counts["crewai._before_step"] == 2


def test_hooks_that_were_cleared_come_back(served: Stack) -> None:
    service, engine = kvpolicy.Service(served.service), Engine()
    clear_all_hooks()
    team = crew(agent("a", model(served, engine)))
    team.kickoff()
    with watch(team, service, session="cleared"):
        team.kickoff()
    assert [who for who, _ in engine.found] == [None, "a"]


def test_without_a_service_everything_goes_on(served: Stack) -> None:
    team = crew(agent("alone", model(served, Engine())))
    with watch(team, kvpolicy.Service("http://127.0.0.1:9")):
        assert team.kickoff().raw == "fine"
