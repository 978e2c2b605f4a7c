"""The simulated server's counters in Prometheus' text form, under vLLM's names where they mean the same.

Read by `app`. The label `model_name` is the one that vLLM has; `simulated="1"` tells these apart from real ones.
"""

from __future__ import annotations

from kvpolicy.simulated.blocks import Blocks
from kvpolicy.simulated.generation import Generation


def exposition(generation: Generation, blocks: Blocks, model: str) -> str:
    """All of them, one family after the other."""
    totals, pool = generation.totals, blocks.pool
    name = model.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    label = f'{{model_name="{name}",simulated="1"}}'
    config = f'{{block_size="{pool.block_size}",num_gpu_blocks="{pool.capacity}",simulated="1"}}'
    held = 1 - pool.available / pool.capacity
    families = (
        ("vllm:num_requests_running", "gauge", "Requests that hold blocks.", label, len(generation.running)),
        ("vllm:num_requests_waiting", "gauge", "Requests that wait for room.", label, len(generation.waiting)),
        ("vllm:kv_cache_usage_perc", "gauge", "Share of blocks held by running requests.", label, held),
        ("vllm:prefix_cache_queries_total", "counter", "Prompt tokens looked up.", label, totals["prompt_tokens"]),
        ("vllm:prefix_cache_hits_total", "counter", "Prompt tokens found.", label, totals["cached_tokens"]),
        ("vllm:prompt_tokens_total", "counter", "Prompt tokens.", label, totals["prompt_tokens"]),
        ("vllm:generation_tokens_total", "counter", "Output tokens.", label, totals["output_tokens"]),
        ("vllm:cache_config_info", "gauge", "Sizes of the cache.", config, 1),
        ("kvpolicy_sim_requests_cancelled_total", "counter", "Requests left early.", label, totals["cancelled"]),
        ("kvpolicy_sim_protected_blocks", "gauge", "Blocks under protection.", label, pool.protected_blocks),
    )  # fmt: skip
    lines: list[str] = []
    for family, kind, text, labels, value in families:
        lines += (f"# HELP {family} {text}", f"# TYPE {family} {kind}", f"{family}{labels} {value:.10g}")
    return "\n".join(lines) + "\n"
