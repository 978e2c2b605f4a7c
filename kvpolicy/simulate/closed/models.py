"""Engines as models: how long a step takes, what a token weighs, how fast blocks travel. Each constant has its source.

A step that computes n tokens (prompt chunks and one token for each answer that is being written) takes
`overhead_s + n * token_s + n * n * square_s` seconds. `--engine-model` names one, with changes where wanted:
`h100-8b`, `a100-8b:link=2e9,chunk=512`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

from kvpolicy.faults import InputFault

# KV bytes of a token, bf16: 2 * layers * KV heads * head size * 2 bytes; Llama-3.1-8B: 2 * 32 * 8 * 128 * 2.
LLAMA_8B_BYTES = 131_072


@dataclass(frozen=True, slots=True)
class EngineModel:
    """One engine. Times in seconds.

    overhead_s, token_s, square_s: of a step, see above. chunk: most tokens of a step (vLLM's max_num_batched_tokens).
    seqs: most running requests (max_num_seqs). token_bytes: KV bytes of a token. link: bytes a second between the GPU
    and the CPU, in each direction at once. disk: the same between the CPU and the disk. source: where it is from.
    """

    name: str
    overhead_s: float
    token_s: float
    link: float
    source: str
    square_s: float = 0.0
    chunk: int = 2048
    seqs: int = 256
    token_bytes: int = LLAMA_8B_BYTES
    disk: float = 3e9

    def step_s(self, tokens: int) -> float:
        """How long a step with that many tokens takes."""
        return self.overhead_s + tokens * self.token_s + tokens * tokens * self.square_s

    def prefill_s(self, tokens: int) -> float:
        """How long that many prompt tokens take alone, chunk by chunk."""
        whole, rest = divmod(tokens, self.chunk)
        return whole * self.step_s(self.chunk) + (self.step_s(rest) if rest else 0.0)

    def as_json(self) -> dict[str, object]:
        """Every constant, for the result."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


_STEPS = "step times of a replication of Continuum with Llama-3.1-8B (hungchun0201's survey): a line fitted to steps"
MODELS: dict[str, EngineModel] = {
    model.name: model
    for model in (
        # Chunk 2048: Continuum's set-up (arXiv 2511.02230). seqs 256: vLLM 0.10's default. Links: PCIe 5 x16 and
        # PCIe 4 x16 as they are usually measured; the disk: one NVMe drive. Both are assumptions, so both are options.
        EngineModel("h100-8b", 23.7e-3, 25.8e-6, 50e9, f"{_STEPS}, H100, R2 0.61"),
        EngineModel("a100-8b", 66.2e-3, 97.3e-6, 25e9, f"{_STEPS}, A100, R2 0.72"),
        EngineModel("h200-8b", 21.4e-3, 37.1e-6, 50e9, f"{_STEPS}, H200, R2 0.39"),
        # InferCept (ICML 2024): a batch step of n tokens takes 1.3e-5 n^2 + 0.328 n + 24.1 ms, swapping 4e-5 s a token.
        # Its tokens weigh what GPT-J-6B's do: 2 * 28 layers * 4096 * 2 bytes; so the link is 458,752 / 4e-5.
        EngineModel(
            "a100-infercept",
            24.1e-3,
            0.328e-3,
            458_752 / 4e-5,
            "InferCept (ICML 2024), its polynomial for a step on an A100, and its swap time",
            square_s=1.3e-8,
            chunk=512,
            token_bytes=458_752,
        ),
    )
}
_WHOLE = ("chunk", "seqs", "token_bytes")
_CHANGES = ("overhead_s", "token_s", "square_s", "chunk", "seqs", "token_bytes", "link", "disk")


def engine_model(text: str) -> EngineModel:
    """The model that `NAME` or `NAME:key=value,…` stands for. Raises InputFault with what there is."""
    name, _, changes = text.partition(":")
    model = MODELS.get(name)
    if model is None:
        raise InputFault(f"--engine-model {name or '(nothing)'}: no such model; there are {', '.join(MODELS)}")
    for change in changes.split(",") if changes else ():
        key, sign, value = change.partition("=")
        if key not in _CHANGES or not sign:
            raise InputFault(f"--engine-model {text}: '{change}' is no change; write KEY=VALUE, {', '.join(_CHANGES)}")
        changed: dict[str, Any] = {key: _number(text, key, value)}
        model = replace(model, **changed)
    if model.step_s(1) <= 0:
        raise InputFault(f"--engine-model {text}: a step takes no time; overhead_s or token_s has to be above 0")
    return model


def _number(text: str, key: str, value: str) -> float:
    try:
        number = float(value)
    except ValueError:
        number = -1.0
    least = 0.0 if key.endswith("_s") else 1.0
    if not least <= number < 1e15 or (key in _WHOLE and number != int(number)):
        kind = "a whole number" if key in _WHOLE else "a number"
        raise InputFault(f"--engine-model {text}: {key} is {kind} of at least {least:g}, not {value or '(nothing)'}")
    return int(number) if key in _WHOLE else number
