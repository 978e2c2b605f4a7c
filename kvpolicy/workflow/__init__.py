"""What happens to owners and workflows: events, phases, intervals, graphs, distances, learned times.

Write path: requests, answers and events come in at `state.RunState`, which moves phases (`phases`), intervals
(`intervals`), steps (`runs`, `distance`) and learned times (`durations`). Read path: a policy asks `RunState.opening`
and `RunState.read` (`signals`).
"""
