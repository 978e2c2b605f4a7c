"""A small research pipeline on LangGraph, with and without a policy: planner, parallel searchers, judge, writer.

Starts a simulated engine (`kvp engine`) and the service (`kvp serve`) in front of it, twice: no GPU, no key. While the
pipeline runs, other users press on the engine's memory between its steps. Printed: tokens that were computed again
though the engine had had them, time to the answer, and why what was kept was kept.

    python docs/examples/research/research.py [--rounds 3] [--blocks 420] [--json]
"""

from __future__ import annotations

import argparse
import json
import operator
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread
from typing import Annotated, Any, TypedDict

import httpx
from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, StateGraph
from langgraph.types import Send

import kvpolicy
from kvpolicy.adapters.frameworks.langgraph import watch

TOPICS = ("rivers", "weather", "maps")
ROLES = {
    "planner": "You split a question into topics, and say what is missing.",
    "searcher": "You look a topic up, and say where you found what.",
    "judge": "You weigh what was found, and say whether that is enough.",
    "writer": "You write the answer, short and plain.",
}


class State(TypedDict):
    """notes: what was found so far; rounds: how often the judge was asked; usage: prompt and cached tokens, a call."""

    notes: Annotated[list[str], operator.add]
    rounds: int
    usage: Annotated[list[tuple[str, int, int]], operator.add]


@contextmanager
def process(*words: str) -> Iterator[str]:
    """The address of a `kvp` server, as long as it is wanted."""
    command = [sys.executable, "-m", "kvpolicy", *words, "--port", "0"]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as one:
        try:
            assert one.stdout is not None and one.stderr is not None
            told = one.stdout.readline()
            if not told:
                sys.exit(f"kvp {words[0]} did not start: {one.stderr.read().decode()}")
            Thread(target=one.stderr.read, daemon=True).start()  # what it logs later is for nobody
            yield json.loads(told)["url"]
        finally:
            one.send_signal(signal.SIGTERM)
            one.wait(20)


def others(url: str, number: int) -> None:
    """Eight other users, each with a prompt that nobody sends again."""
    for user in range(8):
        words = f"user {number}-{user} asks about something else entirely " * 40
        body = {"model": "sim", "messages": [{"role": "user", "content": words}], "max_tokens": 1}
        httpx.post(f"{url}/v1/chat/completions", json=body, timeout=60).raise_for_status()


def pipeline(service: kvpolicy.Service, rounds: int) -> Any:
    """The graph, watched. A run's searchers work at once; the judge sends it round again until `rounds` were done."""
    llm = kvpolicy.annotate(
        ChatOpenAI(
            model="sim",
            base_url=service.openai_url,
            api_key="none",
            max_tokens=24,
            max_retries=0,
            extra_body={"ignore_eos": True},  # the engine's filler is as long as a note would be
        )
    )

    def ask(role: str, name: str, words: str) -> dict[str, Any]:
        instructions = f"{name}. {ROLES[role]} " * 45  # long, as real ones are, and the same in every round
        answer = llm.invoke([("system", instructions), ("user", words)])
        told = answer.usage_metadata or {}
        cached = told.get("input_token_details", {}).get("cache_read", 0)
        return {"usage": [(name, told["input_tokens"], cached)], "notes": [f"{name}: {answer.content}"]}

    def planner(state: State) -> dict[str, Any]:
        others(service.url, state["rounds"])
        return ask("planner", "planner", "How do rivers shape maps?" + " ".join(state["notes"]))

    def searcher(topic: dict[str, str]) -> dict[str, Any]:
        return ask("searcher", f"searcher of {topic['topic']}", f"Look up {topic['topic']}.")

    def judge(state: State) -> dict[str, Any]:
        others(service.url, 100 + state["rounds"])
        return {**ask("judge", "judge", " ".join(state["notes"])), "rounds": state["rounds"] + 1}

    def writer(state: State) -> dict[str, Any]:
        return ask("writer", "writer", " ".join(state["notes"]))

    builder = StateGraph(State)
    for node in (planner, searcher, judge, writer):
        builder.add_node(node.__name__, node)
    builder.add_edge(START, "planner")
    builder.add_conditional_edges("planner", lambda _: [Send("searcher", {"topic": t}) for t in TOPICS], ["searcher"])
    builder.add_edge("searcher", "judge")
    builder.add_conditional_edges(
        "judge", lambda state: "planner" if state["rounds"] < rounds else "writer", ["planner", "writer"]
    )
    builder.add_edge("writer", END)
    return watch(builder.compile(name="research"), service)


def run(mode: str, rounds: int, blocks: int) -> dict[str, Any]:
    """One run under `mode` (off, enforce). Seconds, and tokens by what became of them."""
    engine_words = ("engine", "--blocks", str(blocks), "--prefill-s", "0.0002", "--decode-s", "0.0005")
    with process(*engine_words) as engine:
        serve = ("serve", "--upstream", engine, "--policy", "kvflow", "--mode", mode)
        with process(*serve) as url:
            service = kvpolicy.Service(url)
            app = pipeline(service, rounds)
            began = time.monotonic()
            start = {"notes": [], "rounds": 0, "usage": []}
            why: dict[str, list[str]] = {}
            for state in app.stream(start, {"configurable": {"thread_id": "q1"}}, stream_mode="values"):
                if mode == "enforce" and state["rounds"] == rounds - 1 and not why:
                    service.flush()
                    why = reasons(service)
            took = time.monotonic() - began
            service.close()
    seen: dict[str, int] = {}
    again = 0
    for name, prompt, cached in state["usage"]:
        again += max(0, min(seen.get(name, 0), prompt) - cached)
        seen[name] = max(seen.get(name, 0), head(prompt))
    prompts, found = (sum(row[place] for row in state["usage"]) for place in (1, 2))
    answer = state["notes"][-1]
    return {
        "mode": mode, "calls": len(state["usage"]), "prompt_tokens": prompts, "cached_tokens": found,
        "recomputed_tokens": again, "seconds": round(took, 2), "answer": answer, "why": why,
    }  # fmt: skip


def head(prompt: int) -> int:
    """Tokens of a prompt that its node's next one surely begins with: its instructions, in full blocks."""
    return min(prompt, 600) // 16 * 16


def reasons(service: kvpolicy.Service) -> dict[str, list[str]]:
    """For each owner, in words, what decided over the head of its newest prompt."""
    told = {}
    for owner in service.owners(session="q1"):
        explained = service.explain(owner["requests"][-1])
        name = " ".join(part for part in (owner["agent"], owner["branch"]) if part)
        told[name] = [sentence for span in explained["spans"][:1] for sentence in span["sentences"]]
    return told


def main() -> None:
    """Both runs, side by side."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--blocks", type=int, default=420, help="of the engine's memory, 16 tokens each")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    rows = [run(mode, args.rounds, args.blocks) for mode in ("off", "enforce")]
    if args.json:
        print(json.dumps(rows, indent=1))
        return
    for row in rows:
        print(
            f"{row['mode']:<8} {row['calls']} calls, {row['prompt_tokens']} prompt tokens, {row['cached_tokens']} "
            f"cached, {row['recomputed_tokens']} computed again, {row['seconds']} s to the answer"
        )
    for name, sentences in rows[-1]["why"].items():
        print(f"{name}: {' '.join(sentences)}")


if __name__ == "__main__":
    main()
