"""The words of the language, as closed tables: data only, no logic.

Everything that speaks the language reads these tables: the grammar's word lists, the checks, `explain`,
the documentation and the editor highlighters. A word that is not here does not exist.
Source: the language reference, section "Words".
"""

from __future__ import annotations

# --- span kinds -----------------------------------------------------------------------------------------

SPAN_KINDS: dict[str, str] = {
    "system": "system and developer messages where the chat template puts them, at the head",
    "tools": "tool definitions, where the template renders them",
    "document": "retrieved or attached text",
    "turn": "user and assistant text, and whatever no span covers",
    "tool_result": "what a tool returned",
    "scratchpad": "reasoning parts",
    "branch": "tokens after a fork, labelled with a branch",
    "output": "the tokens this request is generating",
}
ANY_KIND = "any"  # in selectors only: every kind above

# --- attributes: name -> type ---------------------------------------------------------------------------

# Known when the request arrives. `tenant` and `plan` come from authentication, the rest is what the client says.
STATIC_ATTRIBUTES: dict[str, str] = {
    "agent": "string",
    "tool": "string",
    "node": "string",
    "workflow": "string",
    "tenant": "string",
    "plan": "string",
    "session": "string",
    "model": "string",
    "name": "string",
    "depth": "int",
    "turn": "int",
    "tokens": "tokens",
    "last_step": "bool",
}
# Changed by events.
STATE_ATTRIBUTES: dict[str, str] = {"branch": "string", "rank": "int", "score": "number", "status": "status"}
ATTRIBUTES: dict[str, str] = {**STATIC_ATTRIBUTES, **STATE_ATTRIBUTES}
STATUSES = ("running", "done", "pruned")
TRUSTED_ATTRIBUTES = ("tenant", "plan")

# --- properties -----------------------------------------------------------------------------------------

PROPERTIES: dict[str, str] = {
    "priority": "rank among evictable blocks, 0 to 100; the lowest leaves first",
    "retention": "normal, drop, hold DURATION, hold until EVENT, or pin",
    "ttl": "how long the span stays above the default rank after its last use ended",
    "for": "whose claim it is, so when it ends at the latest",
    "tier": "highest tier allowed now, and the idle times at which it steps down",
    "prefetch": "bring the span back to the first rung",
    "admit": "whether the span may be stored below the first rung",
    "replicas": "on how many workers the span should be resident",
    "place": "whether its owner's next requests should go where it is",
    "share": "who may hit it",
}
DEFAULT_PRIORITY = 35  # where untagged blocks stand; TensorRT-LLM's scale and default
PRIORITY_RANGE = (0, 100)
RETENTIONS = ("normal", "drop", "hold", "pin")
LIFETIMES = ("request", "branch", "agent", "session", "run", "workflow", "tenant")  # values of `for`
DEFAULT_LIFETIME = "session"
DEFAULT_LIFETIME_BY_KIND: dict[str, str] = {"system": "agent", "tools": "agent"}
PLACES = ("anywhere", "same_worker")
SHARES = ("session", "run", "tenant", "global")  # narrowest first
DEFAULT_SHARE = "tenant"

# --- tiers and units ------------------------------------------------------------------------------------

TIERS = ("gpu", "cpu", "disk", "remote")  # highest first
TIER_ALIASES: dict[str, str] = {"hbm": "gpu", "dram": "cpu", "nvme": "disk"}

