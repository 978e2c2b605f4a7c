"""One call of `kvp` with the files it reads: what the fuzzer tries.

Policies come in part from the Hypothesis strategy of the resolver's tests; everything else from a `random.Random`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.fuzz import damage, documents, policy_texts, sessions
from tests.policy.strategies import policies

NUMBERS = ("1", "2", "7", "40", "300", "0", "-1", "1.5", "1e9", "99999999999999999999", "nan", "inf", "", "x", "٣")
PACKAGED = ("base", "continuum", "coding_agent", "chat_rag", "kvflow", "tree_of_thought", "continuum_released", "none")


@dataclass(slots=True)
class Case:
    """words: the command line behind `kvp`; files: what lies in the working folder, by name."""

    words: list[str]
    files: dict[str, bytes] = field(default_factory=dict)

    def lay(self, folder: Path) -> None:
        """Write the files and the command line (`call.json`) into a folder."""
        for name, data in self.files.items():
            (folder / name).write_bytes(data)
        (folder / "call.json").write_text(json.dumps(self.words))


def kept(folder: Path) -> Case:
    """A case as it was laid down."""
    files = {file.name: file.read_bytes() for file in folder.iterdir() if file.name not in ("call.json", "why.txt")}
    return Case(json.loads((folder / "call.json").read_text()), files)


def _policy(chance: Random, grown: list[str], case: Case, name: str = "p.kvp") -> str:
    if chance.random() < 0.1:
        return chance.choice(PACKAGED)
    case.files[name] = policy_texts.written(chance, grown)
    if chance.random() < 0.1:
        case.files["limits.kvp"] = policy_texts.written(chance, grown)
        case.files[name] += b'\nuse "limits.kvp" as limits\n'
    return name


def _sound(chance: Random, grown: list[str], case: Case) -> str:
    """A policy that mostly passes its checks, so that what comes behind them is reached."""
    if chance.random() < 0.4:
        return chance.choice(PACKAGED[:-1])
    if chance.random() < 0.3:
        return _policy(chance, grown, case)
    case.files["p.kvp"] = ("\n".join(grown) if chance.random() < 0.6 else chance.choice(policy_texts.known())).encode()
    return "p.kvp"


def _check(chance: Random, grown: list[str]) -> Case:
    case = Case(["check"])
    case.words += [_policy(chance, grown, case)]
    if chance.random() < 0.1:
        case.words += [_policy(chance, grown, case, "q.kvp")]
    return case


def _test(chance: Random, grown: list[str]) -> Case:
    case = Case(["test"])
    case.words += [_policy(chance, grown, case)]
    if case.words[-1] == "p.kvp" and chance.random() < 0.8:
        tests = [text for text in policy_texts.known() if "\ntest " in text or text.startswith("test ")]
        block = chance.choice(tests)
        case.files["p.test.kvp"] = (block if chance.random() < 0.4 else damage.text(chance, block)).encode(
            "utf-8", "surrogatepass"
        )
    if chance.random() < 0.5:
        case.words += ["--coverage"]
    return case


SPANS = (
    "turn[agent=a, tokens=12k]", "turn", "tools", "output",
    "document[name = \"x\"]", "system[depth = 3, last_step = yes]",
    "turn[status = done, score = 0.5, rank = 2, branch = b]", "turn[tokens = 99999999999k]", "turn[depth = -1]",
)  # fmt: skip
HAPPENED = ("tool_call[tool=grep]", "tool_call[tool=ls, call=c1]", "tool_result", "turn_end", "turn_start", "compact")
ASSUMED = (
    "p95(tool.duration)=800ms", "idle() = 2min", "pressure(gpu) = 120%", "steps_to_next_use() = never", "age() = 3",
    "p95(tool.duration) = nothing", "reuse_probability(within 30s) = 0.5", "turns_ago() = 99999999999999999999",
)  # fmt: skip


def _explain(chance: Random, grown: list[str]) -> Case:
    """A span, the spans of a request, or blocks of a timeline."""
    if chance.random() < 0.5:
        return _explained_document(chance, grown)
    case = Case(["explain"])
    case.words += [_sound(chance, grown, case), f"--span={_option(chance, SPANS)}"]
    for _ in range(chance.randrange(3)):
        case.words += [f"--at={_option(chance, HAPPENED)}"]
    for _ in range(chance.randrange(2)):
        case.words += [f"--then={_option(chance, ('3min', '0s', '99999d', '2h'))}"]
    for _ in range(chance.randrange(3)):
        case.words += [f"--assume={_option(chance, ASSUMED)}"]
    return case


def _fmt(chance: Random, grown: list[str]) -> Case:
    case = Case(["fmt"])
    case.words += [name] if (name := _policy(chance, grown, case)) else []
    case.words += chance.choice(([], ["--check"], ["--diff"], ["--check", "--diff"]))
    return case


def _diff(chance: Random, grown: list[str]) -> Case:
    """Two policies, mostly one text with a small change: what is compared then is what both can mean."""
    case = Case(["diff"])
    if chance.random() < 0.2:
        case.words += [chance.choice(PACKAGED), _sound(chance, grown, case)]
        return case
    text = "\n".join(grown) if chance.random() < 0.6 else chance.choice(policy_texts.known())
    other = text.replace(
        *chance.choice((("80", "79"), ("turn", "document"), ("1min", "2min"), (" until tool_result", "")))
    )
    if chance.random() < 0.3:
        other = damage.text(chance, other)
    lines = other.split("\n")
    if chance.random() < 0.3:
        del lines[chance.randrange(len(lines))]
    case.files["p.kvp"], case.files["q.kvp"] = text.encode(), "\n".join(lines).encode("utf-8", "surrogatepass")
    case.words += ["p.kvp", "q.kvp"]
    if chance.random() < 0.1:
        case.words += ["--trace", "t.jsonl"]
        case.files["t.jsonl"] = documents.trace(chance)
    return case


def _explained_document(chance: Random, grown: list[str]) -> Case:
    case = Case(["explain"])
    case.words += [_sound(chance, grown, case)]
    if chance.random() < 0.5:
        case.words += ["--request", "r.json", "--state", "s.json"]
        case.files["r.json"] = _document(chance, documents.request(chance))
        case.files["s.json"] = _document(chance, documents.state(chance))
    else:
        case.words += ["--replay", "t.jsonl", "--block", chance.choice(("r0:0", "r1:1", "h0", "a", "", "1"))]
        case.files["t.jsonl"] = documents.timeline(chance)
    return case


def _option(chance: Random, choices: tuple[str, ...]) -> str:
    text = chance.choice(choices)
    return damage.text(chance, text).replace("\0", "") if chance.random() < 0.12 else text


def _plan(chance: Random, grown: list[str]) -> Case:
    case = Case(["plan"])
    case.words += [_sound(chance, grown, case), "--request", "r.json"]
    case.files["r.json"] = _document(chance, documents.request(chance))
    if chance.random() < 0.7:
        case.words += ["--state", "s.json"]
        case.files["s.json"] = _document(chance, documents.state(chance))
    if chance.random() < 0.3:
        case.words += ["--now", chance.choice((*NUMBERS, "1e308", "5000"))]
    if chance.random() < 0.5:
        case.words += ["--engine", chance.choice(("memory", "vllm", "e.json", "e.json", "e.json", "e.json"))]
        case.files["e.json"] = _document(chance, documents.engine(chance))
    return case


def _document(chance: Random, value: object) -> bytes:
    if chance.random() < 0.03:
        return damage.nested(chance, chance.choice((10, 2000, 200_000))).encode()
    data = damage.as_json(chance, damage.document(chance, value)).encode("utf-8", "surrogatepass")
    return damage.raw(chance, data) if chance.random() < 0.03 else data


def _graph(chance: Random, grown: list[str]) -> Case:
    case = Case(["graph"])
    case.words += [_policy(chance, grown, case)]
    if chance.random() < 0.7:
        case.words += ["--state", "s.json"]
        case.files["s.json"] = _document(chance, documents.state(chance))
    return case


def _replay(chance: Random, grown: list[str]) -> Case:
    case = Case(["replay", "t.jsonl"], {"t.jsonl": documents.timeline(chance)})
    if chance.random() < 0.6:
        case.words += ["--policy", _sound(chance, grown, case)]
    for option in ("--blocks", "--blocks", "--block-size", "--cpu-blocks", "--disk-blocks"):
        if chance.random() < 0.4:
            case.words += [f"{option}={chance.choice(NUMBERS[: 5 if chance.random() < 0.97 else None])}"]
    return case


def _simulate(chance: Random, grown: list[str]) -> Case:
    name = chance.choice(("t.jsonl", "t.jsonl", "t.jsonl.gz"))
    case = Case(["simulate", name, "--jobs=1"], {name: documents.trace(chance)})
    capacity = ",".join(chance.choice(NUMBERS[: 5 if chance.random() < 0.9 else None]) for _ in range(2))
    case.words += [f"--capacity={capacity}"]
    for _ in range(chance.choice((0, 1, 2))):
        baselines = ("lru", "lru-object", "fifo", "lfu", "continuum-released", "belady", "belady-resident", "lrú")
        case.words += ["--policy", chance.choice(baselines) if chance.random() < 0.5 else _sound(chance, grown, case)]
    if chance.random() < 0.3:
        case.words += ["--capacity-unit", chance.choice(("tokens", "percent", "blocks"))]
    for option in ("--seed", "--window", "--gap-cap", "--coarsen", "--sample", "--part", "--price-ratio"):
        if chance.random() < 0.08:
            case.words += [f"{option}={chance.choice((*NUMBERS, '1h', '0/4', '!1/2', '0/0', '1/1'))}"]
    return case


def _lsp(chance: Random, grown: list[str]) -> Case:
    """An editor's session on one to three texts that use each other."""
    case = Case(["lsp"])
    names = ("p.kvp", "q.kvp", "p.test.kvp")[: chance.choice((1, 1, 2, 3))]
    texts: dict[str, str] = {}
    for name in names:
        text = "\n".join(grown) if chance.random() < 0.3 else chance.choice(policy_texts.known())
        if chance.random() < 0.6:
            text = damage.text(chance, text)
        if chance.random() < 0.4:
            text = f'use "{chance.choice(names)}" as used\n{text}'
        texts[name] = text.encode("utf-8", "replace").decode()
    case.files = {name: text.encode() for name, text in texts.items()}
    case.files[sessions.FILE] = sessions.drawn(chance, texts)
    return case


MAKERS: dict[str, Callable[[Random, list[str]], Case]] = {
    "check": _check,
    "fmt": _fmt,
    "diff": _diff,
    "explain": _explain,
    "test": _test,
    "plan": _plan,
    "replay": _replay,
    "simulate": _simulate,
    "graph": _graph,
    "lsp": _lsp,
}


def grown(number: int, count: int = 40) -> list[list[str]]:
    """Statements of policies, drawn by the grammar-based strategy."""
    found: list[list[str]] = []

    @seed(number)
    @settings(
        max_examples=count,
        phases=[Phase.generate],
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(policies())
    def each(statements: list[str]) -> None:
        found.append(statements)

    each()
    return found


def case(chance: Random, texts: list[list[str]], commands: tuple[str, ...] = tuple(MAKERS)) -> Case:
    """A call of one of the commands. texts: what `grown` made."""
    made = MAKERS[chance.choice(commands)](chance, chance.choice(texts))
    if made.words[0] not in ("fmt", "lsp") and chance.random() < 0.6:
        made.words += ["--format", "json"]
    return made
