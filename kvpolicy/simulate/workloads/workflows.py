"""KVFlow's workflows: chains of ten agents, and the four agents of PEER (Pan et al., NeurIPS 2025, arXiv 2507.07400).

Published: a chain of 10 agents that run one after the other, ten times after a warm-up; configurations named by the
tokens of fixed prompt, dynamic input and output (8192/32/32, 4096/32/32, 8192/1024/1024; many workflows at once: 1024
or 512/256/256, 10 to 64 of them); PEER: four agents (plan, execute, express, review) on financial questions, prompts of
tens to hundreds of tokens. Assumed: each workflow's agents have prompts of their own (in PEER all tasks share the
four), a step takes the time of its answer, 20 % more or less; questions of a task follow each other after a human's
pause. The agent before leaves nothing that the next one's prompt could hit: its words stand behind another fixed
prompt.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Mapping

from kvpolicy.request import Owner
from kvpolicy.simulate.workloads.drawing import normal
from kvpolicy.simulate.workloads.making import Session, Talk, arrivals
from kvpolicy.simulate.workloads.prompt import Blocks, Prompt

AGENTS = 10
PEER = (("plan", 220), ("execute", 380), ("express", 160), ("review", 300))  # fixed prompts: tens to hundreds of tokens


def chain_graph(rounds: int) -> dict[str, object]:
    """Ten agents in a row, taken up again from the first."""
    names = [f"agent{i}" for i in range(AGENTS)]
    edges = [[one, other] for one, other in itertools.pairwise(names)]
    return {"nodes": names, "edges": edges, "loops": [{"from": names[-1], "to": names[0], "at_most": rounds}]}


def peer_graph() -> dict[str, object]:
    """Plan, execute, express, review; the reviewer may ask for another plan."""
    names = [name for name, _ in PEER]
    edges = [[one, other] for one, other in itertools.pairwise(names)]
    return {"nodes": names, "edges": edges, "loops": [{"from": "review", "to": "plan", "at_most": 8}]}


def chain(settings: Mapping[str, float], seed: int, blocks: Blocks) -> Iterable[Session]:
    """`workflows` chains side by side, each run `rounds` times after one to warm up."""
    starts = arrivals(random.Random(f"{seed}/starts"), int(settings["workflows"]), 1.0)
    for number, start in enumerate(starts):
        yield _chain(f"flow{number}", random.Random(f"{seed}/chain/{number}"), start, settings, blocks)


def _chain(name: str, draw: random.Random, start: float, settings: Mapping[str, float], blocks: Blocks) -> Session:
    fixed, dynamic, output = (int(settings[key]) for key in ("fixed", "dynamic", "output"))
    heads = [Prompt(blocks).add("system", fixed, f"{name} agent {i}") for i in range(AGENTS)]
    talk = Talk(Owner(session=name, run=name), start)
    for _ in range(int(settings["rounds"]) + 1):
        for index, head in enumerate(heads):
            agent = f"agent{index}"
            step = Talk(Owner(session=name, run=name, agent=agent), talk.now, {"node": agent, "workflow": "chain"})
            step.number = talk.number
            step.pause = 0.0 if talk.last else None
            yield step.call(head.fork().add("turn", dynamic), output, waits_for=[talk.last])
            talk.last, talk.number = step.last, step.number
            talk.now += (step.now - talk.now) * draw.uniform(0.8, 1.2)
    yield talk.tell("workflow_end")


def peer(settings: Mapping[str, float], seed: int, blocks: Blocks) -> Iterable[Session]:
    """`tasks` conversations about finance, each question answered by the four agents; three in ten answers are reviewed
    once more."""
    starts = arrivals(random.Random(f"{seed}/starts"), int(settings["tasks"]), settings["per_s"])
    for number, start in enumerate(starts):
        yield _peer(f"task{number}", random.Random(f"{seed}/peer/{number}"), start, int(settings["questions"]), blocks)


def _peer(name: str, draw: random.Random, start: float, questions: int, blocks: Blocks) -> Session:
    talk = Talk(Owner(session=name), start)
    for question in range(questions):
        run, rounds = f"{name}.{question}", 2 if draw.random() < 0.3 else 1
        for _ in range(rounds):
            for agent, fixed in PEER:
                step = Talk(Owner(session=name, run=run, agent=agent), talk.now, {"node": agent, "workflow": "peer"})
                step.number, step.pause = talk.number, talk.pause
                prompt = Prompt(blocks).add("system", fixed, f"peer {agent}")
                prompt.add("turn", round(normal(draw, 150, 60, 20)))
                yield step.call(prompt, round(normal(draw, 120, 50, 10)), waits_for=[talk.last])
                talk.last, talk.number, talk.pause = step.last, step.number, 0.0
                talk.now += (step.now - talk.now) * draw.uniform(0.8, 1.2)
        yield talk.now, {"event": "workflow_end", "session": name, "run": run}
        talk.wait(draw.expovariate(1 / 20.0))
    yield talk.now, {"event": "session_end", "session": name}
