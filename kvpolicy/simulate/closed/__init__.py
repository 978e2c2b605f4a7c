"""The closed loop: requests take time on a modelled engine, wait for room, and what follows them waits for them.

`models` says how long a step takes, `demand` what comes when, `engine` schedules as vLLM v1 does, `order` who goes
first, `links` how long blocks travel between tiers, `loop` turns the clock, `tally` counts, `compare` runs contenders.
"""
