; Made by grammar/editors/generate.py from kvpolicy/words.py.
(comment) @comment
(string) @string
[(quantity) (int)] @number
["agent" "and" "as" "assume" "at" "barrier" "by" "else" "expect" "given" "in" "layer" "layers" "least" "let" "limit" "loop" "most" "not" "of" "on" "or" "over" "per" "policy" "test" "then" "tool" "until" "use" "when" "with" "workflow"] @keyword
(label (identifier) @label)
(attr . (identifier) @attribute)
(call . (identifier) @function)
(decl . (identifier) @property)
((identifier) @type (#any-of? @type "any" "branch" "document" "output" "scratchpad" "system" "tool_result" "tools" "turn"))
((identifier) @function.builtin (#any-of? @function.builtin "age" "best_hold" "bytes" "clamp" "count" "eta" "fan_out" "hit_density" "hits" "idle" "log2" "max" "mean" "min" "miss_cost" "next_use" "p50" "p90" "p95" "pressure" "queue_delay" "return_probability" "reuse_probability" "steps_to_next_use" "turns_ago"))
((identifier) @constant.builtin (#any-of? @constant.builtin "after" "agent" "all" "anywhere" "branch" "cpu" "default" "disk" "done" "dram" "drop" "ended" "false" "fixed" "global" "gpu" "hbm" "hold" "human_pause" "idle" "never" "no" "normal" "nvme" "pin" "pruned" "remote" "request" "run" "running" "same_worker" "session" "tenant" "tool_pause" "true" "within" "workflow" "yes"))
((identifier) @type.definition (#any-of? @type.definition "agent_end" "agent_start" "barrier" "branch_done" "branch_pruned" "branch_scored" "branch_start" "cancel" "compact" "complete" "fork" "join" "pause" "resume" "session_end" "step_end" "step_start" "tool_call" "tool_end" "tool_result" "tool_start" "turn_end" "turn_start" "workflow_end" "workflow_start"))
((identifier) @property (#any-of? @property "admit" "for" "place" "prefetch" "priority" "replicas" "retention" "share" "tier" "ttl"))