DURATION_UNITS: dict[str, float] = {"ms": 0.001, "s": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
TOKEN_UNITS: dict[str, int] = {"k": 1_000, "M": 1_000_000, "Ki": 1 << 10, "Mi": 1 << 20}
BYTE_UNITS: dict[str, int] = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
PERCENT_UNIT = "%"
LONGEST_DURATION_S = 30 * 86400.0  # longer ones are capped with a notice

# --- events ---------------------------------------------------------------------------------------------

EVENTS: dict[str, str] = {
    "tool_call": "the answer asked for a tool, which now runs",
    "tool_result": "the tool returned",
    "turn_start": "a human's message arrived",
    "turn_end": "the answer is done, a human is next",
    "step_start": "an agent's step of the workflow began",
    "step_end": "an agent's step of the workflow ended",
    "agent_start": "an agent's life began",
    "agent_end": "an agent's life ended",
    "branch_start": "a branch was forked",
    "branch_done": "a branch finished",
    "branch_scored": "a branch was given a score",
    "branch_pruned": "a branch was given up",
    "barrier": "an AND join was reached",
    "compact": "the history was rewritten",
    "cancel": "the request was withdrawn",
    "pause": "the owner was suspended",
    "resume": "the owner was taken up again",
    "workflow_start": "the run of a workflow began",
    "workflow_end": "the run of a workflow ended",
    "session_end": "the session is over",
}
# An owner is in one phase at a time. These events move it; the others do not.
PHASES = ("idle", "running", "tool_pause", "human_pause", "ended")
PHASE_AFTER: dict[str, str] = {
    "tool_call": "tool_pause",
    "tool_result": "running",
    "turn_start": "running",
    "turn_end": "human_pause",
    "step_start": "running",
    "step_end": "idle",
    "agent_start": "running",
    "agent_end": "ended",
    "branch_start": "running",
    "branch_done": "idle",
    "branch_pruned": "ended",
    "pause": "idle",
    "resume": "running",
    "workflow_end": "ended",
    "session_end": "ended",
}
EVENT_ATTRIBUTES: dict[str, str] = {
    **ATTRIBUTES,
    "call": "string",
    "run": "string",
    "eta": "duration",
}
# What other tools call these events.
EVENT_ALIASES: dict[str, str] = {
    "tool_start": "tool_call",
    "tool_end": "tool_result",
    "fork": "branch_start",
    "join": "branch_done",
    "complete": "workflow_end",
}
OWNER_FIELDS = ("tenant", "session", "run", "agent", "branch", "node", "call")  # how an event addresses owners

# --- functions: name -> (argument types, result type, may have no data) -----------------------------------

FUNCTIONS: dict[str, tuple[tuple[str, ...], str, bool]] = {
    "steps_to_next_use": ((), "int", True),
    "next_use": ((), "duration", True),
    "reuse_probability": (("within?",), "probability", True),
    "return_probability": (("within",), "probability", True),
    "hit_density": ((), "ratio", True),
    "best_hold": ((), "duration", True),
    "queue_delay": ((), "duration", True),
    "mean": (("series",), "duration", True),
    "p50": (("series",), "duration", True),
    "p90": (("series",), "duration", True),
    "p95": (("series",), "duration", True),
    "count": (("series",), "int", False),
    "eta": (("event",), "duration", True),
    "miss_cost": ((), "duration", True),
    "bytes": ((), "bytes", True),
    "hits": (("kind",), "int", True),
    "turns_ago": ((), "int", False),
    "fan_out": ((), "int", False),
    "idle": ((), "duration", False),
    "age": ((), "duration", False),
    "pressure": (("tier",), "probability", False),
    "min": (("like", "like", "..."), "like", False),
    "max": (("like", "like", "..."), "like", False),
    "clamp": (("like", "like", "like"), "like", False),
    "log2": (("number",), "number", False),
}
FUNCTION_MEANINGS: dict[str, str] = {
    "steps_to_next_use": "workflow steps until the span's agent may run again; `never` where there is no way",
    "next_use": "expected time until the span is needed, the time waited already taken into account",
    "reuse_probability": "chance that the span is used again, ever or within that time",
    "return_probability": "chance that its session comes back within that time",
    "hit_density": "chance of reuse over the time it has to be kept for that, at the best horizon",
    "best_hold": "how long holding pays: Continuum's utility maximum",
    "queue_delay": "recent waiting time of requests whose blocks had been lost",
    "mean": "mean of the times seen",
    "p50": "the time within which half of them were over",
    "p90": "the time within which nine in ten were over",
    "p95": "the time within which 95 in 100 were over",
    "count": "how many times were seen",
    "eta": "expected time until that event",
    "miss_cost": "time that losing the span costs: recomputing or reloading, whichever is cheaper",
    "bytes": "memory that it takes",
    "hits": "how often the agent's spans of that kind were found cached by somebody new to them",
    "turns_ago": "how many turns before the newest one",
    "fan_out": "how many branches stand behind it",
    "idle": "time since the owner's last request ended; 0 while one runs",
    "age": "time since the owner was first seen",
    "pressure": "how full that tier is",
    "min": "the least of its values",
    "max": "the greatest of its values",
    "clamp": "the first value, but not below the second or above the third",
    "log2": "the logarithm to base 2",
}
# What `mean p50 p90 p95 count` read.
SERIES: dict[str, str] = {
    "tool.duration": "times of the tool that runs (several at once: the longest)",
    "tools.duration": "times of all tools",
    "human.duration": "times a human took to come back",
    "step.duration": "times of workflow steps",
}

# --- versions -------------------------------------------------------------------------------------------

LANGUAGES = (1,)  # what `language N` may say; docs/language-changes.md tells what each brought

# --- reserved words -------------------------------------------------------------------------------------

STATEMENT_WORDS = ("policy", "use", "layers", "layer", "let", "workflow", "on", "until", "limit", "test")
CLAUSE_WORDS = (
    "over",
    "when",
    "else",
    "and",
    "or",
    "not",
    "in",
    "as",
    "with",
    "at",
    "most",
    "least",
    "per",
    "by",
    "of",
)
VALUE_WORDS = ("hold", "pin", "drop", "normal", "fixed", "after", "default", "all", "yes", "no", "within")
TEST_WORDS = ("given", "assume", "then", "expect")
WORKFLOW_WORDS = ("agent", "tool", "barrier", "loop")
# A name may be none of these; the kinds, so that `turn { … }` is never read as a label.
RESERVED: frozenset[str] = frozenset(
    (*STATEMENT_WORDS, *CLAUSE_WORDS, "hold", "pin", "drop", "normal", "default", *TEST_WORDS, *SPAN_KINDS, ANY_KIND)
)

# --- notices --------------------------------------------------------------------------------------------

NOTICES: tuple[str, ...] = (
    "SPAN_SHORTER_THAN_BLOCK",
    "CLIPPED",
    "SHARE_NARROWED",
    "STEPS_MERGED",
    "NO_PRESSURE",
    "CAPACITY_TOO_SMALL",
    "HISTORY_DIVERGED",
    "VOLATILE_PREFIX",
    "TOOL_ORDER_CHANGED",
    "PRIORITY_SATURATED",
    "BLOCK_SIZE_MISMATCH",
    "CANNOT_RANK_BELOW_DEFAULT",
    "DIRECTION_UNKNOWN",
    "UNREACHABLE_NODE",
    "SHARES_SCALED",
    "TRACE_UNITS_MISSING",
    "POSITION_UNKNOWN",
)
