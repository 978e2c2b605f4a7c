"""The experiments that a bench knows, as data: which traces, contenders, sizes, seeds and hints. Read by `bench_run`.

Figures of policies were chosen on Claude Code sessions whose SHA-256 of the id is divisible by 4 (`0/4`), so
results are reported on the others (`!0/4`).
"""

from __future__ import annotations

from dataclasses import dataclass

from kvpolicy.simulate.bench_cells import Cell

SEEDS = (11, 12, 13, 14, 15)
_CHEAP = ("lru", "belady-resident", "lru-object", "fifo", "lfu")
_HEAD = (
    "adaptive",
    "kv-in-the-wild",
    "evoke",
    "workflow-aware",
    "coding_agent",
    "continuum-released",
    "continuum-paper",
    "base",
)


@dataclass(frozen=True, slots=True)
class Experiment:
    """Every policy at every size, seed and kind of hints. about: what it asks."""

    about: str
    trace: str
    policies: tuple[str, ...]
    percents: tuple[float, ...]
    seeds: tuple[int, ...] = SEEDS
    coarsen: int = 1
    sample: int | None = None
    part: str | None = None
    prior: str | None = None
    hints: tuple[str, ...] = ("true",)
    begun: tuple[str, ...] = ()  # the policies that begin with what the sessions of part `prior` taught
    hinted: tuple[str, ...] = ()  # the policies that are measured under every kind of hints; the others under true ones

    def cells(self) -> list[Cell]:
        """Seed by seed, so that a bench that is stopped early has whole seeds."""
        found = []
        for seed in self.seeds:
            for policy in self.policies:
                for hints in self.hints if policy in self.hinted else ("true",):
                    found += [
                        Cell(
                            self.trace,
                            seed,
                            policy,
                            percent,
                            self.coarsen,
                            self.sample,
                            self.part,
                            hints,
                            self.prior if policy in self.begun else None,
                        )
                        for percent in self.percents
                    ]
        return found


_SESSIONS = "claude-code-sessions"
EXPERIMENTS: dict[str, Experiment] = {
    "held-out": Experiment(
        "Does a policy beat recency on sessions on which nothing of it was chosen?",
        _SESSIONS,
        (*_CHEAP, *_HEAD),
        (1.0, 2.0, 5.0),
        coarsen=8,
        sample=80,
        part="!0/4",
    ),
    "baselines": Experiment(
        "The same for rules of general caches, by libCacheSim (extra `bench`), and of SGLang.",
        _SESSIONS,
        ("lru", "belady-resident", "arc", "s3fifo", "lirs", "2q", "sglang-lru", "sglang-slru"),
        (1.0, 2.0, 5.0),
        coarsen=8,
        sample=80,
        part="!0/4",
    ),
    "begun": Experiment(
        "The same, for a server that has already served the other sessions: its pauses are known from the beginning.",
        _SESSIONS,
        ("lru", "belady-resident", "adaptive"),
        (1.0, 2.0, 5.0),
        coarsen=8,
        sample=80,
        part="!0/4",
        prior="0/4",
        begun=("adaptive",),
    ),
    "roomy": Experiment(
        "And where memory nearly suffices?",
        _SESSIONS,
        ("lru", "belady-resident", "adaptive"),
        (10.0,),
        coarsen=8,
        sample=80,
        part="!0/4",
    ),
    "hints": Experiment(
        "What do wrong hints do?",
        _SESSIONS,
        ("lru", "belady-resident", "adaptive"),
        (2.0,),
        coarsen=8,
        sample=80,
        part="!0/4",
        hints=("true", "x10", "shuffled", "tenth", "x2", "missing", "adversarial"),
        hinted=("adaptive",),
    ),
    "blocks": Experiment(
        "Does the size of a block matter?",
        _SESSIONS,
        ("lru", "belady-resident", "adaptive"),
        (2.0,),
        coarsen=2,
        sample=80,
        part="!0/4",
    ),
    "mixed": Experiment(
        "Three kinds of agents on one server: is the policy of all three as good as the best of its parts, and what "
        "does each part do?",
        "mixed",
        (
            "lru",
            "belady-resident",
            "agents",
            "kvflow",
            "continuum",
            "tree_of_thought",
            "agents-without-kvflow",
            "agents-without-continuum",
            "agents-without-tree_of_thought",
            "adaptive",
            "base",
        ),
        (10.0,),
    ),
    "heads": Experiment(
        "Where sessions share heads, one for each of three agents: made from published figures.",
        "generated",
        ("lru", "belady-resident", "base"),
        (1.0, 2.0, 5.0),
    ),
    "chat": Experiment(
        "Where nothing is annotated: sampled chat of one service, in its own order.",
        "mooncake",
        ("lru", "belady-resident", "lru-object", "fifo", "lfu", "kv-in-the-wild", "chat_rag", "adaptive"),
        (1.0, 2.0, 5.0, 10.0),
        seeds=(0,),
    ),
}
