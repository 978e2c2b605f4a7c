"""Rules that others released or published, written in the language, so that they run through the same plan, claims and
pool as any policy. They are baselines: named by their source, not tuned by us.

`continuum-released`: the vLLM fork of Continuum (Li et al., 2025) as released, which is simpler than its paper: a
finished request that called a tool is pinned for a fixed 2 s, if the tool's running mean is at most 2 s (a tool not
seen yet counts as 0, and so does one that the trace does not name: on such a trace every tool call pins). A pin can
always be broken there, as a hold can here, where it counts as free for admission. Its queue order has no meaning in a
plain replay.

`continuum-paper`: the rule of the paper (arXiv 2511.02230, as `best_hold()` computes it). It weighs the wait of
requests that lost their blocks and the time to prefill; a plain replay has no waits, so there only the latter counts,
at `PREFILL_S` a token. The closed loop measures both, and has the order of the queue.

`kvflow-paper`: KVFlow (Pan et al., arXiv 2507.07400): by steps to execution, one rank a step, the dynamic suffix first.
It needs a trace that brings the graph of its runs; without one the fixed prefix stands where untagged blocks stand.
"""

from __future__ import annotations

PUBLISHED: dict[str, str] = {
    "continuum-released": """\
policy continuum_released "Two seconds for every tool that is quick on average."

on tool_call until tool_result {
  pinned: any when mean(tool.duration) else 0s <= 2s { retention: hold 2s }
}
""",
    "continuum-paper": """\
policy continuum_paper "A turn stays while its tool runs, as long as that pays."

on tool_call until tool_result { paused: any { retention: hold best_hold() else 2s } }
""",
    "kvflow-paper": """\
policy kvflow_paper "Whoever runs sooner stays longer; what a step added goes first."

prefix: system, tools { priority: clamp(100 - (steps_to_next_use() else 65), 1, 100)  for: run }
next: system, tools when steps_to_next_use() else 65 <= 1 { prefetch: yes }
suffix: turn, document, tool_result, scratchpad, branch, output { priority: 0 }
""",
}

PREFILL_S = 25.8e-6  # a token, H100 with Llama-3.1-8B: a line fitted to measured steps (hungchun0201's replication)
