"""What happens to owners and workflows: events, phases, intervals, graphs, distances, learned times.

Write path: requests, answers and events come in at `state.RunState`, which moves phases (`phases`), intervals
(`intervals`), the steps of runs (`runs`, `run`, `standing`, `position`) and learned times (`learned`). Read path: a
policy asks `RunState.opening` and `RunState.read` (`signals`, which reads a `moment`: distances from `stepwise`, times
along the graph from `ahead`, chances from `chance`, put together in `course`).
"""
