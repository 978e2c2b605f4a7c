"""A mixed workload, and the packaged policy `agents` with a part taken out: what each part is for on one server.

Chains of agents (KVFlow's shape), coding agents that call tools (Continuum's) and tree searches (DeFT's) side by side,
made from the published figures like the workloads they are put together of. Read by `bench_cells`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib.resources import files

from kvpolicy.simulate.names import Contender, contender
from kvpolicy.simulate.workloads.agents import swe
from kvpolicy.simulate.workloads.making import MadeTrace, Session
from kvpolicy.simulate.workloads.prompt import Blocks
from kvpolicy.simulate.workloads.searches import search
from kvpolicy.simulate.workloads.workflows import chain, chain_graph

MIXED = "mixed"
WITHOUT = "agents-without-"  # and the name of a part
PARTS = ("kvflow", "continuum", "tree_of_thought")
_ROUNDS = 4
_SETTINGS = {"workflows": 8, "sessions": 40, "searches": 3}


def mixed(seed: int, block_size: int = 128) -> MadeTrace:
    """The trace of a seed."""
    return MadeTrace(MIXED, "KVFlow, Continuum, DeFT", _all, _SETTINGS, seed, block_size, chain_graph(_ROUNDS))


def _all(settings: Mapping[str, float], seed: int, blocks: Blocks) -> Iterable[Session]:
    chains = {"workflows": settings["workflows"], "fixed": 8_192, "dynamic": 256, "output": 256, "rounds": _ROUNDS}
    yield from chain(chains, seed, blocks)
    yield from swe({"sessions": settings["sessions"], "per_s": 0.2}, seed, blocks)
    trees = {"task": 1, "branches": 8, "trunk": 30_000, "searches": settings["searches"], "per_s": 0.05, "others": 0}
    yield from search(trees, seed, blocks)


def contender_of(name: str) -> Contender:
    """A contender, or `agents` without one of its parts. Raises InputFault."""
    part = name.removeprefix(WITHOUT)
    if part == name or part not in PARTS:
        return contender(name)
    text = files("kvpolicy.policies").joinpath("agents.kvp").read_text(encoding="utf-8")
    kept = [line for line in text.splitlines() if line != f"use {part}"]
    named = "\n".join(line.replace(f"{part}, ", "") if line.startswith("layers ") else line for line in kept)
    return Contender(name, "policy", False, text=named + "\n")
