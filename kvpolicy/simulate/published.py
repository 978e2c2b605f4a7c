"""Rules that others released or published, written in the language, so that they run through the same plan, claims and
pool as any policy. They are baselines: named by their source, not tuned by us.

`continuum-released`: the vLLM fork of Continuum (Li et al., 2025) as released, which is simpler than its paper: a
finished request that called a tool is pinned for a fixed 2 s, if the tool's running mean is at most 2 s (a tool not
seen yet counts as 0, and so does one that the trace does not name: on such a trace every tool call pins). A pin can
always be broken there, as a hold can here, where it counts as free for admission. Its queue order has no meaning in a
plain replay.
"""

from __future__ import annotations

PUBLISHED: dict[str, str] = {
    "continuum-released": """\
policy continuum_released "Two seconds for every tool that is quick on average."

on tool_call until tool_result {
  pinned: any when mean(tool.duration) else 0s <= 2s { retention: hold 2s }
}
""",
}

# Named in the interfaces, but they need parts that are not built yet.
NOT_YET: dict[str, str] = {
    "continuum-paper": "it needs the measured queue delay of --engine-model",
    "kvflow-paper": "it needs a workflow graph, and no trace here carries one",
}
