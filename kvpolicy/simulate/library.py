"""Traces by name: where they come from, and how a name becomes a trace.

A name is looked for in $KVPOLICY_DATA (else `../shared/data` beside the checkout or the working directory), then in the
user's cache, then at its public source (`public`, checked by SHA-256). `claude-code` is derived: a seeded interleaving
of `claude-code-sessions` that anybody can make again, so another seed is another interleaving of the same sessions.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

from kvpolicy.faults import InputFault
from kvpolicy.simulate import public
from kvpolicy.simulate.generator import GeneratedTrace
from kvpolicy.simulate.interleaving import Interleaving
from kvpolicy.simulate.lines import sha256_of
from kvpolicy.simulate.read import FileTrace
from kvpolicy.simulate.session_numbers import SESSION_NUMBERS
from kvpolicy.simulate.trace import Trace
from kvpolicy.simulate.workloads.catalogue import WORKLOADS, workload


@dataclass(frozen=True, slots=True)
class Known:
    """A trace with a name. sha256: of the file as measured. content_sha256: of what `public` proves after fetching."""

    name: str
    file: str  # below the data folder
    sha256: str
    source: str
    licence: str
    what: str
    content_sha256: str | None = None
    url: str | None = None
    until_ms: int | None = None


_MOONCAKE = "https://raw.githubusercontent.com/kvcache-ai/Mooncake"
KNOWN: dict[str, Known] = {
    known.name: known
    for known in (
        Known(
            "claude-code",
            "claude_code/claude_code_100x4h_seed7.mooncake.jsonl.gz",
            "dcd7b5d37e5d48bdda2f665c582655ac19b72594c17dc15c2e82a21e35812193",
            "derived from claude-code-sessions: 100 drawn and started over 4 h (seed 7), gaps capped at 1 h",
            "Apache-2.0",
            "100 coding-agent sessions at once: the pressure test",
        ),
        Known(
            "claude-code-sessions",
            "claude_code/claude_code_sessions.jsonl.gz",
            "36af8788b9385323530085e64f88756a7aa557b4df08fe56aa87c23b548f7250",
            "github.com/callanjfox/kv-cache-tester at 94f6046, 328 of its traces",
            "Apache-2.0",
            "328 real coding-agent sessions, block ids only; interleaved by us",
            content_sha256="19f23ead245bc214fe5db8bc29fd0772b6538cb7de12c379e345a683db1d66aa",
            url="https://codeload.github.com/callanjfox/kv-cache-tester/tar.gz/94f6046",
        ),
        Known(
            "mooncake",
            "mooncake/conversation_first30min.jsonl.gz",
            "e2919e118f749849da738f44fc97d29492342ef48aaa0f4e0926e3d371878a68",
            "github.com/kvcache-ai/Mooncake, FAST25-release/traces/conversation_trace.jsonl, first 30 minutes",
            "Apache-2.0",
            "sampled chat traffic of a real service",
            content_sha256="0b278e6a285958f6f087394ad02026d734591c67f44cccecb0e0f9a59d509b98",
            url=f"{_MOONCAKE}/a2a4b18ac537fd798d50e6e9f57031ce86419a37/FAST25-release/traces/conversation_trace.jsonl",
            until_ms=1_800_000,
        ),
        Known(
            "mooncake-synthetic",
            "mooncake/synthetic_trace.jsonl.gz",
            "859562a82892b4c78d45fdf0c812a77902297e68413b2ad40f5a80034359ff53",
            "github.com/kvcache-ai/Mooncake, FAST25-release/traces/synthetic_trace.jsonl",
            "Apache-2.0",
            "made from public data sets with Poisson arrivals; no production traffic",
            content_sha256="bd070915a98fc0ed264d7cfef2ce746002eb3076a695ec31ba2674c0111ec131",
            url=f"{_MOONCAKE}/3cca71daccf2a7afb8fe3f0295358f70e3a69fdb/FAST25-release/traces/synthetic_trace.jsonl",
        ),
    )
}
GENERATED = "generated"
DERIVED = Interleaving(seed=7, sample=100, coarsen=8)  # what `claude-code` is, made of the sessions


def find(name: str, how: Interleaving, seed: int | None = None) -> tuple[Trace, str | None]:
    """(the trace of a file or a name, a sentence where it is not what was asked for).

    how: for sessions. seed: None for the name's own. Raises InputFault for what is neither file nor name.
    """
    path = Path(name)
    if not path.exists() and name in WORKLOADS:
        return workload(name, seed), None
    if path.exists() or name not in (*KNOWN, GENERATED):
        if not path.exists() and "/" not in name and "." not in name:
            names = ", ".join((*KNOWN, GENERATED, *WORKLOADS))
            raise InputFault(f"{name}: neither a file nor a known trace; known are {names}")
        return FileTrace(path, name, how if seed is None else replace(how, seed=seed)), None
    own_seed = DERIVED.seed if seed is None else seed
    if name == GENERATED:
        return GeneratedTrace(own_seed), None
    if name == "claude-code":
        return _claude_code(own_seed)
    label = KNOWN[name].source
    return FileTrace(obtain(name), name, how if seed is None else replace(how, seed=seed), label), None


def _claude_code(seed: int) -> tuple[Trace, str | None]:
    name = "claude-code"
    path = _local(KNOWN[name]) if seed == DERIVED.seed else None
    if path is not None:
        return FileTrace(path, name, label=KNOWN[name].source), None
    try:
        sessions = obtain("claude-code-sessions")
    except InputFault as fault:
        sentence = f"{name} is not here ({fault}); a generated trace is used instead"
        return GeneratedTrace(seed), " ".join(sentence.split())
    return FileTrace(sessions, name, replace(DERIVED, seed=seed), KNOWN["claude-code-sessions"].source), None


def obtain(name: str) -> Path:
    """The file of a known trace, fetched into the cache where it is not here. Raises InputFault."""
    known = KNOWN[name]
    path = _local(known)
    if path is not None:
        return path
    target = cache() / Path(known.file).name
    if target.is_file():
        return target  # it was checked when it was fetched
    if known.url is None or known.content_sha256 is None:
        raise InputFault(f"{name} has no public file: it is {known.source}; use claude-code-sessions")
    if name == "claude-code-sessions":
        public.fetch_sessions(known.url, SESSION_NUMBERS, known.content_sha256, target)
    else:
        public.fetch_mooncake(known.url, known.until_ms, known.content_sha256, target)
    return target


def _local(known: Known) -> Path | None:
    """The trace's file in a data folder. Raises InputFault where it is there and not what was measured."""
    for folder in data_folders():
        path = folder / known.file
        if path.is_file():
            got = sha256_of(path)
            if got != known.sha256:
                raise InputFault(
                    f"{path}: SHA-256 is {got}, not {known.sha256}; fetch {known.name} again, or name it as a "
                    "file elsewhere"
                )
            return path
    return None


def data_folders() -> list[Path]:
    """$KVPOLICY_DATA alone where it is set, else `../shared/data` beside the working directory and the checkout."""
    stated = os.environ.get("KVPOLICY_DATA")
    if stated:
        return [Path(stated)]
    checkout = Path(__file__).resolve().parents[2]
    return [base.parent / "shared" / "data" for base in dict.fromkeys((Path.cwd(), checkout))]


def cache() -> Path:
    """Where fetched traces are kept."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "kvpolicy" / "traces"


def where(name: str) -> str:
    """In words: where a known trace is, or would come from."""
    known = KNOWN[name]
    path = next((f / known.file for f in data_folders() if (f / known.file).is_file()), cache() / Path(known.file).name)
    if path.is_file():
        return str(path)
    return f"to be fetched from {known.url}" if known.url else "to be made of claude-code-sessions"
