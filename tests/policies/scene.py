"""A stage for the packaged policies: requests and events through plan, claims and pool, and what was found cached.

Prompts are lists of (kind, words): one block a word, and a block is named by all words up to its own. Used by the tests
of the pack; nothing here decides what leaves.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources

from kvpolicy.language.load import load_text
from kvpolicy.policy.compile import compile as compile_policy
from kvpolicy.policy.policy import Policy
from kvpolicy.pool import Pool
from kvpolicy.request import Owner, Request, Span
from kvpolicy.steering import Steering
from kvpolicy.workflow.events import Event
from kvpolicy.workflow.graph import Graph
from kvpolicy.workflow.state import RunState

SIZE = 16  # tokens of a block
Part = tuple[str, str, int]  # kind, name of the text, blocks


def text_of(name: str) -> str:
    """The text of a packaged policy."""
    return resources.files("kvpolicy.policies").joinpath(f"{name}.kvp").read_text(encoding="utf-8")


def policy_of(text: str) -> Policy:
    """A policy from its text."""
    loaded = load_text(text)
    assert loaded.files is not None, loaded.diagnostics
    return compile_policy(loaded.files)


class Scene:
    """One pool of `blocks` under one policy (None: the engine's own order), with a clock of its own."""

    def __init__(
        self, text: str | None, blocks: int, graph: object = None, budget: float = 0.4, cpu_blocks: int = 0
    ) -> None:
        state = RunState(graph=None if graph is None else Graph.build(graph))
        policy = None if text is None else policy_of(text)
        self.steering = Steering(
            policy, Pool(blocks, block_size=SIZE, cpu_blocks=cpu_blocks), state=state, budget=budget
        )
        self.now = 0.0
        self._made = 0

    def ask(self, owner: Owner, parts: Sequence[Part], seconds: float = 1.0, **answer: object) -> int:
        """A request that takes `seconds`; `answer`: tool_calls, finished. Returns how many blocks were cached."""
        name = self.start(owner, parts)
        self.now += seconds
        self.end(name, **answer)
        return self.cached

    def start(self, owner: Owner, parts: Sequence[Part], **attributes: object) -> str:
        """A request begins; `cached` says what it found."""
        self._made += 1
        name, spans = f"r{self._made}", []
        words: list[str] = []
        for kind, text, blocks in parts:
            branch = {"branch": owner.branch} if kind == "branch" else {}
            spans.append(Span(kind, len(words) * SIZE, (len(words) + blocks) * SIZE, branch))
            words += [f"{text}{i}" for i in range(blocks)]
        hashes = ["/".join(words[: i + 1]) for i in range(len(words))]
        request = Request(name, owner, len(words) * SIZE, SIZE, tuple(spans), attributes=attributes)
        self.cached = self.steering.request(request, hashes, self.now).cached
        return name

    def end(self, name: str, **answer: object) -> None:
        """The request's answer is done."""
        self.steering.finish(name, self.now, **answer)  # type: ignore[arg-type]

    def tell(self, event: str, **fields: object) -> None:
        """An event now."""
        self.steering.event(Event(self.now, event, fields), self.now)

    def crowd(self, count: int, blocks: int, seconds: float = 0.0, **answer: object) -> None:
        """`count` requests of strangers, each with a prompt of its own that nobody sends again; one every `seconds`."""
        for _ in range(count):
            self.now += seconds
            stranger = Owner(session=f"stranger{self._made}")
            self.ask(stranger, [("turn", f"s{self._made}-", blocks)], 0.0, **(answer or {"finished": True}))

    def failures(self) -> int:
        """What broke on our side; a scenario with any proves nothing."""
        return self.steering.counters["failures"]
