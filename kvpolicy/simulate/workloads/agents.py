"""Coding and tool-calling agents: Continuum's two shapes, InferCept's tools, and the workload of vLLM's PR #38514.

- continuum-swe. Published: 10.9 ± 2.1 turns, 70,126 ± 19,732 tokens a program, Poisson arrivals, most tools under 2 s
with   a long tail. Assumed: a program's tokens are its last prompt with the answer; each tool's times are log-normal;
answers   of about 200 tokens; a shared head of 1,500 tokens.
- continuum-bfcl. Published: 6.3 turns, web search. Assumed: 40,000 ± 15,000 tokens, the times of a search, the head.
- infercept. Published: the mean time of each of six tools. Assumed: their spread (half the mean), turns and lengths.
- pr38514. Published: turns N(3, 1.5) in 1 to 8, a tool with p = 0.6, delay 5 s, first input N(800, 200), system prompt
  512, 10 sessions/s. Assumed: later inputs N(200, 50), answers N(150, 50), 5 s also where no tool is called.

Sources: Continuum, Li et al., arXiv 2511.02230; InferCept, Abhyankar et al., ICML 2024; vllm-project/vllm pull request
38514, comment of 2026-04-22. Sessions are independent of each other.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping

from kvpolicy.request import Owner
from kvpolicy.simulate.workloads.drawing import between, lognormal, normal, poisson, positive, shares
from kvpolicy.simulate.workloads.making import Session, Talk, arrivals
from kvpolicy.simulate.workloads.prompt import Blocks, Prompt

Settings = Mapping[str, float]

# The first word of the one bash block of an answer: (name, share of calls, median seconds, sigma of the logarithm).
SWE_TOOLS = (
    ("cat", 0.25, 0.15, 0.8),
    ("grep", 0.20, 0.30, 0.9),
    ("sed", 0.15, 0.20, 0.8),
    ("ls", 0.10, 0.10, 0.6),
    ("python", 0.15, 1.20, 1.2),
    ("pytest", 0.15, 9.00, 1.2),
)
BFCL_TOOLS = (("search", 0.6, 1.2, 0.9), ("fetch", 0.4, 0.8, 1.1))
INFERCEPT_TOOLS = {"math": 0.0002, "environment": 0.009, "qa": 0.7, "tts": 17.2, "image": 20.0, "chat": 28.6}


def swe(settings: Settings, seed: int, blocks: Blocks) -> Iterable[Session]:
    """mini-swe-agent: one tool a turn, the prompt grows by what it says."""
    for number, start in enumerate(_starts(settings, seed)):
        draw = random.Random(f"{seed}/swe/{number}")
        turns = round(normal(draw, 10.9, 2.1, 2))
        total = round(positive(draw, 70_126, 19_732))
        yield _program(f"swe{number}", draw, start, turns, total, (1_500, 200), SWE_TOOLS, blocks)


def bfcl(settings: Settings, seed: int, blocks: Blocks) -> Iterable[Session]:
    """Web search: fewer turns, long results."""
    for number, start in enumerate(_starts(settings, seed)):
        draw = random.Random(f"{seed}/bfcl/{number}")
        turns = 2 + poisson(draw, 4.3)
        total = min(round(positive(draw, 40_000, 15_000)), 128_000)
        yield _program(f"bfcl{number}", draw, start, turns, total, (2_000, 60), BFCL_TOOLS, blocks)


def _starts(settings: Settings, seed: int) -> Iterable[float]:
    return arrivals(random.Random(f"{seed}/starts"), int(settings["sessions"]), settings["per_s"])


def _program(
    name: str,
    draw: random.Random,
    start: float,
    turns: int,
    total: int,
    sizes: tuple[int, int],
    tools: tuple[tuple[str, float, float, float], ...],
    blocks: Blocks,
) -> Session:
    """`turns` calls; the last one's prompt and answer have `total` tokens. sizes: the shared head's and, in the mean,
    an answer's."""
    head, answer = sizes
    talk = Talk(Owner(session=name), start)
    outputs = [max(1, round(between(draw, 0.8 * answer, 2 * answer))) for _ in range(turns)]
    inputs = shares(draw, turns, max(total - head - sum(outputs), turns))
    prompt = Prompt(blocks).add("system", head, f"{name.rstrip('0123456789')} head").add("turn", inputs[0])
    for turn in range(turns):
        if turn == turns - 1:
            yield talk.call(prompt, outputs[turn])
            break
        tool, _, median, sigma = draw.choices(tools, [share for _, share, _, _ in tools])[0]
        yield talk.call(prompt, outputs[turn], (tool,))
        talk.wait(lognormal(draw, median, sigma))
        prompt.add("turn", outputs[turn]).add("tool_result", inputs[turn + 1], tool=tool)
    yield talk.tell("session_end")


def infercept(settings: Settings, seed: int, blocks: Blocks) -> Iterable[Session]:
    """Each session calls one of the six tools again and again, all tools as often."""
    names = list(INFERCEPT_TOOLS)
    for number, start in enumerate(_starts(settings, seed)):
        draw = random.Random(f"{seed}/infercept/{number}")
        yield _interceptions(f"{names[number % len(names)]}{number}", names[number % len(names)], draw, start, blocks)


def _interceptions(name: str, tool: str, draw: random.Random, start: float, blocks: Blocks) -> Session:
    talk = Talk(Owner(session=name), start)
    prompt = Prompt(blocks).add("system", 256, f"{tool} head").add("turn", round(normal(draw, 1_000, 400, 100)))
    mean = INFERCEPT_TOOLS[tool]
    for _ in range(1 + poisson(draw, 5)):
        output = round(normal(draw, 60, 20, 8))
        yield talk.call(prompt, output, (tool,))
        talk.wait(positive(draw, mean, mean / 2))
        prompt.add("turn", output).add("tool_result", round(normal(draw, 60, 20, 8)), tool=tool)
    yield talk.call(prompt, round(normal(draw, 60, 20, 8)))
    yield talk.tell("session_end")


def pr38514(settings: Settings, seed: int, blocks: Blocks) -> Iterable[Session]:
    """Ten sessions a second for two minutes, two or three short turns each."""
    for number, start in enumerate(_starts(settings, seed)):
        draw = random.Random(f"{seed}/pr/{number}")
        yield _short_turns(f"s{number}", draw, start, blocks)


def _short_turns(name: str, draw: random.Random, start: float, blocks: Blocks) -> Session:
    talk = Talk(Owner(session=name), start)
    prompt = Prompt(blocks).add("system", 512, "system").add("turn", round(normal(draw, 800, 200, 1)))
    turns = round(normal(draw, 3, 1.5, 1, 8))
    for turn in range(turns):
        output = round(normal(draw, 150, 50, 1))
        tool = draw.random() < 0.6
        yield talk.call(prompt, output, ("tool",) if tool else ())
        if turn < turns - 1:
            talk.wait(5.0)
            kind = "tool_result" if tool else "turn"
            prompt.add("turn", output).add(kind, round(normal(draw, 200, 50, 1)))
    yield talk.tell("session_end")
